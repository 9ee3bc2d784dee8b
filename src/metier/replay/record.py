"""A record to replay: where it comes from, and what is wrong with it.

A record is the frames of one session and a way to their artifacts. `verify` reads all of it and names every gap, every
frame that is not one, and every artifact that is missing or was changed.
"""

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from metier.errors import StoreError
from metier.files.digests import digest_of, is_digest
from metier.model import JsonObject
from metier.record.chain import breaks
from metier.record.store import ENVELOPE, Frame, Store


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is wrong with a record, or that came out differently: where, what kind, and the two sides."""

    index: int
    kind: str
    detail: str
    expected: str = ""
    found: str = ""

    def as_dict(self) -> JsonObject:
        return {
            "index": self.index,
            "kind": self.kind,
            "detail": self.detail,
            "expected": self.expected,
            "found": self.found,
        }


BROKEN_CHAIN: Final = "broken-chain"
"""The kind of a difference that leaves a record runnable: frames were changed, but all are there."""

REDACTED: Final = Difference(
    0, "redacted", "arguments and artifacts were redacted, so the record can be checked but not run again"
)


@dataclass(frozen=True, slots=True)
class Record:
    """The frames of one session and a way to its artifacts. `broken` is what could not be read of it."""

    frames: Sequence[Frame]
    artifact: Callable[[str], bytes]
    broken: Sequence[Difference] = ()


# --- where a record comes from ---


def from_store(store: Store, session_id: str) -> Record:
    """The record of a session in a store."""
    return Record(store.read(session_id), store.get_artifact)


def from_file(path: str) -> Record:
    """The record in an exported file. Lines that are not JSON and artifacts that were changed are remembered."""
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

    def artifact(digest: str) -> bytes:
        if digest not in artifacts:
            raise StoreError(f"artifact {digest} is not here", reason="missing-artifact", store=path)
        return artifacts[digest]

    return Record(frames, artifact, broken)


def looks_like_file(source: str) -> bool:
    """Whether a name on the command line is an exported file rather than a session's id."""
    return os.sep in source or source.endswith((".jsonl", ".json")) or os.path.isfile(source)


def _object(line: str) -> JsonObject:
    value: object = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return cast("JsonObject", value)


def _artifact_line(line: JsonObject) -> tuple[str, bytes]:
    """Digest and content of an artifact's line; empty for any other line."""
    if "artifact" not in line or "seq" in line:
        return "", b""
    return str(line["artifact"]), base64.b64decode(str(line["base64"]), validate=True)


# --- what is wrong with a record ---


def verify(record: Record) -> list[Difference]:
    """Everything that is wrong with a record: gaps, mixed sessions, missing or changed artifacts."""
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
    return found or [*_broken_chains(record.frames)]


def _broken_chains(frames: Sequence[Frame]) -> Iterator[Difference]:
    """The frames of a session that do not fit those before them: changed, or put there later."""
    places = [index for index, frame in enumerate(frames) if frame["stream_kind"] == "session"]
    for index, expected, found in breaks([frames[place] for place in places]):
        place = places[index]
        note = f"frame {place} or one before it was changed after it was written"
        yield Difference(place, BROKEN_CHAIN, note, expected, found)


def redacted(record: Record) -> bool:
    """Whether policy kept arguments and artifacts out of the record, so that it can be checked but not run again."""
    policies = (frame.get("policy") for frame in record.frames if frame.get("type") == "session_started")
    return any(isinstance(policy, Mapping) and cast("JsonObject", policy).get("redact") for policy in policies)


def _missing_artifacts(index: int, frame: Frame, record: Record) -> Iterator[Difference]:
    if frame.get("type") == "policy_asked":  # its digest may be that of a set of files, which is no artifact
        return
    named: list[object] = [frame.get(key) for key in ("output", "hits", "snapshot", "digest", "stdout", "stderr")]
    written = cast("list[object]", frame["artifacts"]) if isinstance(frame.get("artifacts"), list) else []
    named += (cast("JsonObject", one).get("digest") for one in written if isinstance(one, Mapping))
    for digest in named:
        if is_digest(digest):
            try:
                record.artifact(digest)
            except StoreError as error:
                yield Difference(index, error.reason, str(error), digest)
