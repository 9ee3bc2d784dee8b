"""How a session writes its record: the beginning, the catalogs it saw, and every operation with its result.

A `Recorder` puts the frames of an operation between `session_called` and `session_returned`. If another process wrote
first, the operation is decided anew on what is known then. If the store fails, the operation did not happen. Once
something outside was done, such as starting a script, its remaining frames only follow.
"""

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from metier.catalog import snapshot
from metier.catalog.build import Catalog
from metier.errors import MetierError, StoreError
from metier.files.digests import artifact_of, digest_of
from metier.record import catalog_events
from metier.record.events import (
    Event,
    PolicyChanged,
    SessionCalled,
    SessionReturned,
    SessionStarted,
    ToolFailed,
)
from metier.record.offers import OfferWriter, SkillOffer
from metier.record.state import OpenedState, Running, SessionState, options_of, read_state
from metier.record.store import Frame, Store
from metier.record.store.memory import MemoryStore
from metier.record.writer import EventWatcher, EventWriter, NotWritten, Overtaken, RecordWorld
from metier.values.skill import JsonObject

if TYPE_CHECKING:
    from metier.hosts.schema import Profile

_TRIES: Final = 100
"""How often an operation is decided anew because other processes were first."""
_NO_SPAN: Final = nullcontext(None)

R = TypeVar("R")


@dataclass(slots=True)
class Returned:
    """What an operation returns: its text, and the code of a failure that is an answer."""

    text: str = ""
    code: str = ""


class NamedCatalog(NamedTuple):
    """A catalog by the digest that the record has, and itself if it is at hand."""

    digest: str
    catalog: Catalog | None


class Recorder:
    """See the module. `lock` is held while an operation runs."""

    def __init__(
        self,
        store: Store | None,
        session_id: str,
        world: RecordWorld,
        profile: "Profile",
        *,
        required: bool = True,
        keeps_artifacts: bool = True,
        opened: OpenedState | None = None,
    ) -> None:
        """Without a `store` the events live as long as the session, and nothing is kept to run it again.

        `opened` is the state of the session in the store, if that is known already.
        """
        self._writer = EventWriter(
            store or MemoryStore(),
            session_id,
            world,
            shared=store is not None,
            required=required,
            keeps_artifacts=keeps_artifacts,
        )
        self.store = self._writer.store
        self._world = world
        self.lock = threading.RLock()
        self.keeps_record = store is not None
        self._profile = profile
        self._life = ""
        self._committed = False
        self._catalog: tuple[Catalog, str] | None = None
        self._silent = False
        self.exclusive = False
        """Whether the host sees to it that no other process works in the session for now."""
        self._offers = OfferWriter(store, session_id, keeps_artifacts=keeps_artifacts) if store is not None else None
        self.flush, self.frames = self._writer.flush, self._writer.frames
        if store is not None:
            try:
                self._writer.open(opened or read_state(store, session_id))
            except StoreError as error:
                self._writer.tolerate(error)

    @property
    def state(self) -> SessionState:
        """What the session knows now."""
        return self._writer.state

    @property
    def noted_ms(self) -> int:
        """The time of the event that was noted last. A replay notes the same events at the same times."""
        return self._writer.noted_ms

    def note(self, *events: Event, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Hold events of an operation back until they are written together; artifacts by their digests."""
        if not self._silent:
            self._writer.note(*events, artifacts=artifacts)

    def offer(self, offer: SkillOffer) -> None:
        """Record what a model was shown, where a record is kept. This waits for no operation."""
        if self._offers is not None:
            self._offers.write(offer, self._world.time(self.state.time_ms))

    def silent(self) -> "Recorder":
        """The same for what only shows something: it knows the state, and records nothing."""
        view = copy.copy(self)
        view._silent = True  # noqa: SLF001 - it is the same class
        return view

    def refresh(self) -> None:
        """Learn what other processes did in the session, unless an operation is at it: that one learns it anyway."""
        if not self.exclusive and self.lock.acquire(blocking=False):
            try:
                self._writer.catch_up()
            finally:
                self.lock.release()

    def _decide(self, work: Callable[[], R], *, trusting: bool = False) -> R:
        """Do something whose events must follow on the state it was decided on; again where others were first.

        `trusting`: the first time, do not look for what others wrote if none did lately. The store refuses the events
        if that is wrong, so this is only for what writes some.
        """
        for attempt in range(_TRIES):
            if not (trusting and attempt == 0 and self._writer.is_alone):
                self._writer.catch_up()
            try:
                return work()
            except Overtaken:
                self._writer.forget()
            except NotWritten as failed:
                raise failed.error from failed.error.__cause__
            finally:
                self._committed, self._writer.op = False, ""
        message = "too many processes write to the session at once"
        raise StoreError(message, reason="conflict", store=self.store.location)

    # --- beginning ---

    def begin(
        self,
        started: SessionStarted,
        notes: Sequence[Event],
        notice: Callable[[], None],
        preload: Callable[[], R] | None = None,
    ) -> R | None:
        """Record how a session begins, unless it goes on in a record that says just that already.

        `notice` is called to record the catalog, and `preload` to record what the session begins with.
        """

        def work() -> R | None:
            life = self._same_life(started) if preload is None else None
            loaded: R | None = None
            if life is not None:
                self._life = life
            else:
                self.note(started)
                self._life = self._writer.op
                notice()
                self.note(*notes)
                loaded = preload() if preload is not None else None
            self.flush(settled=False)
            return loaded

        with self.lock:
            return self._decide(work, trusting=True)  # what the store has was just read

    def _same_life(self, started: SessionStarted) -> str | None:
        """The beginning in the record with the same options and policy, if there is one to go on with."""
        if not self.keeps_record or started.state:
            return None
        options = options_of(started.data())
        lives = (life for life in reversed(self.state.lives) if life.options == options)
        return next((life.id for life in lives if life.policy == started.policy), None)

    def recover(self, longest_ms: int) -> None:
        """Write the end of operations whose process ended first. No script runs longer than `longest_ms`."""

        def work() -> None:
            now = self._world.time(self.state.time_ms)
            for op, running in self.state.running.items():
                ended = self._world.has_ended(running.process)
                if ended or (ended is None and now - running.since_ms > longest_ms):
                    self._lose(op, running)
            self.flush(settled=False)

        if self.keeps_record and self.state.running:
            with self.lock:
                self._decide(work)

    def _lose(self, op: str, running: Running) -> None:
        """Record that an operation ended without an answer."""
        self._writer.op = op
        if running.process:
            detail = "the process that ran it ended first"
            self.note(ToolFailed("skill_run", running.name, running.script, "lost", detail))
        self._return(running.operation, "lost", "", "Lost")

    # --- what is in force ---

    def notice(self, catalog: Catalog, dump: Callable[[], bytes]) -> None:
        """Record the catalog when it is not the one that the record named last. `dump` gives all of it as data."""
        if self._silent:
            return
        known, digest = self._catalog or (None, "")
        if known is not catalog:
            digest = digest_of(dump()) if self.keeps_record else ""
            self._catalog = (catalog, digest)
        elif not self.keeps_record:
            return
        if digest and digest == self.state.catalog:
            return
        events = catalog_events.of(catalog, digest)
        self.note(*events, artifacts={digest: dump()} if digest else None)

    def has_noticed(self, catalog: Catalog) -> bool:
        """Whether this catalog was recorded last, or found to be the recorded one."""
        return self._catalog is not None and self._catalog[0] is catalog

    @property
    def named_catalog(self) -> NamedCatalog:
        """The catalog that the record named last."""
        digest = self.state.catalog
        return NamedCatalog(digest, self._catalog[0] if self._catalog and self._catalog[1] == digest else None)

    def restored(self, named: NamedCatalog) -> Catalog | None:
        """A catalog that the record named, as it was then."""
        if named.catalog is not None or not named.digest:
            return named.catalog
        try:
            return snapshot.restore(self.store.get_artifact(named.digest).decode())
        except (StoreError, ValueError):
            return None

    def notice_policy(self, policy: JsonObject) -> None:
        """Record the policy when it is not the one that the record has for this process."""
        life = self.state.life(self._life)
        if life is None or life.policy != policy:
            self.note(PolicyChanged(policy))

    # --- operations ---

    def span(
        self, name: str, arguments: Callable[[], Mapping[str, object]]
    ) -> AbstractContextManager[EventWatcher | None]:
        """The span around an operation and its questions, where telemetry is on."""
        if self._world.telemetry is None:
            return _NO_SPAN
        return self._world.telemetry.operation(self._writer, self._profile, name, arguments())

    def operation(
        self,
        name: str,
        arguments: Callable[[], Mapping[str, object]],
        work: Callable[[Returned], R],
        span: EventWatcher | None = None,
        watch: Callable[[Frame], None] | None = None,
    ) -> R:
        """Do one operation, recorded with its arguments and what it returned. The caller holds the lock.

        `work` fills in what is returned. It may be called again; see the module. `span` is shown each event that is
        written meanwhile, and `watch` the frames of this operation.
        """

        def watched(event: Event, frame: Frame, artifacts: Mapping[str, bytes]) -> None:
            if span is not None:
                span(event, frame, artifacts)
            if watch is not None and frame.get("op") == self._writer.op:
                watch(frame)

        def attempt() -> R:
            self.note(SessionCalled(name, arguments(), self._life))
            op = self._writer.op
            returned = Returned()
            try:
                result = work(returned)
            except MetierError as error:
                self._return(name, "error", str(error), type(error).__name__)
                self.flush(settled=self._committed)
                raise
            except (Overtaken, NotWritten):
                raise
            except BaseException:  # an interrupt or a bug: a script that was started still gets its end
                self._break_off(op)
                raise
            self._return(name, "error" if returned.code else "ok", returned.text, returned.code)
            self.flush(settled=self._committed)
            return result

        self._writer.watch = watched if span is not None or watch is not None else None
        try:
            return self._decide(attempt, trusting=True)
        finally:
            self._writer.watch = None

    def commit(self) -> None:
        """Write what the operation has decided. From here on it is not decided anew, and its frames only follow."""
        if not self._silent:
            self.flush(settled=self._committed)
            self._committed = True

    def _break_off(self, op: str) -> None:
        """An operation ended by something that is no answer, such as an interrupt."""
        if not self._committed:
            self._writer.forget()
        elif running := self.state.running.get(op):
            self._lose(op, running)
            self.flush()

    def _return(self, name: str, status: Literal["ok", "error", "lost"], text: str, code: str) -> None:
        digest, data = artifact_of(text)
        self.note(SessionReturned(name, status, digest, code or None), artifacts={digest: data})
