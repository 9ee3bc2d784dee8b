"""One run of a script: the job for the runner, every piece of output in the record as it comes, and the result."""

import codecs
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from metier import limits
from metier.errors import MetierError, SandboxUnavailable, ScriptRefused
from metier.files.digests import digest_of
from metier.files.text import from_utf8, storable_text
from metier.record.events import Event, ToolEnded, ToolFailed, ToolNetwork, ToolStarted, ToolStderr, ToolStdout
from metier.running.grants import RunGrant, recorded
from metier.running.grants.network import notes_about
from metier.running.sandbox import HostAttempt, Job, Outcome, RunLimits, Runner, Stream, stop_event
from metier.running.sandbox.masked import MaskedRunner
from metier.running.scripts import Script, WantedRun
from metier.values.results import Artifact, RunResult

_CUT: Final = (
    "the output was cut after {:,} bytes, and the script was ended; have it print less or write to a file, "
    "or the user can raise run.output_bytes in ~/.config/metier/config.toml"
)
"""What a model reads where a script wrote more than it may."""


class Note(Protocol):
    """Puts events, and artifacts by digest, into the record and makes them safe."""

    def __call__(self, *events: Event, artifacts: "Mapping[str, bytes] | None" = None) -> None: ...


class Execution:
    """One run, with every piece of its output in the record as it comes."""

    def __init__(self, run: WantedRun, grants: tuple[RunGrant, ...], runner: Runner, note: Note, process: str) -> None:
        """`process` names this process of Metier."""
        mask = run.script.stored.mask
        self._run, self._script = run, run.script
        self._grants: tuple[RunGrant, ...] = grants
        self._runner: Runner = MaskedRunner(runner, mask) if mask else runner
        self._note, self._process, self._redact = note, process, run.policy.redact
        self._attempts: list[HostAttempt] = []

    def run(self, stdin: str | None) -> RunResult:
        streams = _Streams(self._note, self._redact)
        try:
            self._grants = tuple(grant.ready(self._run) for grant in self._grants)
            job = self._job(stdin)
            outcome = self._runner.run(job, streams)
            if outcome.ended == "killed" and job.stop is not None and job.stop.is_set():
                raise ScriptRefused(self._script.path, "stopped", "it was stopped")
        except (SandboxUnavailable, ScriptRefused) as error:
            self._note(refusal(self._script.skill.name, self._script.path, error, self._script, self._grants))
            raise
        streams.close()
        return self._finish(outcome)

    def _job(self, stdin: str | None) -> Job:
        script, rules, variables = self._script, self._run.settings.profile.run, self._run.settings.place.env
        job = Job(
            skill_dir=script.files.folder or script.skill.dir,
            tree=script.files.tree,
            script=script.path,
            argv=script.arguments,
            stdin=stdin.encode() if stdin is not None else None,
            env={name: variables[name] for name in rules.env if name in variables},
            on_attempt=self._attempted,
            limits=RunLimits(
                seconds=rules.seconds,
                memory_bytes=rules.memory_mib * limits.MIB,
                processes=rules.processes,
                output_bytes=rules.output_bytes,
                work_bytes=rules.work_mib * limits.MIB,
            ),
            on_started=self._started,
            stop=stop_event(),
        )
        for grant in self._grants:
            job = grant.into(job, self._run)
        return job

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
                grants=recorded(self._grants) or None,
                protections=protections,
                process=self._process,
                tree=script.tree,
            )
        )

    def _attempted(self, attempt: HostAttempt) -> None:
        attempt = replace(attempt, host=self._redact(storable_text(attempt.host)))
        self._attempts.append(attempt)
        self._note(ToolNetwork(attempt.host, attempt.port, attempt.allowed, attempt.reason))

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
            *(f"not changed in the folder: {storable_text(what)}" for what in outcome.refused),
            *(note for grant in self._grants for note in grant.notes(self._run, outcome)),
            *notes_about(script.skill, self._attempts, outcome.attempts_left_out),
            *([_CUT.format(self._run.settings.profile.run.output_bytes)] if outcome.ended == "output-limit" else ()),
        )
        notes = tuple(dict.fromkeys(notes))  # in a replay, the outcome has all of them already
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


def refusal(
    skill_name: str, path: str, error: MetierError, script: Script | None, grants: tuple[RunGrant, ...]
) -> ToolFailed:
    """The event for a script that did not start."""
    reason = getattr(error, "reason", "") or type(error).__name__
    if isinstance(error, SandboxUnavailable):
        reason = "sandbox"
    return ToolFailed(
        tool="skill_run",
        name=skill_name,
        script=path,
        reason=reason,
        detail=str(error),
        digest=script.digest if script is not None else "",
        tree=script.tree if script is not None else "",
        grants=recorded(grants) or None,
    )


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
