"""Runs a record again: the same operations, with the files, answers, times and ids of then, must give the same frames.

Nothing of today is needed: the catalog, every SKILL.md and every resource come from the artifacts of the record. The
session that answers is the ordinary one, so a replay that gives the same bytes shows that nothing but its input decided
what it did. `drift` performs the same operations on today's files and shows what would be different now.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from metier import limits
from metier.errors import MetierError, ScriptRefused, StoreError
from metier.files.digests import digest_of
from metier.files.text import from_utf8
from metier.model import JsonObject
from metier.record.store import ENVELOPE, Draft, Frame, canonical
from metier.record.store.memory import MemoryStore
from metier.replay.doubles import RecordedFiles, RecordedRunner, RecordedSkills
from metier.replay.record import REDACTED, Difference, Record, redacted, verify
from metier.results import Request
from metier.sandbox import Job, OnOutput, Outcome
from metier.session.operations import OPERATIONS
from metier.session.policy import Policy, Rule
from metier.session.session import Session
from metier.skills import Skills


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What a replay gave."""

    session_id: str
    frames: Sequence[Frame]
    outputs: Sequence[str]
    differences: Sequence[Difference]

    @property
    def identical(self) -> bool:
        return not self.differences

    def as_dict(self) -> JsonObject:
        return {
            "session": self.session_id,
            "frames": len(self.frames),
            "identical": self.identical,
            "differences": [one.as_dict() for one in self.differences],
        }


def replay(record: Record) -> ReplayOutcome:
    """Run a record again and compare frame by frame. A record that does not verify is not run."""
    wrong = verify(record)
    session_id = str(record.frames[0]["session_id"]) if record.frames else ""
    if wrong:
        return ReplayOutcome(session_id, (), (), wrong)
    if redacted(record):
        return ReplayOutcome(session_id, record.frames, (), [REDACTED])
    record = _of_the_session(record)
    store = MemoryStore()
    try:
        again = _Replay(record, session_id, store)
        for life in _lives(record.frames):
            again.live(life)
    except (MetierError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # Frames that nobody but a session wrote do not come here; what came from elsewhere may say anything.
        index = len(store.read(session_id))
        note = f"the record cannot be run from frame {index} on: {type(error).__name__}: {error}"
        return ReplayOutcome(session_id, store.read(session_id), (), [Difference(index, "not-runnable", note)])
    frames = store.read(session_id)
    outputs = _outputs(Record(frames, store.get_artifact))
    return ReplayOutcome(session_id, frames, outputs, _compare(record.frames, frames))


def _of_the_session(record: Record) -> Record:
    """Without the frames of a chat beside it, which say what a person saw and cannot be run."""
    return replace(record, frames=[frame for frame in record.frames if frame["stream_kind"] == "session"])


def _lives(frames: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    """A session that another process went on with may have several beginnings in one stream."""
    starts = [index for index, frame in enumerate(frames) if frame["type"] == "session_started"]
    for start, end in itertools.pairwise([*starts, len(frames)]):
        yield frames[start:end]


class _Replay:
    """One run of a record into a store, with the ids and times of its frames."""

    def __init__(self, record: Record, session_id: str, store: MemoryStore) -> None:
        self._record, self._session_id, self._store = record, session_id, store
        recorded = (str(frame["id"]) for frame in record.frames)
        self._ids = itertools.chain(recorded, (f"extra-{n}" for n in itertools.count()))
        self._times = itertools.chain((int(frame["timestamp_ms"]) for frame in record.frames), itertools.repeat(0))
        self._catalogs = {
            str(frame["snapshot"]): record.artifact(frame["snapshot"])
            for frame in record.frames
            if frame["type"] == "skill_catalog_updated" and frame.get("snapshot")
        }

    def live(self, frames: Sequence[Frame]) -> None:
        """Run the operations of one life of the session."""
        named = [str(frame["snapshot"]) for frame in frames if _names_catalog(frame)]
        if not named:
            return
        record, started = self._record, frames[0]
        skills = RecordedSkills(self._catalogs[named[0]], record.artifact)
        files = RecordedFiles(record.artifact)
        runner = RecordedRunner(record.artifact, started["runs"])
        answers: list[str] = []
        self._bring_texts(started)
        session = Session(
            skills,
            id=self._session_id,
            policy=Policy.recorded(started["policy"], skills.profile),
            store=self._store,
            approve=_again(answers) if started["asks"] else None,
            tools=started["tools"],
            only=started.get("only"),
            has_read_tool=started["has_read_tool"],
            surface=started["surface"],
            state=started.get("state"),
            files=files,
            runner=runner,
            clock=lambda: next(self._times),
            ids=lambda: next(self._ids),
        )
        for called, inside in _operations(frames):
            if not any(frame["type"] == "session_returned" for frame in inside):
                self._take_over((called, *inside))
                continue
            for frame in inside:
                if _names_catalog(frame):
                    skills.show(self._catalogs[str(frame["snapshot"])])
            skills.frames = files.frames = runner.frames = inside
            runner.name = next((frame["sandbox"] for frame in inside if frame["type"] == "tool_started"), "recorded")
            answers[:] = [frame["answer"] for frame in inside if frame["type"] == "policy_asked"]
            perform(session, called["operation"], called["args"])

    def _bring_texts(self, started: Frame) -> None:
        """What an earlier life was given, if this record has it."""
        state: Mapping[str, list[dict[str, str]]] = started.get("state") or {}
        for loaded in state.get("loaded", ()):
            with contextlib.suppress(StoreError):
                self._store.put_artifact(self._record.artifact(loaded["rendered"]))

    def _take_over(self, frames: Sequence[Frame]) -> None:
        """The frames of an operation that never ended, because its process did: there is nothing to compare with."""
        for frame in frames:
            data = {key: value for key, value in frame.items() if key not in ENVELOPE}
            draft = Draft(next(self._ids), next(self._times), frame["type"], data)
            self._store.append(frame["session_id"], frame["stream_kind"], frame["stream_id"], [draft])


def _names_catalog(frame: Frame) -> bool:
    return frame["type"] == "skill_catalog_updated" and bool(frame.get("snapshot"))


def _again(answers: list[str]) -> Callable[[Request], str]:
    """Gives the recorded answers, in order; what was not asked then is refused."""
    return lambda _: answers.pop(0) if answers else "no"


def _operations(frames: Sequence[Frame]) -> Iterator[tuple[Frame, Sequence[Frame]]]:
    """Each operation with its frames, up to the next one."""
    starts = [index for index, frame in enumerate(frames) if frame["type"] == "session_called"]
    for start, end in itertools.pairwise([*starts, len(frames)]):
        yield frames[start], frames[start + 1 : end]


def perform(session: Session, operation: str, given: Mapping[str, object]) -> str:
    """Perform a recorded operation; the text it returned, or the text of its error."""
    kind = OPERATIONS.get(operation)
    if kind is None or not kind.recorded:
        return f"unknown operation {operation!r}"
    try:
        return session.perform(kind.from_dict(given)).text
    except MetierError as error:
        return str(error)


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
    returned = (frame for frame in record.frames if frame["type"] == "session_returned")
    return [from_utf8(record.artifact(frame["output"])) for frame in returned]


# --- today's files ---


def drift(record: Record, skills: Skills) -> list[Difference]:
    """The operations of a record that today's files would answer differently, each at the index of its frame.

    The recorded answers are given again. No script runs: a changed script is a difference, others do what they did.
    """
    wrong = verify(record) or ([REDACTED] if redacted(record) else [])
    if wrong:
        return wrong
    record = _of_the_session(record)
    started = record.frames[0]
    runner = _UnchangedScripts(record.artifact, started["runs"])
    answers: list[str] = []
    recorded = Policy.recorded(started["policy"], skills.profile)
    session = skills.session(
        policy=replace(recorded, on_remember=_forget),  # the user's file has no part in this
        approve=_again(answers) if started["asks"] else None,
        tools=started["tools"],
        only=started.get("only"),
        has_read_tool=started["has_read_tool"],
        state=started.get("state"),
        runner=runner,
    )
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


def _forget(rule: Rule) -> None:
    """Keep an answer only while the record is compared."""


class _UnchangedScripts(RecordedRunner):
    """Gives back what a script did then, as long as the script is unchanged."""

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        digests = [frame["digest"] for frame in self.frames if frame["type"] == "tool_started"]
        with open(os.path.join(job.skill_dir, job.script), "rb") as stream:
            if digest_of(stream.read(limits.SCRIPT_BYTES)) not in digests:
                raise ScriptRefused(job.script, "changed", "it has changed since, and is not run for a comparison")
        return super().run(job, on_output)
