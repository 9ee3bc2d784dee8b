"""One run of a script: the job for the runner, every piece of output in the record as it comes, and the result."""

import codecs
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from metier import limits
from metier.errors import SandboxUnavailable, ScriptRefused
from metier.files.digests import digest_of
from metier.files.text import from_utf8, storable_text
from metier.record.events import Event, ToolEnded, ToolFailed, ToolStarted, ToolStderr, ToolStdout
from metier.results import Artifact, RunResult
from metier.sandbox import Job, Outcome, RunLimits, Runner, Stream
from metier.sandbox.masked import MaskedRunner
from metier.session import dependencies, script_secrets
from metier.session.given import Given
from metier.session.hosts import HostAttempts

if TYPE_CHECKING:
    from metier.session.context import SessionContext
    from metier.session.scripts import Script


class Note(Protocol):
    """Puts events, and artifacts by digest, into the record and makes them safe."""

    def __call__(self, *events: Event, artifacts: "Mapping[str, bytes] | None" = None) -> None: ...


class Execution:
    """One run, with every piece of its output in the record as it comes."""

    def __init__(
        self, context: "SessionContext", script: "Script", given: Given, runner: Runner, files: "Mapping[str, bytes]"
    ) -> None:
        mask = script.stored.mask
        self._context, self._script, self._plan = context, script, given.packages
        self._granted = (*(one for one in given.grants if one != dependencies.GRANT), *given.packages.grants)
        self._runner: Runner = MaskedRunner(runner, mask) if mask else runner
        self._secrets = {name: script.stored.values[name] for name in script.secrets if name in script.stored.values}
        self._folder, self._files = given.folder, files
        self._hosts, self._attempts = given.hosts, HostAttempts(context, script.skill)
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
                folder=storable_text(self._folder.path),
                cwd=storable_text(self._folder.cwd),
                secrets=script.secrets,
                packages=self._plan.digest,
            )
            self._note(failed)
            raise
        streams.close()
        return self._finish(outcome)

    def _job(self, stdin: str | None) -> Job:
        context, script = self._context, self._script
        rules, place, folder = context.profile.run, context.skills.settings.place, self._folder
        return Job(
            skill_dir=script.files.folder or context.files.folder(script.skill),
            tree=script.files.tree,
            script=script.path,
            argv=script.arguments,
            stdin=stdin.encode() if stdin is not None else None,
            env={name: place.env[name] for name in rules.env if name in place.env} | self._secrets,
            network="run_network" in self._granted,
            hosts=self._hosts,
            private_hosts=rules.private_hosts,
            on_attempt=self._attempts,
            project=folder.path or None,
            project_writable=folder.writable,
            project_protected=_skill_roots(context, folder.path),
            cwd=folder.cwd or None,
            files=self._files,
            packages=self._plan.environment,
            limits=RunLimits(
                seconds=rules.seconds,
                memory_bytes=rules.memory_mib * limits.MIB,
                processes=rules.processes,
                output_bytes=rules.output_bytes,
                work_bytes=rules.work_mib * limits.MIB,
            ),
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
                args=tuple(self._redact(argument) for argument in script.shown_arguments),
                grants=self._granted,
                protections=protections,
                process=self._context.recorder.inputs.process(),
                tree=script.tree,
                secrets=script.secrets,
                packages=self._plan.digest,
                hosts=self._hosts,
                folder=storable_text(self._folder.path),
                cwd=storable_text(self._folder.cwd),
                files=tuple(
                    {"path": storable_text(name), "digest": digest_of(data), "size": len(data)}
                    for name, data in self._files.items()
                ),
            )
        )

    @property
    def _place(self) -> str:
        return "folder" if self._context.version > 5 else "project"

    def _finish(self, outcome: Outcome) -> RunResult:
        script = self._script
        kept = {digest_of(data): data for data in (outcome.stdout, outcome.stderr)}
        kept |= {digest_of(file.data): file.data for file in outcome.files}
        # The name of a file may be any bytes; those that are not UTF-8 are shown and recorded as escapes.
        artifacts = tuple(
            Artifact(storable_text(file.path), digest_of(file.data), file.size, file.data) for file in outcome.files
        )
        notes = (
            *outcome.notes,
            *(f"not kept: {storable_text(what)}" for what in outcome.left_out),
            *(f"not changed in the {self._place}: {storable_text(what)}" for what in outcome.refused),
            *([self._folder.note] if self._folder.note else ()),
            *([_WAY_TO_WRITE] if outcome.refused and self._folder.cwd and not self._folder.writable else ()),
        )
        notes += self._plan.notes
        notes += tuple(script_secrets.notes(self._context, script, self._secrets))
        network = self._attempts.notes(outcome.attempts_left_out)
        notes += tuple(note for note in network if note not in notes)  # in a replay, the outcome has them already
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
            attempts_left_out=outcome.attempts_left_out or None,
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


_WAY_TO_WRITE: Final = "a run with --write, or a rule of the user that allows run_project_write, brings changes back"


def _cut_note(limit: int) -> str:
    """What a model reads where a script wrote more than it may."""
    return (
        f"the output was cut after {limit:,} bytes, and the script was ended; have it print less or write to a file, "
        "or the user can raise run.output_bytes in ~/.config/metier/config.toml"
    )


def _skill_roots(context: "SessionContext", folder: str) -> tuple[str, ...]:
    """The folders in a folder that are searched for skills: a script never writes there, even if it may write."""
    project = folder.rstrip("/") + "/"
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
