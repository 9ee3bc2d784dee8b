"""Runs a record again: the same operations, with the files, answers, times and ids of then, must give the same frames.

Nothing of today is needed: the catalog, every SKILL.md and every resource come from the artifacts of the record. The
session that answers is the ordinary one, so a replay that gives the same bytes shows that nothing but its input decided
what it did. `drift` performs the same operations on today's files and shows what would be different now.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from metier.errors import MetierError, ScriptRefused, StoreError
from metier.files.text import from_utf8
from metier.policy.decide import Rule
from metier.record.events import check_version
from metier.record.store import ENVELOPE, Draft, Frame, canonical
from metier.record.store.memory import MemoryStore
from metier.replay.doubles import RecordedPolicy, RecordedRunner, RecordedSkills, RecordedWorld
from metier.replay.record import REDACTED, RUNNABLE, Difference, Record, digests_in, redacted, verify
from metier.running.sandbox import Job, OnOutput, Outcome
from metier.session.operations import RECORDED
from metier.session.session import Session
from metier.skills import Skills
from metier.values.results import Request
from metier.values.value import Value, replace


class ReplayOutcome(Value):
    """What a replay gave. `not_compared` counts frames of operations that never ended, which cannot be run again."""

    json_keys = ("session=session_id", "frames=_count", "not_compared", "identical", "differences")

    session_id: str
    frames: Sequence[Frame]
    outputs: Sequence[str]
    differences: Sequence[Difference]
    not_compared: int = 0

    @property
    def identical(self) -> bool:
        return not self.differences

    @property
    def _count(self) -> int:
        return len(self.frames)


def replay(record: Record) -> ReplayOutcome:
    """Run a record again and compare frame by frame.

    A record that is incomplete is not run. One that was only changed is, to show what. Raises `StoreError` with the
    reason "version" for a record of another version.
    """
    wrong = verify(record)
    session_id = str(record.frames[0]["session_id"]) if record.frames else ""
    if any(one.kind not in RUNNABLE for one in wrong):
        return ReplayOutcome(session_id, (), (), wrong)
    _check_versions(record)
    if redacted(record):
        return ReplayOutcome(session_id, record.frames, (), [REDACTED], len(record.frames))
    record = _of_the_session(record)
    store = MemoryStore()
    again = _Replay(record, session_id, store)
    try:
        for step in steps(record.frames):
            again.perform(step)
    except (MetierError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # Frames that nobody but a session wrote do not come here; what came from elsewhere may say anything.
        index = len(store.read(session_id))
        note = f"the record cannot be run from frame {index} on: {type(error).__name__}: {error}"
        differences = [*wrong, Difference(index, "not-runnable", note)]
        return ReplayOutcome(session_id, store.read(session_id), (), differences)
    frames = _as_recorded(record.frames, store.read(session_id))
    outputs = _outputs(Record(frames, store.get_artifact))
    differences = [*wrong, *_compare(record.frames, frames)]
    return ReplayOutcome(session_id, frames, outputs, differences, again.not_compared)


def _check_versions(record: Record) -> None:
    for frame in record.frames:
        check_version(frame)


def _of_the_session(record: Record) -> Record:
    """Without the frames of a chat beside it, which say what a person saw and cannot be run."""
    return replace(record, frames=[frame for frame in record.frames if frame["stream_kind"] == "session"])


class Step(Struct):
    """A beginning or an operation with its frames, of which the first says which. A record may have other frames."""

    frames: list[Frame]

    @property
    def head(self) -> Frame:
        return self.frames[0]

    @property
    def runnable(self) -> bool:
        """Whether it can be run again: it ended, and somebody got an answer."""
        if self.head["type"] == "session_called":
            return any(f["type"] == "session_returned" and f["status"] != "lost" for f in self.frames)
        return self.head["type"] == "session_started"


def steps(frames: Sequence[Frame]) -> list[Step]:
    """The beginnings and operations of a record, in the order in which they were decided.

    Frames name the operation that caused them, because those of two processes may alternate.
    """
    found: list[Step] = []
    by_op: dict[str, Step] = {}
    for frame in frames:
        op = frame.get("op")
        if frame["type"] in ("session_started", "session_called"):
            found.append(Step([frame]))
            by_op[frame["id"]] = found[-1]
        elif op in by_op:
            by_op[op].frames.append(frame)
        else:
            found.append(Step([frame]))
    return found


class _Life(Struct):
    """A session of the replay, and what it gets from the record."""

    session: Session
    skills: RecordedSkills
    world: RecordedWorld
    policy: RecordedPolicy


class _Replay:
    """One run of a record into a store, with the ids and times of its frames."""

    def __init__(self, record: Record, session_id: str, store: MemoryStore) -> None:
        self._record, self._session_id, self._store = record, session_id, store
        self._lives: dict[str, _Life] = {}
        self._catalog = ""
        self.not_compared = 0

    def perform(self, step: Step) -> None:
        """Run a step again. What cannot be run is taken over."""
        if not step.runnable:
            self._take_over(step.frames)
            return
        named = [str(frame["snapshot"]) for frame in step.frames if _names_catalog(frame)]
        # The first catalog of a step was there when it began, as far as the step can tell.
        catalogs = named or ([self._catalog] if self._catalog else [])
        if not catalogs:
            return
        self._catalog = catalogs[-1]
        data = [self._record.artifact(digest) for digest in catalogs]
        if step.head["type"] == "session_started":
            self._begin(step, data)
        else:
            self._operate(step, data)

    def _begin(self, step: Step, catalogs: Sequence[bytes]) -> None:
        record, started = self._record, step.head
        skills = RecordedSkills(catalogs[0], record.artifact)
        world = RecordedWorld(record.artifact, can_run=bool(started["runs"]))
        world.take(step.frames)
        policy = RecordedPolicy(started["policy"], skills.profile)
        policy.warnings = [frame["detail"] for frame in step.frames if frame.get("kind") == "policy"]
        preload = [frame["name"] for frame in step.frames if frame.get("preloaded")]
        self._bring_texts(started)
        session = Session(
            skills,
            id=self._session_id,
            policy=policy,
            store=self._store,
            approve=_nobody if started["asks"] else None,
            tools=started["tools"],
            preload=preload,
            only=started.get("only"),
            has_read_tool=started["has_read_tool"],
            surface=started["surface"],
            cwd=started.get("cwd"),
            state=started.get("state"),
            world=world,
        )
        self._lives[started["id"]] = _Life(session, skills, world, policy)

    def _operate(self, step: Step, catalogs: Sequence[bytes]) -> None:
        called, inside = step.head, step.frames[1:]
        life = self._lives[called["life"]]
        life.skills.show(catalogs)
        life.skills.frames = inside
        life.world.take(step.frames)
        life.session.refresh()  # what is tried in vain, because another life wrote, would use up ids and times
        asked = next((index for index, frame in enumerate(inside) if frame["type"] == "policy_asked"), len(inside))
        for frame in inside[:asked]:
            if frame["type"] == "policy_changed":
                life.policy.take(frame["policy"])
        life.policy.frames = [frame for frame in inside[asked:] if frame["type"] == "policy_changed"]
        perform(life.session, called["operation"], called["args"])

    def _bring_texts(self, started: Frame) -> None:
        """What an earlier life was given, if this record has it."""
        state: Mapping[str, list[dict[str, str]]] = started.get("state") or {}
        for loaded in state.get("loaded", ()):
            with contextlib.suppress(StoreError):
                self._store.put_artifact(self._record.artifact(loaded["rendered"]))

    def _take_over(self, frames: Sequence[Frame]) -> None:
        """The frames of an operation that never ended, because its process did: there is nothing to compare with."""
        self.not_compared += len(frames)
        for frame in frames:
            data = {key: value for key, value in frame.items() if key not in ENVELOPE}
            draft = Draft(str(frame["id"]), int(frame["timestamp_ms"]), frame["type"], data)
            digests = list(digests_in([frame.get(key) for key in _NAMING]))
            artifacts = [self._record.artifact(digest) for digest in digests if frame["type"] != "policy_asked"]
            self._store.append(frame["session_id"], frame["stream_kind"], frame["stream_id"], [draft], artifacts)
            if _names_catalog(frame):
                self._catalog = str(frame["snapshot"])


_NAMING: Final = ("output", "digest", "tree", "grants")
"""The fields of an operation that never ended which name artifacts."""


def _names_catalog(frame: Frame) -> bool:
    return frame["type"] == "skill_catalog_updated" and bool(frame.get("snapshot"))


def _nobody(_: Request) -> str:
    """The `approve` of a replay, which takes its answers from the record and asks nobody."""
    return "no"


def _again(answers: list[str]) -> Callable[[Request], str]:
    """Gives the recorded answers, in order; what was not asked then is refused."""
    return lambda _: answers.pop(0) if answers else "no"


def perform(session: Session, operation: str, given: Mapping[str, object]) -> str:
    """Perform a recorded operation; the text it returned, or the text of its error."""
    kind = RECORDED.get(operation)
    if kind is None:
        return f"unknown operation {operation!r}"
    try:
        return session.perform(kind.from_dict(given)).text
    except MetierError as error:
        return str(error)


def _as_recorded(recorded: Sequence[Frame], again: Sequence[Frame]) -> list[Frame]:
    """The frames of a replay in the order of the record.

    A replay runs one operation after the other. Where those of two processes alternated, a frame gets the place that
    the record says, and with it the hash: `verify` has compared every hash with the text before it.
    """
    places = {frame["id"]: frame for frame in recorded}
    placed = [
        {**frame, **{key: places[frame["id"]][key] for key in ("seq", "chain")}} if frame["id"] in places else frame
        for frame in again
    ]
    return sorted(placed, key=lambda frame: int(frame["seq"]))


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

    The recorded answers are given again. No script runs: if any file of its skill has changed, that is a difference;
    otherwise, it does what it did. Raises `StoreError` with the reason "version" for a record of another version.
    """
    wrong = verify(record) or ([REDACTED] if redacted(record) else [])
    if wrong:
        return wrong
    _check_versions(record)
    record = _of_the_session(record)
    started = record.frames[0]
    runner = _UnchangedScripts(record.artifact)
    answers: list[str] = []
    policy = RecordedPolicy(started["policy"], skills.profile)
    policy.on_remember = _forget  # the user's file has no part in this
    session = skills.session(
        policy=policy,
        approve=_again(answers) if started["asks"] else None,
        tools=started["tools"],
        only=started.get("only"),
        has_read_tool=started["has_read_tool"],
        state=started.get("state"),
        runner=runner,
    )
    found: list[Difference] = []
    for step in steps(record.frames):
        if step.head["type"] != "session_called" or not step.runnable:
            continue
        called, inside = step.head, step.frames[1:]
        returned = next(frame for frame in inside if frame["type"] == "session_returned")
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
    """Gives back what a script did then, as long as the script and all files beside it are unchanged."""

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        started = (frame for frame in self.frames if frame["type"] == "tool_started")
        if not any(_is_unchanged(frame, job) for frame in started):
            raise ScriptRefused(job.script, "changed", "it has changed since, and is not run for a comparison")
        return super().run(job, on_output)


def _is_unchanged(started: Frame, job: Job) -> bool:
    """Whether a job has the files of then."""
    return job.tree is not None and started["tree"] == job.tree.digest
