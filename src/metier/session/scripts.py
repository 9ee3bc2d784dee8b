"""Runs a script of a skill: policy first, then the sandbox, and every step in the record.

Only files in the folders that the profile names are scripts. The whole folder of the skill is taken once: an approval
covers these files, by the digest of all of them, and the script runs with this very copy. So a change of any file is
asked about again, and one that comes after the question has no effect. Nothing is granted beyond the sandbox unless an
allow rule names the grant.
"""

import codecs
import functools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from metier import limits
from metier.errors import MetierError, PolicyDenied, ResourceError, SandboxUnavailable, ScriptRefused, StoreError
from metier.files import beneath
from metier.files.digests import digest_of
from metier.files.source import ScriptFiles, take_folder
from metier.files.text import from_utf8, storable_text
from metier.files.tree import digest_in, tree_text
from metier.model import Skill
from metier.record.events import Event, ToolEnded, ToolFailed, ToolStarted, ToolStderr, ToolStdout
from metier.results import Artifact, Request, RunResult
from metier.sandbox import Job, Outcome, RunLimits, Runner, Stream, choose
from metier.session import dependencies, windows
from metier.session.dependencies import NO_PACKAGES, Plan
from metier.session.policy import GRANTS, By
from metier.session.rules import Rule
from metier.session.skill_request import skill_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metier.session.context import SessionContext


class Note(Protocol):
    """Puts events, and artifacts by digest, into the record and makes them safe."""

    def __call__(self, *events: Event, artifacts: "Mapping[str, bytes] | None" = None) -> None: ...


@functools.cache
def default_runner() -> Runner | None:
    """The best sandbox of this machine, looked for once; `None` where there is none."""
    try:
        return choose()
    except SandboxUnavailable:
        return None


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script that is about to run, known by its content and by all files of its skill."""

    skill: Skill
    path: str
    arguments: tuple[str, ...]
    files: ScriptFiles

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
        return " ".join((self.path, *self.arguments))


def read(context: "SessionContext", skill: Skill, path: str, arguments: Sequence[str]) -> Script:
    """The script at a path of a skill, as the question showed it if there was one.

    Raises `ResourceError` where there is none.
    """
    relative = beneath.check_relative(path, context.profile.resources.parents)
    taken, key = context.asked.scripts, (skill.path, skill.folder, relative)
    if key not in taken:
        taken[key] = _take(context, skill, relative)
    return Script(skill=skill, path=relative, arguments=tuple(arguments), files=taken[key])


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
    context: "SessionContext", skill: Skill, path: str, arguments: Sequence[str], stdin: str | None, *, by: By
) -> RunResult:
    """Run a script of a loaded skill, if policy allows it."""
    script: Script | None = None
    plan = NO_PACKAGES
    try:
        script = read(context, skill, path, arguments)
        check(context, script)
        granted = grants(context, script)
        plan = dependencies.plan(context, script)
        asked = request(context, script, granted, plan)
        if dependencies.is_withheld(context, asked, by):
            plan = plan.withheld(script.skill)
            asked = request(context, script, granted, plan)
        context.confirm(asked, by)
        if context.version < 3:
            granted = grants(context, script)  # what the person was shown did not count then
        runner = _runner(granted, context.runner)
    except MetierError as error:
        _record_refusal(context, skill, path, script, error, plan)
        raise
    context.recorder.note(artifacts=script.artifacts | plan.artifacts)
    context.commit()
    return _Execution(context, script, granted, runner, plan).run(stdin)


def grants(context: "SessionContext", script: Script) -> tuple[str, ...]:
    """What an allow rule gives this script besides its sandbox."""
    return tuple(grant for grant in GRANTS if _granted(context, script, grant))


def _granted(context: "SessionContext", script: Script, grant: str) -> bool:
    wanted = skill_request(
        grant,
        script.skill,
        script.path,
        command=script.command,
        digest=script.tree,
        arguments=script.arguments,
        version=context.version,
    )
    return context.policy.decide(wanted).verdict == "allow"


def request(
    context: "SessionContext", script: Script, granted: tuple[str, ...] | None = None, plan: Plan | None = None
) -> Request:
    """The request to run a script, with what rules give it besides its sandbox, and its packages."""
    granted = grants(context, script) if granted is None else granted
    plan = dependencies.plan(context, script) if plan is None else plan
    given = plan.given if "run_packages" not in granted else ()
    sees = {"run_project", "run_project_write"} & set(granted)
    return skill_request(
        "skill_run",
        script.skill,
        script.path,
        command=script.command,
        digest=script.tree or script.digest,
        detail=from_utf8(script.files.content),
        arguments=script.arguments,
        grants=granted,
        project=storable_text(context.skills.settings.place.project) if sees else "",
        given=given,
        wants=given,
        packages=plan.text,
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


def _runner(granted: Sequence[str], given: Runner | None) -> Runner:
    """The sandbox to use. Running without one needs a rule that says so, and the record says it, too."""
    runner = given or default_runner()
    problem = runner.problem() if runner is not None else None
    if runner is not None and problem is None:
        return runner
    if "run_unsandboxed" in granted:
        return choose(["none"])
    if problem is not None:
        raise SandboxUnavailable(problem)
    return choose()  # raises, with what was tried and the line that installs a sandbox


def _record_refusal(
    context: "SessionContext", skill: Skill, path: str, script: Script | None, error: MetierError, plan: Plan
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
        packages=plan.digest,
    )
    context.recorder.note(failed, artifacts=script.artifacts | plan.artifacts if script is not None and kept else None)


class _Execution:
    """One run, with every piece of its output in the record as it comes."""

    def __init__(
        self, context: "SessionContext", script: Script, granted: tuple[str, ...], runner: Runner, plan: Plan
    ) -> None:
        self._context, self._script, self._runner, self._plan = context, script, runner, plan
        self._granted = (*(grant for grant in granted if grant != "run_packages"), *plan.grants)
        self._note: Note = context.note_now
        self._redact: Callable[[str], str] = context.policy.redact

    def run(self, stdin: str | None) -> RunResult:
        script = self._script
        streams = _Streams(self._note, self._redact)
        try:
            self._plan = dependencies.installed(self._context, script, self._plan)
            outcome = self._runner.run(self._job(stdin), streams)
        except (SandboxUnavailable, ScriptRefused) as error:
            reason = "sandbox" if isinstance(error, SandboxUnavailable) else error.reason
            digest = script.digest if self._context.version > 1 else ""
            failed = ToolFailed(
                tool="skill_run",
                name=script.skill.name,
                script=script.path,
                reason=reason,
                detail=str(error),
                digest=digest,
                tree=script.tree,
                packages=self._plan.digest,
            )
            self._note(failed)
            raise
        streams.close()
        return self._finish(outcome)

    def _job(self, stdin: str | None) -> Job:
        context, script = self._context, self._script
        rules, place = context.profile.run, context.skills.settings.place
        writable = "run_project_write" in self._granted
        return Job(
            skill_dir=script.files.folder or context.files.folder(script.skill),
            tree=script.files.tree,
            script=script.path,
            argv=script.arguments,
            stdin=stdin.encode() if stdin is not None else None,
            env={name: place.env[name] for name in rules.env if name in place.env},
            network="run_network" in self._granted,
            project=place.project if writable or "run_project" in self._granted else None,
            project_writable=writable,
            project_protected=_skill_roots(context),
            limits=RunLimits(
                seconds=rules.seconds,
                memory_bytes=rules.memory_mib * limits.MIB,
                processes=rules.processes,
                output_bytes=rules.output_bytes,
                work_bytes=rules.work_mib * limits.MIB,
            ),
            packages=self._plan.environment,
            on_started=self._started,
        )

    def _started(self, protections: tuple[str, ...]) -> None:
        script = self._script
        self._note(
            ToolStarted(
                tool="skill_run",
                name=script.skill.name,
                script=script.path,
                digest=script.digest,
                sandbox=self._runner.name,
                args=tuple(self._redact(argument) for argument in script.arguments),
                grants=self._granted,
                protections=protections,
                process=self._context.recorder.inputs.process(),
                tree=script.tree,
                packages=self._plan.digest,
            )
        )

    def _finish(self, outcome: Outcome) -> RunResult:
        script = self._script
        kept = {digest_of(data): data for data in (outcome.stdout, outcome.stderr)}
        kept |= {digest_of(file.data): file.data for file in outcome.files}
        # The name of a file may be any bytes; those that are not UTF-8 are shown and recorded as escapes.
        artifacts = tuple(Artifact(storable_text(file.path), digest_of(file.data), file.size) for file in outcome.files)
        notes = (
            *self._plan.notes,
            *outcome.notes,
            *(f"not kept: {storable_text(what)}" for what in outcome.left_out),
            *(f"not changed in the project: {storable_text(what)}" for what in outcome.refused),
        )
        if outcome.ended == "output-limit" and self._context.version > 4:
            cut = _cut_note(self._context.profile.run.output_bytes)
            notes = notes if cut in notes else (*notes, cut)  # in a replay, the outcome has it from the record
        changes = tuple(replace(change, path=storable_text(change.path)) for change in outcome.changes)
        ended = ToolEnded(
            exit_code=outcome.exit_code,
            duration_ms=outcome.duration_ms,
            artifacts=tuple(artifact.as_dict() for artifact in artifacts),
            stdout=digest_of(outcome.stdout),
            stderr=digest_of(outcome.stderr),
            ended=outcome.ended,
            protections=outcome.protections,
            notes=notes,
            changes=tuple(change.as_dict() for change in changes),
        )
        failed: tuple[Event, ...] = ()
        if outcome.ended != "exit":
            detail = f"it was ended: {outcome.ended}"
            failed = (ToolFailed("skill_run", script.skill.name, script.path, outcome.ended, detail),)
        self._note(ended, *failed, artifacts=kept)
        return RunResult(
            skill=script.skill,
            script=script.path,
            exit_code=outcome.exit_code,
            stdout=from_utf8(outcome.stdout),
            stderr=from_utf8(outcome.stderr),
            duration_ms=outcome.duration_ms,
            artifacts=artifacts,
            ended=outcome.ended,
            protections=outcome.protections,
            notes=notes,
            changes=changes,
        )


def _cut_note(limit: int) -> str:
    """What a model reads where a script wrote more than it may."""
    return (
        f"the output was cut after {limit:,} bytes, and the script was ended; have it print less or write to a file, "
        "or the user can raise run.output_bytes in ~/.config/metier/config.toml"
    )


def _skill_roots(context: "SessionContext") -> tuple[str, ...]:
    """The folders of a project that are searched for skills: a script never writes there, even if it may write."""
    project = context.skills.settings.place.project.rstrip("/") + "/"
    roots = (root.path for root in context.skills.catalog.roots)
    return tuple(path.removeprefix(project) for path in roots if path.startswith(project))


class _Streams:
    """Turns pieces of output into frames, up to a bound; the script waits while one is written."""

    def __init__(self, note: Note, redact: Callable[[str], str]) -> None:
        self._note, self._redact = note, redact
        self._left = limits.STREAMED_BYTES
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def __call__(self, stream: Stream, data: bytes) -> None:
        self._write(stream, self._decoders[stream].decode(data[: max(self._left, 0)]))
        self._left -= len(data)

    def close(self) -> None:
        for stream, decoder in self._decoders.items():
            self._write(stream, decoder.decode(b"", final=True))

    def _write(self, stream: str, text: str) -> None:
        if text:
            kind = ToolStdout if stream == "stdout" else ToolStderr
            self._note(kind(self._redact(text)))
