"""A record is run again: the same requests, with the files, answers, times and ids of then, must give the same frames.

Nothing of today is needed: the catalog, every SKILL.md and every resource come from the artifacts of the record. The
session that answers is the ordinary one, so a replay that gives the same bytes shows that nothing but its input decided
what it did. `verify` looks at the record itself first, and names what is wrong. `drift` asks the same requests of
today's files and shows what would be different now.
"""

import base64
import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from metier import limits
from metier.catalog import snapshot
from metier.errors import MetierError
from metier.files.digests import digest_of
from metier.files.text import from_utf8
from metier.record.store import ENVELOPE, Draft, Frame, Store, StoreError, canonical
from metier.record.store.memory import MemoryStore
from metier.replay.doubles import RecordedFiles, RecordedRunner, RecordedSkills
from metier.sandbox import Job, OnOutput, ScriptRefused
from metier.sandbox import Outcome as RunOutcome
from metier.session.policy import Request
from metier.session.session import Session
from metier.skills import Skills

OPERATIONS: Final = ("load", "read", "search", "output", "invoke", "compact", "end_turn", "call", "run")


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is wrong with a record, or that came out differently: where, what kind, and the two sides."""

    index: int
    kind: str
    detail: str
    expected: str = ""
    found: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "kind": self.kind,
            "detail": self.detail,
            "expected": self.expected,
            "found": self.found,
        }


@dataclass(frozen=True, slots=True)
class Record:
    """The frames of one session and a way to its artifacts. `broken` is what could not be read of it."""

    frames: Sequence[Frame]
    artifact: Callable[[str], bytes]
    broken: Sequence[Difference] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay gave."""

    session_id: str
    frames: Sequence[Frame]
    outputs: Sequence[str]
    differences: Sequence[Difference]

    @property
    def identical(self) -> bool:
        return not self.differences

    def as_dict(self) -> dict[str, Any]:
        return {
            "session": self.session_id,
            "frames": len(self.frames),
            "identical": self.identical,
            "differences": [one.as_dict() for one in self.differences],
        }


# --- where a record comes from ---


def from_store(store: Store, session_id: str) -> Record:
    """The record of a session in a store."""
    return Record(store.read(session_id), store.get_artifact)


def from_file(path: str) -> Record:
    """The record in an exported file; lines that are no JSON, and artifacts that were changed, are remembered."""
    frames: list[Frame] = []
    artifacts: dict[str, bytes] = {}
    broken: list[Difference] = []
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            lines = stream.read().split("\n")
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", reason="unopenable", store=path) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
            digest, data = _artifact_line(value)
        except (ValueError, KeyError, TypeError) as error:
            broken.append(Difference(number, "broken-line", f"line {number} is no JSON of a record: {error}"))
            continue
        if digest and digest_of(data) != digest:
            broken.append(Difference(number, "changed-artifact", f"the artifact {digest} was changed", digest))
        elif digest:
            artifacts[digest] = data
        elif "seq" in value:
            frames.append(value)

    def artifact(digest: str) -> bytes:
        if digest not in artifacts:
            raise StoreError(f"artifact {digest} is not here", reason="missing-artifact", store=path)
        return artifacts[digest]

    return Record(frames, artifact, broken)


def _artifact_line(value: Any) -> tuple[str, bytes]:
    """Digest and content of an artifact's line; empty for any other line."""
    if not isinstance(value, dict):
        raise TypeError("not an object")
    line = cast("dict[str, Any]", value)
    if "artifact" not in line or "seq" in line:
        return "", b""
    return str(line["artifact"]), base64.b64decode(str(line["base64"]), validate=True)


# --- what is wrong with a record ---


def verify(record: Record) -> list[Difference]:
    """Everything that keeps a record from being one: gaps, mixed sessions, missing or changed artifacts."""
    found = list(record.broken)
    if not record.frames:
        return [*found, Difference(0, "empty", "there is no frame in the record")]
    for index, frame in enumerate(record.frames):
        missing = [key for key in ENVELOPE if key not in frame]
        if missing:
            found.append(Difference(index, "broken-frame", f"frame {index} has no {', '.join(missing)}"))
    sessions = {frame.get("session_id") for frame in record.frames}
    if len(sessions) > 1:
        names = ", ".join(sorted(map(str, sessions)))
        found.append(Difference(0, "mixed-sessions", f"frames of {len(sessions)} sessions: {names}"))
    expected: dict[str, int] = {}
    complete = not redacted(record)
    for index, frame in enumerate(record.frames):
        stream = str(frame.get("stream_id"))
        seq = frame.get("seq")
        wanted = expected.get(stream, 0)
        if seq != wanted:
            found.append(Difference(index, "gap", f"seq {wanted} is missing in {stream}", str(wanted), str(seq)))
        expected[stream] = seq + 1 if isinstance(seq, int) else wanted + 1
        if complete:
            found += _missing_artifacts(index, frame, record)
    return found


def redacted(record: Record) -> bool:
    """Whether policy kept arguments and artifacts out of the record, so that it can be checked but not run again."""
    started = (frame.get("policy") for frame in record.frames if frame.get("type") == "session_started")
    return any(isinstance(policy, dict) and cast("dict[str, Any]", policy).get("redact") for policy in started)


def _missing_artifacts(index: int, frame: Frame, record: Record) -> Iterator[Difference]:
    if frame.get("type") == "policy_asked":  # its digest may be that of a set of files, which is no artifact
        return
    named = [frame.get(key) for key in ("output", "hits", "snapshot", "digest", "stdout", "stderr")]
    written = cast("list[Any]", frame["artifacts"]) if isinstance(frame.get("artifacts"), list) else []
    named += (cast("dict[str, Any]", one).get("digest") for one in written if isinstance(one, dict))
    for digest in named:
        if isinstance(digest, str) and digest.startswith("sha256:"):
            try:
                record.artifact(digest)
            except StoreError as error:
                yield Difference(index, error.reason, str(error), digest)


# --- running again ---


def replay(record: Record) -> Outcome:
    """Run a record again and compare frame by frame. A record that does not verify is not run."""
    wrong = verify(record)
    session_id = str(record.frames[0]["session_id"]) if record.frames else ""
    if wrong:
        return Outcome(session_id, (), (), wrong)
    if redacted(record):
        return Outcome(session_id, record.frames, (), [_REDACTED])
    record = _of_the_session(record)
    store = MemoryStore()
    ids = itertools.chain((str(frame["id"]) for frame in record.frames), (f"extra-{n}" for n in itertools.count()))
    times = itertools.chain((int(frame["timestamp_ms"]) for frame in record.frames), itertools.repeat(0))
    try:
        for life in _lives(record.frames):
            _live(life, record, session_id, store, ids, times)
    except (MetierError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # Frames that nobody but a session wrote do not come here; what came from elsewhere may say anything.
        index = len(store.read(session_id))
        note = f"the record cannot be run from frame {index} on: {type(error).__name__}: {error}"
        return Outcome(session_id, store.read(session_id), (), [Difference(index, "not-runnable", note)])
    again = store.read(session_id)
    return Outcome(session_id, again, _outputs(Record(again, store.get_artifact)), _compare(record.frames, again))


_REDACTED: Final = Difference(
    0, "redacted", "arguments and artifacts were redacted, so the record can be checked but not run again"
)


def _of_the_session(record: Record) -> Record:
    """Without the frames of a chat beside it, which say what a person saw and cannot be run."""
    return replace(record, frames=[frame for frame in record.frames if frame["stream_kind"] == "session"])


def _lives(frames: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    """A session that was taken up again after a restart has several lives in one stream."""
    starts = [index for index, frame in enumerate(frames) if frame["type"] == "session_started"]
    for start, end in itertools.pairwise([*starts, len(frames)]):
        yield frames[start:end]


def _live(
    frames: Sequence[Frame],
    record: Record,
    session_id: str,
    store: MemoryStore,
    ids: Iterator[str],
    times: Iterator[int],
) -> None:
    snapshots = {
        frame["snapshot"]: snapshot.restore(record.artifact(frame["snapshot"]).decode())
        for frame in frames
        if frame["type"] == "skill_catalog_updated" and frame.get("snapshot")
    }
    if not snapshots:
        return
    started = frames[0]
    skills = RecordedSkills(next(iter(snapshots.values())), record.artifact)
    files = RecordedFiles(record.artifact)
    runner = RecordedRunner(record.artifact, started["runs"])
    answers: list[str] = []
    state: Mapping[str, Any] = started.get("state") or {}
    for seen in state.get("loaded", ()):
        with contextlib.suppress(StoreError):  # what an earlier life was given, if this record has it
            store.put_artifact(record.artifact(seen["rendered"]))
    session = Session(
        skills,
        id=session_id,
        policy=started["policy"],
        store=store,
        approve=_again(answers) if started["asks"] else None,
        tools=started["tools"],
        only=started.get("only"),
        has_read_tool=started["has_read_tool"],
        surface=started["surface"],
        state=started.get("state"),
        files=files,
        runner=runner,
        clock=lambda: next(times),
        ids=lambda: next(ids),
    )
    files.confirm = session.confirm
    for called, inside in _operations(frames):
        if not any(frame["type"] == "session_returned" for frame in inside):
            _take_over((called, *inside), store, ids, times)
            continue
        for frame in inside:
            if frame["type"] == "skill_catalog_updated":
                skills.catalog = snapshots[frame["snapshot"]]
        skills.frames = files.frames = runner.frames = inside
        runner.name = next((frame["sandbox"] for frame in inside if frame["type"] == "tool_started"), "recorded")
        answers[:] = [frame["answer"] for frame in inside if frame["type"] == "policy_asked"]
        perform(session, called["operation"], called["args"])


def _again(answers: list[str]) -> Callable[[Request], str]:
    """Gives the answers of then, in order; what was not asked then is refused."""
    return lambda _: answers.pop(0) if answers else "no"


def _take_over(frames: Sequence[Frame], store: MemoryStore, ids: Iterator[str], times: Iterator[int]) -> None:
    """The frames of an operation that never ended, because its process did: there is nothing to compare them with."""
    for frame in frames:
        data = {key: value for key, value in frame.items() if key not in ENVELOPE}
        draft = Draft(next(ids), next(times), frame["type"], data)
        store.append(frame["session_id"], frame["stream_kind"], frame["stream_id"], [draft])


def _operations(frames: Sequence[Frame]) -> Iterator[tuple[Frame, Sequence[Frame]]]:
    """Each request with the frames up to the next one."""
    starts = [index for index, frame in enumerate(frames) if frame["type"] == "session_called"]
    for start, end in itertools.pairwise([*starts, len(frames)]):
        yield frames[start], frames[start + 1 : end]


def perform(session: Session, operation: str, given: Mapping[str, Any]) -> str:
    """Ask a session for what a record says was asked; the text it returned, or the text of its error."""
    if operation not in OPERATIONS:
        return f"unknown operation {operation!r}"
    arguments = dict(given)
    positional = [arguments.pop(key) for key in _POSITIONAL.get(operation, ()) if key in arguments]
    try:
        result: Any = getattr(session, operation)(*positional, **arguments)
    except MetierError as error:
        return str(error)
    loaded = getattr(result, "loaded", None)
    return str(getattr(loaded or result, "text", getattr(result, "message", result or "")))


_POSITIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "load": ("name",),
    "read": ("name", "path"),
    "search": ("query",),
    "output": ("ref",),
    "invoke": ("message",),
    "compact": ("budget",),
    "call": ("tool", "arguments"),
    "run": ("name", "script", "arguments"),
}


def _compare(recorded: Sequence[Frame], again: Sequence[Frame]) -> list[Difference]:
    found: list[Difference] = []
    for index, (one, other) in enumerate(itertools.zip_longest(recorded, again)):
        expected, got = canonical(one) if one else "", canonical(other) if other else ""
        if expected != got:
            keys = sorted(
                key for key in {**(one or {}), **(other or {})} if (one or {}).get(key) != (other or {}).get(key)
            )
            kind = "changed-frame" if one and other else "missing-frame" if one else "extra-frame"
            found.append(Difference(index, kind, f"frame {index} differs in {', '.join(keys)}", expected, got))
    return found


def _outputs(record: Record) -> list[str]:
    return [
        from_utf8(record.artifact(frame["output"])) for frame in record.frames if frame["type"] == "session_returned"
    ]


def drift(record: Record, skills: Skills) -> list[Difference]:
    """The requests of a record that today's files would answer differently, each at the index of its frame.

    The answers of then are given again. No script runs: one that has changed is a difference, others do what they did.
    """
    wrong = verify(record) or ([_REDACTED] if redacted(record) else [])
    if wrong:
        return wrong
    record = _of_the_session(record)
    started = record.frames[0]
    runner = _UnchangedScripts(record.artifact, started["runs"])
    answers: list[str] = []
    session = skills.session(
        policy=started["policy"],
        approve=_again(answers) if started["asks"] else None,
        tools=started["tools"],
        only=started.get("only"),
        has_read_tool=started["has_read_tool"],
        state=started.get("state"),
        runner=runner,
    )
    session.policy.on_remember = None
    found: list[Difference] = []
    for called, inside in _operations(record.frames):
        returned = next((frame for frame in inside if frame["type"] == "session_returned"), None)
        if returned is None:
            continue
        runner.frames = inside
        answers[:] = [frame["answer"] for frame in inside if frame["type"] == "policy_asked"]
        before = from_utf8(record.artifact(returned["output"]))
        now = perform(session, called["operation"], called["args"])
        if now != before:
            asked = json.dumps(called["args"], ensure_ascii=False)
            found.append(Difference(called["seq"], "drift", f"{called['operation']} {asked}", before, now))
    return found


class _UnchangedScripts(RecordedRunner):
    """Gives back what a script did then, as long as it is the script of then."""

    def run(self, job: Job, on_output: OnOutput | None = None) -> RunOutcome:
        digests = [frame["digest"] for frame in self.frames if frame["type"] == "tool_started"]
        with open(os.path.join(job.skill_dir, job.script), "rb") as stream:
            if digest_of(stream.read(limits.SCRIPT_BYTES)) not in digests:
                raise ScriptRefused(job.script, "changed", "it has changed since, and is not run for a comparison")
        return super().run(job, on_output)


def looks_like_file(source: str) -> bool:
    """Whether a name on the command line is an exported file rather than a session's id."""
    return os.sep in source or source.endswith((".jsonl", ".json")) or os.path.isfile(source)
