"""Runs a script of a skill: policy first, then the sandbox, and every step in the record.

Only files in the folders that the profile names are scripts. The whole folder of the skill is taken once: an approval
covers these files, by the digest of all of them, and the script runs with this very copy. So a change of any file is
asked about again, and one that comes after the question has no effect. What a run is given besides its sandbox is in
`given.py`, and the run itself in `execution.py`.
"""

import functools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from metier import limits
from metier.errors import MetierError, PolicyDenied, ResourceError, SandboxUnavailable, StoreError
from metier.files import beneath
from metier.files.digests import digest_of
from metier.files.source import ScriptFiles, take_folder
from metier.files.text import from_utf8, storable_text
from metier.files.tree import digest_in, tree_text
from metier.hosts.schema import RunRules
from metier.model import Skill
from metier.record.events import ToolFailed
from metier.results import Request, RunResult
from metier.sandbox import Runner, choose
from metier.session import dependencies, script_secrets, windows
from metier.session.execution import Execution
from metier.session.given import Given, given_to
from metier.session.policy import By
from metier.session.rules import Rule
from metier.session.script_secrets import StoredSecrets
from metier.session.skill_request import skill_request
from metier.session.working_folder import RunOptions, contents

if TYPE_CHECKING:
    from metier.session.context import SessionContext


def default_runner(rules: RunRules | None = None) -> Runner | None:
    """The best sandbox of this machine that the settings name, looked for once; `None` where there is none."""
    rules = rules if rules is not None else RunRules()
    return _sandbox(rules.sandbox, rules.image)


@functools.cache
def _sandbox(names: tuple[str, ...], image: str) -> Runner | None:
    try:
        return choose(names, image=image)
    except SandboxUnavailable:
        return None


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script that is about to run, known by its content and by all files of its skill."""

    skill: Skill
    path: str
    arguments: tuple[str, ...]
    files: ScriptFiles
    secrets: tuple[str, ...] = ()
    """The names of the secrets that rules give it."""
    read_secrets: Callable[[], StoredSecrets] = field(default=StoredSecrets, repr=False, compare=False)

    @functools.cached_property
    def stored(self) -> StoredSecrets:
        """The secrets of the user, read when a value is needed first."""
        return self.read_secrets()

    @functools.cached_property
    def shown_arguments(self) -> tuple[str, ...]:
        """The arguments without the values of secrets. Only the script itself gets them as they are."""
        return tuple(self.stored.mask.text(argument) for argument in self.arguments)

    @functools.cached_property
    def digest(self) -> str:
        """The digest of the script itself."""
        return digest_of(self.files.content)

    @functools.cached_property
    def tree(self) -> str:
        """The digest of all files of the skill. Empty in a record before version 3."""
        return digest_of(self.files.listing) if self.files.listing else ""

    @property
    def artifacts(self) -> dict[str, bytes]:
        """What the record keeps: the script, and the list of the files that it ran with."""
        kept = {self.digest: self.files.content}
        return kept | {self.tree: self.files.listing} if self.tree else kept

    @property
    def command(self) -> str:
        return " ".join((self.path, *self.shown_arguments))


def read(context: "SessionContext", skill: Skill, path: str, arguments: Sequence[str]) -> Script:
    """The script at a path of a skill, as the question showed it if there was one.

    Raises `ResourceError` where there is none.
    """
    relative = beneath.check_relative(path, context.profile.resources.parents)
    taken, key = context.asked.scripts, (skill.path, skill.folder, relative)
    if key not in taken:
        taken[key] = _take(context, skill, relative)
    script = Script(
        skill=skill,
        path=relative,
        arguments=tuple(arguments),
        files=taken[key],
        read_secrets=functools.partial(script_secrets.stored, context),
    )
    return replace(script, secrets=script_secrets.granted(context, skill, relative, script.tree))


def _take(context: "SessionContext", skill: Skill, path: str) -> ScriptFiles:
    """Read the whole folder of a skill, once."""
    if context.version < 3:
        return ScriptFiles(content=context.files.resource(skill, path, limits.SCRIPT_BYTES).data)
    if context.recorder.inputs.scripts is not None:
        return context.recorder.inputs.scripts(skill, path)
    folder = context.files.folder(skill)
    # The real path of a skill on disk is known from the scan, and must not have become a link since.
    tree = take_folder(folder if folder == skill.folder else os.path.realpath(folder), skill.inner)
    file = tree.file(path)
    if file is None:
        context.files.resource(skill, path, limits.SCRIPT_BYTES)  # raises, with the reason
        message = f"{path} does not run: scripts are given neither compiled Python nor repositories"
        raise ResourceError(message, path=path, reason="not-a-script")
    if len(file.data) > limits.SCRIPT_BYTES:
        message = f"{path} has more than {limits.SCRIPT_BYTES // limits.MIB} MiB, which nobody can review"
        raise ResourceError(message, path=path, reason="too-large")
    return ScriptFiles(content=file.data, listing=tree_text(tree.rows), tree=tree, folder=folder)


def check(context: "SessionContext", script: Script) -> None:
    """Raise where the file is not a script to this host, or the `allowed-tools` of an active skill do not list running.

    The skill's own count even where it is not active any more.
    """
    profile = context.profile
    folders = profile.run.folders
    if script.path.split("/", 1)[0] not in folders or "/" not in script.path:
        where = " or ".join(f"{folder}/" for folder in folders)
        message = f"{script.path} is not a script: only files in {where} run"
        raise ResourceError(message, path=script.path, reason="not-a-script")
    if profile.policy.enforce_hints:
        own = context.state.windows.get(storable_text(script.skill.path))
        hint = own.allowed_tools if own is not None and own.name else script.skill.allowed_tools
        if not windows.lists_scripts(hint, profile, script.command):
            way_out = f"whoever maintains the skill can add {profile.tools.run} to allowed-tools in its SKILL.md"
            raise _refused(context, script, "its own allowed-tools does not list it", way_out)
        active = ""
        if context.version > 1:
            catalog = context.skills.catalog
            active = windows.refusing(context.policy, catalog, context.state.windows, "skill_run", script.command)
        if active:
            way_out = "it can run after the user's next message, before that skill is loaded again"
            raise _refused(context, script, windows.reason(active), way_out)


def _refused(context: "SessionContext", script: Script, why: str, way_out: str) -> PolicyDenied:
    return PolicyDenied("skill_run", script.skill.name, why, way_out if context.version > 4 else "")


def run(
    context: "SessionContext",
    skill: Skill,
    path: str,
    arguments: Sequence[str],
    stdin: str | None,
    options: RunOptions,
    *,
    by: By,
) -> RunResult:
    """Run a script of a loaded skill, if policy allows it."""
    script: Script | None = None
    given = Given()
    try:
        script = read(context, skill, path, arguments)
        check(context, script)
        given = given_to(context, script, options, by)
        asked = request(context, script, given)
        if given.asked_packages:
            without = replace(given, packages=given.packages.withheld(script.skill))
            plain = request(context, script, without)
            if dependencies.is_withheld(context, asked, plain, by):
                given, asked = without, plain
        context.confirm(asked, by)
        if context.version < 3:
            given = given_to(context, script, options, by)  # what the person was shown did not count then
        runner = _runner(given.grants, context.runner, context.profile.run)
        files = contents(context, options)
    except MetierError as error:
        _record_refusal(context, skill, path, script, error, given)
        raise
    kept = {digest_of(data): data for data in files.values()}
    context.recorder.note(artifacts=script.artifacts | given.packages.artifacts | kept)
    context.commit()
    return Execution(context, script, given, runner, files).run(stdin)


def request(context: "SessionContext", script: Script, given: Given) -> Request:
    """The request to run a script, with what it is given besides its sandbox."""
    return skill_request(
        "skill_run",
        script.skill,
        script.path,
        command=script.command,
        digest=script.tree or script.digest,
        detail=from_utf8(script.files.content),
        arguments=script.shown_arguments,
        grants=given.grants,
        project=storable_text(given.folder.path),
        hosts=given.hosts,
        secrets=script.secrets,
        given=given.words if context.version > 5 else (),
        wants=given.wants,
        files=tuple(storable_text(name) for name in given.files),
        packages=given.packages.text,
        version=context.version,
    )


def approved_before(context: "SessionContext", request: Request) -> str:
    """The text of the script when a person last allowed it for good, if the store still has it.

    Remembered answers name the digest of all files of the skill, and under that digest the record keeps their list.
    """
    if request.tool != "skill_run" or not request.folder:
        return ""
    wanted = replace(Rule.covering(request), digest=None, given=None)
    answers = context.policy.remembered.current().allow
    digests = [rule.digest for rule in answers if rule.digest and replace(rule, digest=None, given=None) == wanted]
    if not digests or digests[-1] == request.digest:
        return ""
    store = context.recorder.store
    try:
        rows = json.loads(store.get_artifact(digests[-1]))
        return from_utf8(store.get_artifact(digest_in(rows, request.path)))
    except (StoreError, ValueError, TypeError):
        return ""


def _runner(granted: Sequence[str], given: Runner | None, rules: RunRules) -> Runner:
    """The sandbox to use. Running without one needs a rule that says so, and the record says it, too."""
    runner = given or default_runner(rules)
    problem = runner.problem() if runner is not None else None
    if runner is not None and problem is None:
        return runner
    if "run_unsandboxed" in granted:
        return choose(["none"])
    if problem is not None:
        raise SandboxUnavailable(problem)
    return choose(rules.sandbox, image=rules.image)  # raises, with what was tried and the line that installs a sandbox


def _record_refusal(
    context: "SessionContext",
    skill: Skill,
    path: str,
    script: Script | None,
    error: MetierError,
    given: Given,
) -> None:
    reason = getattr(error, "reason", "") or type(error).__name__
    if isinstance(error, SandboxUnavailable) and context.version > 1:
        reason = "sandbox"
    kept = script is not None and (bool(script.files.content) or context.version > 2)
    redact = context.policy.redact
    failed = ToolFailed(
        tool="skill_run",
        name=skill.name,
        script=redact(path),
        reason=reason,
        detail=redact(str(error)),
        digest=script.digest if script is not None and kept else "",
        tree=script.tree if script is not None else "",
        folder=storable_text(given.folder.path),
        cwd=storable_text(given.folder.cwd),
        secrets=script.secrets if script is not None else (),
        packages=given.packages.digest,
    )
    artifacts = script.artifacts | given.packages.artifacts if script is not None and kept else None
    context.recorder.note(failed, artifacts=artifacts)
