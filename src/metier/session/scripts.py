"""A script of a skill is run: policy first, then the sandbox, and every step in the trail.

Only files in the folders that the profile names are scripts. Whoever is asked is asked about this content, by its
digest, so that a changed script asks again. Nothing is granted beyond the sandbox unless an allow rule names the grant.
"""

import codecs
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from metier import limits
from metier.errors import PolicyDenied, ResourceError
from metier.files.digests import digest_of
from metier.files.text import from_utf8
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place
from metier.model import Artifact, RunResult, Skill
from metier.record.events import Event, ToolEnded, ToolFailed, ToolStarted, ToolStderr, ToolStdout
from metier.sandbox import Job, Outcome, RunLimits, Runner, SandboxUnavailable, ScriptRefused, Stream, choose
from metier.session.policy import GRANTS, Policy, Request

Note = Callable[..., None]
"""Puts events (and artifacts by digest) into the trail and makes them safe."""


@functools.cache
def default_runner() -> Runner | None:
    """The best sandbox of this machine, looked for once; `None` where there is none."""
    try:
        return choose()
    except SandboxUnavailable:
        return None


@dataclass(slots=True)
class Script:
    """One script that is about to run: checked, and known by its content."""

    skill: Skill
    path: str
    digest: str
    text: str
    arguments: tuple[str, ...] = ()
    grants: tuple[str, ...] = field(default=())

    @property
    def command(self) -> str:
        return " ".join((self.path, *self.arguments))

    @property
    def request(self) -> Request:
        return Request("skill_run", self.skill.name, self.path, self.command, self.digest, self.text)


def check(skill: Skill, path: str, arguments: Sequence[str], profile: Profile, content: bytes) -> Script:
    """The script at a checked path, or the reason why it is none."""
    folders = profile.run.folders
    if path.split("/", 1)[0] not in folders or "/" not in path:
        where = " or ".join(f"{folder}/" for folder in folders)
        raise ResourceError(f"{path} is not a script: only files in {where} run", path=path, reason="not-a-script")
    return Script(skill, path, digest_of(content), from_utf8(content), tuple(arguments))


def grants(script: Script, policy: Policy) -> tuple[str, ...]:
    """What an allow rule gives this script besides its sandbox."""
    requests = ((grant, Request(grant, script.skill.name, script.path, script.command)) for grant in GRANTS)
    return tuple(grant for grant, request in requests if policy.decide(request).verdict == "allow")


def runner_for(script: Script, given: Runner | None) -> Runner:
    """The sandbox to use. Running without one needs a rule that says so, and is said in the trail."""
    runner = given or default_runner()
    if runner is not None:
        return runner
    if "run_unsandboxed" in script.grants:
        return choose(["none"])
    return choose()  # raises, with what was tried and the line that installs a sandbox


def execute(
    script: Script,
    runner: Runner,
    profile: Profile,
    place: Place,
    stdin: str | None,
    note: Note,
    redact: Callable[[str], str],
) -> RunResult:
    """Run it and put every piece of its output into the trail as it comes."""
    streams = _Streams(note, redact)
    job = _job(script, profile, place, stdin, lambda seen: note(_started(script, runner, redact, seen)))
    try:
        outcome = runner.run(job, streams)
    except (SandboxUnavailable, ScriptRefused) as error:
        reason = "sandbox" if isinstance(error, SandboxUnavailable) else error.reason
        note(ToolFailed("skill_run", script.skill.name, script.path, reason, str(error)))
        raise
    streams.close()
    return _finish(script, outcome, note)


def _started(script: Script, runner: Runner, redact: Callable[[str], str], protections: tuple[str, ...]) -> ToolStarted:
    shown = tuple(redact(argument) for argument in script.arguments)
    return ToolStarted(
        "skill_run", script.skill.name, script.path, script.digest, runner.name, shown, script.grants, protections
    )


def _job(
    script: Script,
    profile: Profile,
    place: Place,
    stdin: str | None,
    on_started: Callable[[tuple[str, ...]], None],
) -> Job:
    rules = profile.run
    writable = "run_project_write" in script.grants
    return Job(
        os.path.realpath(script.skill.dir),
        script.path,
        script.arguments,
        stdin.encode() if stdin is not None else None,
        {name: place.env[name] for name in rules.env if name in place.env},
        "run_network" in script.grants,
        place.project if writable or "run_project" in script.grants else None,
        writable,
        (".git/hooks", ".git/config", ".metier", ".agents"),
        RunLimits(
            seconds=rules.seconds,
            memory_bytes=rules.memory_mib * limits.MIB,
            processes=rules.processes,
            output_bytes=rules.output_bytes,
            work_bytes=rules.work_mib * limits.MIB,
        ),
        on_started,
    )


class _Streams:
    """Turns pieces of output into frames, up to a bound; the script waits while one is written."""

    def __init__(self, note: Note, redact: Callable[[str], str]) -> None:
        self._note, self._redact = note, redact
        self._left = limits.STREAMED_BYTES
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def __call__(self, stream: Stream, data: bytes) -> None:
        self._say(stream, self._decoders[stream].decode(data[: max(self._left, 0)]))
        self._left -= len(data)

    def close(self) -> None:
        for stream, decoder in self._decoders.items():
            self._say(stream, decoder.decode(b"", final=True))

    def _say(self, stream: str, text: str) -> None:
        if text:
            kind = ToolStdout if stream == "stdout" else ToolStderr
            self._note(kind(self._redact(text)))


def _finish(script: Script, outcome: Outcome, note: Note) -> RunResult:
    kept: dict[str, bytes] = {}
    for data in (outcome.stdout, outcome.stderr, *(file.data for file in outcome.files)):
        kept[digest_of(data)] = data
    artifacts = tuple(Artifact(file.path, digest_of(file.data), file.size) for file in outcome.files)
    notes = (*outcome.notes, *(f"not kept: {what}" for what in outcome.left_out))
    listed: tuple[dict[str, Any], ...] = tuple(artifact.as_dict() for artifact in artifacts)
    ended = ToolEnded(
        outcome.exit_code, outcome.duration_ms, listed, digest_of(outcome.stdout), digest_of(outcome.stderr),
        outcome.ended, outcome.protections, notes,
    )  # fmt: skip
    failed: tuple[Event, ...] = ()
    if outcome.ended != "exit":
        detail = f"it was ended: {outcome.ended}"
        failed = (ToolFailed("skill_run", script.skill.name, script.path, outcome.ended, detail),)
    note(ended, *failed, artifacts=kept)
    return RunResult(
        script.skill, script.path, outcome.exit_code, from_utf8(outcome.stdout),
        from_utf8(outcome.stderr), outcome.duration_ms, artifacts, outcome.ended,
        outcome.protections, notes,
    )  # fmt: skip


def refuse_by_hint(script: Script, policy: Policy, tool: str) -> None:
    """A skill that lists its tools runs scripts only if running is among them."""
    if not policy.hint_allows(script.skill, tool, script.command):
        raise PolicyDenied("skill_run", script.skill.name, "its own allowed-tools does not list it")
