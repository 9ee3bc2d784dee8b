"""The packages of a script that is about to run: looked up before the question, installed after the answer.

What a script wants is read from the copy of the skill that was taken, so the question, the answer and the run are about
the same. Nothing is looked up for a script that wants nothing or that policy denies. Where packages cannot be had or
are not allowed, the script runs without them, and a note says what is missing and the way out.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from metier.errors import ScriptRefused
from metier.files.text import from_utf8
from metier.files.tree import SkillTree
from metier.model import Skill
from metier.packages import Environment, PackagesUnavailable, Wanted
from metier.packages.inferred import imports_from_root
from metier.packages.interpreters import Interpreter, choose
from metier.packages.lock import Lock
from metier.packages.state import PackageState, wanted_by
from metier.results import Request
from metier.sandbox.interpreter import usual_python
from metier.session.policy import NOBODY, By, in_settings
from metier.session.skill_request import script_request, skill_request

if TYPE_CHECKING:
    from metier.hosts.settings import Settings
    from metier.session.context import SessionContext
    from metier.session.scripts import Script

GRANT: Final = "run_packages"
_NAMED: Final = 20
"""How many packages a note names."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run gets to import, and what to tell about it."""

    lock: Lock | None = field(default=None, repr=False)
    interpreter: Interpreter | None = None
    environment: Environment | None = None
    notes: tuple[str, ...] = ()
    text: str = ""
    """What a person is told before the run."""
    refusal: str = ""
    """Why the script cannot run here at all."""

    @property
    def digest(self) -> str:
        return self.lock.digest if self.lock is not None else ""

    @property
    def grants(self) -> tuple[str, ...]:
        return (GRANT,) if self.lock is not None else ()

    @property
    def given(self) -> tuple[str, ...]:
        """What an answer covers."""
        return (f"packages {self.lock.digest}",) if self.lock is not None else ()

    @property
    def artifacts(self) -> dict[str, bytes]:
        return {self.lock.digest: self.lock.data} if self.lock is not None else {}

    def withheld(self, skill: Skill) -> "Plan":
        """The same without the packages, which nobody could be asked about."""
        assert self.lock is not None
        rule = in_settings(skill_request(GRANT, skill))
        note = _not_installed([str(one) for one in self.lock.packages], f"the user can allow them {rule}")
        return Plan(interpreter=self.interpreter, environment=self.environment, notes=(*self.notes, note))


NO_PACKAGES: Final = Plan()


def plan(context: "SessionContext", script: "Script") -> Plan:
    """What a script gets to import, as the question showed it if there was one."""
    if context.version < 6:
        return NO_PACKAGES
    recorded = context.recorder.inputs.packages
    if recorded is not None:
        data = recorded(script.skill, script.path)
        return Plan(lock=Lock.parse(data)) if data else NO_PACKAGES
    known, key = context.asked.packages, (script.skill.path, script.skill.folder, script.path)
    if key not in known:
        known[key] = _look_up(context, script)
    return known[key]


def is_withheld(context: "SessionContext", request: Request, plain: Request, by: By) -> bool:
    """Whether a run goes without its packages, because a model asks for it and nobody can be asked about them.

    `plain` is the request without them.
    """
    if by == "user":
        return False
    answers = context.asked.answers
    nobody = context.approve is None or answers.get(request) == NOBODY
    if not nobody or context.policy.decide(request).verdict != "ask":
        return False
    if request in answers:
        context.use_answers(replace(context.asked, answers={**answers, plain: NOBODY}))
    return True


def installed(context: "SessionContext", script: "Script", plan: Plan) -> Plan:
    """The plan with its packages on disk. Raises `ScriptRefused` where the script cannot run here."""
    if plan.refusal:
        raise ScriptRefused(script.path, "interpreter-missing", plan.refusal)
    lock, state = plan.lock, package_state(context.skills.settings)
    if lock is None or state is None or context.recorder.inputs.packages is not None:
        return plan
    try:
        is_new = state.environments.find(lock) is None
        folder = state.environments.ensure(lock, plan.interpreter, builds=context.profile.run.build_packages)
    except PackagesUnavailable as error:
        note = _not_installed([str(one) for one in lock.packages], str(error))
        return replace(plan, notes=(*plan.notes, note))
    environment = environment_of(plan, folder)
    told = f"installed {describe(lock)}" if is_new else ""
    return replace(plan, environment=environment, notes=(*([told] if told else ()), *plan.notes))


def package_state(settings: "Settings") -> PackageState | None:
    """Where locks and environments are; `None` where there is no place for them."""
    if not settings.data_folder:
        return None
    return PackageState(settings.data_folder, settings.cache_folder or settings.data_folder)


def environment_of(plan: Plan, folder: str) -> Environment:
    """What a run gets whose packages are in a folder."""
    interpreter, root = plan.interpreter, plan.environment is not None and plan.environment.root
    if interpreter is None:
        return Environment("node", folder)
    return Environment("python", folder, interpreter.path, interpreter.short, root)


def describe(lock: Lock) -> str:
    """A lock in words: how many packages, how large, by whose word, and each with its version and size."""
    count = f"{len(lock.packages)} package{'' if len(lock.packages) == 1 else 's'}"
    size = f", {_size(lock.size)}" if lock.size else ""
    each = ", ".join(f"{one} ({_size(one.size)})" if one.size else str(one) for one in lock.packages)
    said = f"inferred from {lock.source}" if _is_inferred(lock) else f"declared in {lock.source}"
    return f"{count}{size}, {said}: {each}"


def _is_inferred(lock: Lock) -> bool:
    return any(one.inferred for one in lock.packages)


def _look_up(context: "SessionContext", script: "Script") -> Plan:
    tree = script.files.tree
    if tree is None:
        return NO_PACKAGES
    wanted = wanted_by(tree, script.path, from_utf8(script.files.content[:200]))
    found = NO_PACKAGES if wanted is None else _for_wanted(context, script, wanted)
    return with_root(found, tree, script.path)


def with_root(plan: Plan, tree: SkillTree, script: str) -> Plan:
    """The plan of a script, which may import modules from the folder of its skill."""
    if not script.endswith(".py") or not imports_from_root(tree, script):
        return plan
    return replace(plan, environment=replace(plan.environment or Environment("python"), root=True))


def _for_wanted(context: "SessionContext", script: "Script", wanted: Wanted) -> Plan:
    plain = script_request(context, script, "skill_run")
    if context.policy.decide(plain).verdict == "deny":
        return NO_PACKAGES
    decided = context.policy.decide(replace(plain, tool=GRANT))
    if context.profile.run.packages == "never":
        return _without(wanted, "run.packages is set to never")
    if decided.verdict == "deny" and decided.rule is not None:
        return _without(wanted, "a rule denies run_packages")
    return look_up(context.skills.settings, wanted)


def look_up(settings: "Settings", wanted: Wanted, *, anew: bool = False, offline: bool = False) -> Plan:
    """The interpreter and the exact packages for what is wanted. `offline`: only if they are known."""
    interpreter: Interpreter | None = None
    environment: Environment | None = None
    if wanted.kind == "python":
        usual = usual_python()
        try:
            interpreter = choose(usual, wanted.python)
        except PackagesUnavailable as error:
            return Plan(refusal=str(error))
        if interpreter.path != usual:
            environment = Environment("python", "", interpreter.path, interpreter.short)
    chosen = Plan(interpreter=interpreter, environment=environment, notes=wanted.notes)
    state = package_state(settings)
    if not wanted.requirements or state is None:
        return chosen
    try:
        builds = settings.profile.run.build_packages
        lock = state.lock(wanted, interpreter, builds=builds, anew=anew, offline=offline)
    except PackagesUnavailable as error:
        missing = _without(wanted, str(error))
        return replace(chosen, notes=missing.notes, text=missing.text)
    if lock is None:
        return chosen
    left_out = tuple(f"no package for the import {one}" for one in lock.left_out)
    if not lock.packages:
        return replace(chosen, notes=(*chosen.notes, *left_out))
    return replace(chosen, lock=lock, notes=(*chosen.notes, *left_out), text=describe(lock))


def _without(wanted: Wanted, why: str) -> Plan:
    if not wanted.requirements:
        return Plan(notes=wanted.notes)
    note = _not_installed(wanted.requirements, why)
    return Plan(notes=(*wanted.notes, note), text=note)


def _not_installed(names: "list[str] | tuple[str, ...]", why: str) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"dependencies not installed: {', '.join(names[:_NAMED])}{more} ({why})"


def _size(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1_000_000:,.1f} MB"
    return f"{max(1, count // 1000)} kB"
