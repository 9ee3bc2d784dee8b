"""A record to replay: where it comes from, and what is wrong with it.

A record is the frames of one session and a way to their artifacts. `verify` reads all of it and names every gap, every
frame that is not one, and every artifact that is missing or was changed.
"""

import base64
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from metier.errors import StoreError
from metier.files.digests import digest_of, is_digest
from metier.files.json_text import parse_json
from metier.files.shapes import is_table
from metier.record.chain import breaks
from metier.record.events import VERSION, SessionStarted
from metier.record.state import SNAPSHOT, fold
from metier.record.store import ENVELOPE, Frame, Store
from metier.record.store.lines import read_lines
from metier.record.store.seal import SealCheck
from metier.record.store.values import encode
from metier.values.skill import JsonObject
from metier.values.value import Value


class Difference(Value):
    """Something that is wrong with a record, or that came out differently: where, what kind, and the two sides."""

    index: int
    kind: str
    detail: str
    expected: str = ""
    found: str = ""


_BROKEN_CHAIN: Final = "broken-chain"
_CHANGED_FILE: Final = "changed-file"
_CHANGED_SNAPSHOT: Final = "changed-snapshot"
RUNNABLE: Final = (_BROKEN_CHAIN, _CHANGED_FILE, _CHANGED_SNAPSHOT)
"""The kinds of differences that leave a record runnable: something was changed, but all frames are there."""

REDACTED: Final = Difference(
    0, "redacted", "arguments and artifacts were redacted, so the record can be checked but not run again"
)


class Record(Value):
    """The frames of one session and a way to its artifacts. `broken` is what could not be read of it."""

    frames: Sequence[Frame]
    artifact: Callable[[str], bytes]
    broken: Sequence[Difference] = ()
    snapshot: JsonObject | None = None
    """The stored snapshot of the session's state."""


# --- where a record comes from ---


def from_store(store: Store, session_id: str) -> Record:
    """The record of a session in a store."""
    frames = store.read(session_id)
    document = store.load_state(session_id, SNAPSHOT)
    snapshot = document.value if document is not None and is_table(document.value) else None
    return Record(frames, store.get_artifact, list(_cut_tails(store, frames)), snapshot)


def _cut_tails(store: Store, frames: Sequence[Frame]) -> Iterator[Difference]:
    """Streams that had more frames once."""
    last = {str(frame["stream_id"]): int(frame["seq"]) for frame in frames}
    for stream, seq in last.items():
        expected = store.last_seq(stream)
        if expected > seq:
            note = f"{stream} ends with seq {seq}, but had frames up to {expected}"
            yield Difference(len(frames), "cut", note, str(expected), str(seq))


def from_file(path: str) -> Record:
    """The record in an exported file. Lines that are not JSON and artifacts that were changed are remembered."""
    frames: list[Frame] = []
    artifacts: dict[str, bytes] = {}
    broken: list[Difference] = []
    snapshot: JsonObject | None = None
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            lines = list(read_lines(stream, path))
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", reason="unopenable", store=path) from error
    seal = SealCheck()
    for number, line in enumerate(lines, 1):
        if problem := seal.line(number, line):
            broken.append(Difference(problem.line, _CHANGED_FILE, str(problem)))
        if not line.strip():
            continue
        try:
            value = _object(line)
            digest, data = _artifact_line(value)
        except (ValueError, KeyError, TypeError) as error:
            broken.append(Difference(number, "broken-line", f"line {number} is not JSON of a record: {error}"))
            continue
        if digest and digest_of(data) != digest:
            broken.append(Difference(number, "changed-artifact", f"the artifact {digest} was changed", digest))
        elif digest:
            artifacts[digest] = data
        elif "seq" in value:
            frames.append(value)
        elif value.get("state") == SNAPSHOT and is_table(value.get("value")):
            snapshot = value["value"]
    if problem := seal.finish():
        broken.append(Difference(problem.line, _CHANGED_FILE, str(problem)))

    def artifact(digest: str) -> bytes:
        if digest not in artifacts:
            raise StoreError(f"artifact {digest} is not here", reason="missing-artifact", store=path)
        return artifacts[digest]

    return Record(frames, artifact, broken, snapshot)


def looks_like_file(source: str) -> bool:
    """Whether a name on the command line is an exported file rather than a session's id."""
    return os.sep in source or source.endswith((".jsonl", ".json")) or os.path.isfile(source)


def _object(line: str) -> JsonObject:
    value: object = parse_json(line)
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return cast("JsonObject", value)


def _artifact_line(line: JsonObject) -> tuple[str, bytes]:
    """Digest and content of an artifact's line; empty for any other line."""
    if "artifact" not in line or "seq" in line:
        return "", b""
    return str(line["artifact"]), base64.b64decode(str(line["base64"]), validate=True)


# --- what is wrong with a record ---


def verify(record: Record, *, frames_only: bool = False) -> list[Difference]:
    """Everything that is wrong with a record: gaps, broken chains, mixed sessions, missing or changed artifacts.

    A snapshot that differs from the events is wrong, too, although opening a session does not depend on it. Of a record
    of another version, or with `frames_only`, only the frames and their chain are checked.
    """
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
    complete = not frames_only and not unrunnable(record)
    for index, frame in enumerate(record.frames):
        stream = str(frame.get("stream_id"))
        seq = frame.get("seq")
        wanted = expected.get(stream, 0)
        if seq != wanted:
            found.append(Difference(index, "gap", f"seq {wanted} is missing in {stream}", str(wanted), str(seq)))
        expected[stream] = seq + 1 if isinstance(seq, int) else wanted + 1
        if complete:
            found += _missing_artifacts(index, frame, record)
    if not any(one.kind not in RUNNABLE for one in found):
        found += _broken_chains(record.frames)
        found += () if frames_only else _wrong_snapshot(record)
    return found


def _wrong_snapshot(record: Record) -> Iterator[Difference]:
    if record.snapshot is None or _other_versions(record):
        return
    seq = record.snapshot.get("seq")
    frames = [frame for frame in record.frames if frame["stream_kind"] == "session"]
    before = [frame for frame in frames if isinstance(seq, int) and frame["seq"] <= seq]
    try:
        expected = encode(fold(before).snapshot())
    except StoreError as error:
        yield Difference(len(before), "broken-frame", str(error))
        return
    found = encode(record.snapshot)
    if expected != found:
        note = "the stored snapshot is not what the events say"
        yield Difference(len(before), _CHANGED_SNAPSHOT, note, expected, found)


def _broken_chains(frames: Sequence[Frame]) -> Iterator[Difference]:
    """The frames of a session that do not fit those before them: changed, or put there later."""
    places = [index for index, frame in enumerate(frames) if frame["stream_kind"] == "session"]
    for index, expected, found in breaks([frames[place] for place in places]):
        place = places[index]
        note = f"frame {place} or one before it was changed after it was written"
        yield Difference(place, _BROKEN_CHAIN, note, expected, found)


def redacted(record: Record) -> bool:
    """Whether policy kept arguments and artifacts out of the record, so that it can be checked but not run again."""
    policies = (frame.get("policy") for frame in record.frames if frame.get("type") == "session_started")
    return any(isinstance(policy, Mapping) and cast("JsonObject", policy).get("redact") for policy in policies)


def unrunnable(record: Record) -> str:
    """Why a record can be checked but not run again, as in "it is redacted"; empty if it can."""
    if redacted(record):
        return "is redacted"
    return f"has version {', '.join(versions)}" if (versions := _other_versions(record)) else ""


def _other_versions(record: Record) -> list[str]:
    begun = (frame for frame in record.frames if frame.get("type") == SessionStarted.type)
    return sorted({str(frame.get("version")) for frame in begun} - {str(VERSION)})


def _missing_artifacts(index: int, frame: Frame, record: Record) -> Iterator[Difference]:
    if frame.get("type") == "policy_asked":  # its digest may be that of a set of files, which is no artifact
        return
    named: list[object] = [frame.get(key) for key in ("output", "hits", "snapshot", "digest", "stdout", "stderr")]
    if frame.get("type") in ("tool_started", "tool_failed"):  # elsewhere, a tree is that of a lock file
        named += (frame.get("tree"), *digests_in(frame.get("grants")))
    written = cast("list[object]", frame["artifacts"]) if isinstance(frame.get("artifacts"), list) else []
    named += (cast("JsonObject", one).get("digest") for one in written if isinstance(one, Mapping))
    for digest in named:
        if is_digest(digest):
            try:
                record.artifact(digest)
            except StoreError as error:
                yield Difference(index, error.reason, str(error), digest)


def digests_in(value: object) -> Iterator[str]:
    """All digests in a value of a frame, such as those of what a script was given."""
    if is_digest(value):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        is_table = isinstance(value, Mapping)
        for item in cast("Mapping[str, object]", value).values() if is_table else cast("Iterable[object]", value):
            yield from digests_in(item)
