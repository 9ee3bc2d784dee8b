"""The packages of a script that is about to run: looked up before the question, installed after the answer.

What a script wants is read from the copy of the skill that was taken, so the question, the answer and the run are about
the same. Nothing is looked up for a script that wants nothing or that policy denies. Where packages cannot be had or
are not allowed, the script runs without them, and a note says what is missing and the way out. A script whose skill
asks for something else than packages of a registry is refused before the question.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

from metier.errors import ScriptRefused
from metier.files.text import from_utf8, printable
from metier.files.tree import SkillTree
from metier.hosts.settings import Settings
from metier.policy.decide import in_settings
from metier.running.grants import RunGrant
from metier.running.packages import Environment, PackagesUnavailable, Wanted
from metier.running.packages.environment import PackageState, wanted_by
from metier.running.packages.inferred import imports_from_root
from metier.running.packages.interpreters import Interpreter, choose
from metier.running.packages.lock import Lock
from metier.running.sandbox import Job, Outcome
from metier.running.sandbox.interpreter import usual_python
from metier.running.scripts import WantedRun
from metier.values.skill import JsonObject

TOOL: Final = "run_packages"
_REFUSED: Final = "packages-refused"
"""The reason of a refusal in the record."""
_NAMED: Final = 20
"""How many packages a note names."""


@dataclass(frozen=True, kw_only=True)
class PackagesGrant(RunGrant):
    """What a run gets to import, and what to tell about it."""

    kind: ClassVar[str] = "packages"
    refusals: ClassVar[tuple[str, ...]] = (_REFUSED,)

    digest: str = ""
    """The digest of the lock, which names the artifact. Empty if there are no packages to install."""
    text: str = ""
    """What a person is told before the run."""
    lock: Lock | None = field(default=None, compare=False, repr=False)
    interpreter: Interpreter | None = field(default=None, compare=False)
    environment: Environment | None = field(default=None, compare=False)
    remarks: tuple[str, ...] = field(default=(), compare=False)
    refusal: str = field(default="", compare=False)
    """Why the script cannot run here at all."""

    @classmethod
    def plan(cls, run: WantedRun) -> Self:
        """What a script gets to import, as the question showed it if there was one."""
        if run.script.key not in run.looked_up:
            run.looked_up[run.script.key] = _look_up(run)
        found = run.looked_up[run.script.key]
        assert isinstance(found, cls)
        tools = run.allowed(cls.kind)
        return replace(found, tools=(TOOL,), asked=not tools) if found.lock is not None else found

    @property
    def artifacts(self) -> Mapping[str, bytes]:
        return {self.lock.digest: self.lock.data} if self.lock is not None else {}

    def facts(self) -> Iterator[tuple[str, str]]:
        if self.text:
            yield "Needs", self.text

    def covers(self) -> Mapping[str, str]:
        return {"packages": self.digest} if self.asked else {}

    def lasts(self) -> tuple[str, str]:
        return "", "no package" if self.text else ""

    def shown(self) -> JsonObject:
        return {"packages": self.text}

    def withheld(self, run: WantedRun) -> Self:
        if self.lock is None or not self.asked:
            return self
        note = _not_installed(self.lock, f"the user can allow them {in_settings(run.about_skill(TOOL))}")
        return type(self)(interpreter=self.interpreter, environment=self.environment, remarks=(*self.remarks, note))

    def ready(self, run: WantedRun) -> Self:
        """The same with its packages on disk."""
        if self.refusal:
            raise ScriptRefused(run.script.path, "interpreter-missing", self.refusal)
        lock, state = self.lock, package_state(run.settings)
        if lock is None or state is None:
            return self
        try:
            is_new = state.environments.find(lock) is None
            folder = state.environments.ensure(lock, self.interpreter)
        except PackagesUnavailable as error:
            return replace(self, remarks=(*self.remarks, _not_installed(lock, str(error))))
        told = (f"installed {describe(lock)}",) if is_new else ()
        return replace(self, environment=self.with_folder(folder), remarks=(*told, *self.remarks))

    def with_folder(self, folder: str) -> Environment:
        """The environment of a script whose packages are in a folder."""
        interpreter, root = self.interpreter, self.environment is not None and self.environment.root
        if interpreter is None:
            return Environment("node", folder)
        return Environment("python", folder, interpreter.path, interpreter.short, root)

    def with_root(self, tree: SkillTree, path: str) -> Self:
        """The same for a script that may import modules in the folder of its skill."""
        if not path.endswith(".py") or not imports_from_root(tree, path):
            return self
        return replace(self, environment=replace(self.environment or Environment("python"), root=True))

    def into(self, job: Job, run: WantedRun) -> Job:
        return replace(job, packages=self.environment)

    def notes(self, run: WantedRun, outcome: Outcome) -> Iterator[str]:
        return iter(self.remarks)


def package_state(settings: Settings) -> PackageState | None:
    """Where locks and environments are; `None` where there is no place for them, as in a replay."""
    if not settings.data_folder:
        return None
    return PackageState(settings.data_folder, settings.cache_folder or settings.data_folder)


def describe(lock: Lock) -> str:
    """A lock in words: how many packages, how large, by whose word, and each with its version and size."""
    count = f"{len(lock.packages)} package{'' if len(lock.packages) == 1 else 's'}"
    size = f", {_size(lock.size)}" if lock.size else ""
    each = ", ".join(f"{one} ({_size(one.size)})" if one.size else str(one) for one in lock.packages)
    inferred = any(one.inferred for one in lock.packages)
    return f"{count}{size}, {'inferred from' if inferred else 'declared in'} {lock.source}: {each}"


def _look_up(run: WantedRun) -> PackagesGrant:
    path, tree = run.script.path, run.script.files.tree
    if tree is None:
        return PackagesGrant()
    wanted = wanted_by(tree, path, from_utf8(run.script.files.content[:200]))
    found = PackagesGrant() if wanted is None else _for_wanted(run, wanted)
    return found.with_root(tree, path)


def _for_wanted(run: WantedRun, wanted: Wanted) -> PackagesGrant:
    if run.policy.decide(run.request("skill_run")).verdict == "deny":
        return PackagesGrant()
    decided = run.policy.decide(run.request(TOOL))
    if run.settings.profile.run.packages == "never":
        return _without(wanted, "run.packages is set to never")
    if decided.verdict == "deny" and decided.rule is not None:
        return _without(wanted, "a rule denies run_packages")
    if wanted.refused:
        raise ScriptRefused(run.script.path, _REFUSED, _refusal(wanted))
    return look_up(run.settings, wanted)


def look_up(settings: Settings, wanted: Wanted, *, anew: bool = False, offline: bool = False) -> PackagesGrant:
    """The interpreter and the exact packages for what is wanted. `offline`: only if they are known."""
    if wanted.refused:
        return PackagesGrant(refusal=_refusal(wanted))
    interpreter: Interpreter | None = None
    environment: Environment | None = None
    if wanted.kind == "python":
        usual = usual_python()
        try:
            interpreter = choose(usual, wanted.python)
        except PackagesUnavailable as error:
            return PackagesGrant(refusal=str(error))
        if interpreter.path != usual:
            environment = Environment("python", "", interpreter.path, interpreter.short)
    chosen = PackagesGrant(interpreter=interpreter, environment=environment, remarks=wanted.notes)
    state = package_state(settings)
    if not wanted.requirements or state is None:
        return chosen
    try:
        lock = state.lock(wanted, interpreter, anew=anew, offline=offline)
    except PackagesUnavailable as error:
        missing = _without(wanted, str(error))
        return replace(chosen, remarks=missing.remarks, text=missing.text)
    if lock is None:
        return chosen
    remarks = (*chosen.remarks, *(f"no package for the import {one}" for one in lock.left_out))
    if not lock.packages:
        return replace(chosen, remarks=remarks)
    return replace(chosen, digest=lock.digest, lock=lock, remarks=remarks, text=describe(lock))


def _refusal(wanted: Wanted) -> str:
    more = f"; and {len(wanted.refused) - _NAMED} more" if len(wanted.refused) > _NAMED else ""
    way_out = 'mend that, or set run.packages = "never" to run scripts without packages'
    listed = printable("; ".join(wanted.refused[:_NAMED]))
    return f"{listed}{more}: only names and versions of packages of a registry are installed; {way_out}"


def _without(wanted: Wanted, why: str) -> PackagesGrant:
    if not wanted.requirements:
        return PackagesGrant(remarks=(*wanted.notes, *wanted.refused))
    note = _not_installed(wanted.requirements, why)
    return PackagesGrant(remarks=(*wanted.notes, note), text=note)


def _not_installed(packages: Lock | Sequence[str], why: str) -> str:
    names = [str(one) for one in (packages.packages if isinstance(packages, Lock) else packages)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"dependencies not installed: {', '.join(names[:_NAMED])}{more} ({why})"


def _size(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1_000_000:,.1f} MB"
    return f"{max(1, count // 1000)} kB"
