"""What a session writes down: how it began, the catalog it saw, every step with what came of it, and its state.

A session that another process takes up goes on in the same record without a word, as long as nothing about it is
different: who drives it is not part of what happened. What belongs to one step is written in one go.
"""

import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from metier.catalog.build import Catalog
from metier.errors import MetierError, StateConflict
from metier.files.digests import digest_of
from metier.files.text import utf8
from metier.record import telemetry
from metier.record.events import Event, SessionCalled, SessionReturned, SessionStarted, SkillCatalogUpdated
from metier.record.events import SkillWarning as Warned
from metier.record.recorder import Recorder
from metier.record.store import StoreError
from metier.record.store.base import BaseStore

if TYPE_CHECKING:
    from metier.hosts.profiles import Profile
    from metier.skills import Skills

STATE: Final = "session"
"""The key of a session's document in its store."""
_BEGUN, _CATALOG = "begun", "catalog"
"""Beside the state, in the document only: how the record began, and the catalog that it last named."""
_TRIES: Final = 8
_NO_SPAN: Final = nullcontext()

State = Mapping[str, Any]


class Output(list[str]):
    """The text that an operation returns, in parts, and the code of a failure that is an answer."""

    code = ""


class Journal:
    """See the module. One operation at a time; what it does inside belongs to it."""

    def __init__(self, recorder: Recorder, *, keeps_record: bool, version: int = 0) -> None:
        """Without `keeps_record` the events live as long as the session, and nothing is kept to run it again.

        `version` is that of the document in the store from which the session was taken up.
        """
        self._recorder = recorder
        self.lock = threading.RLock()
        self.keeps_record = keeps_record
        self.version = version
        self._depth = 0
        self._seen: Catalog | None = None
        self._profile: Profile | None = None
        self._begun = self._snapshot = ""
        self._saved: State = {}
        self.note, self.flush, self.frames = recorder.note, recorder.flush, recorder.frames

    @property
    def sink(self) -> Any:
        return self._recorder.sink

    # --- beginning ---

    def begin(self, started: SessionStarted, skills: "Skills", notes: list[Event]) -> None:
        """Record how a session begins, unless the record already says just that and the session goes on in it."""
        self._profile = skills.profile
        document = started.state or {}
        state = {key: value for key, value in document.items() if key not in (_BEGUN, _CATALOG)}
        self._begun = digest_of(json.dumps(replace(started, state=None).data(), sort_keys=True).encode())
        if self.keeps_record and self.version and document.get(_BEGUN) == self._begun:
            self._snapshot = str(document.get(_CATALOG, ""))  # if there is another by now, the next step says so
            return
        self.note(replace(started, state=state or None))
        self.notice(skills)
        self.note(*notes)
        self.flush()

    def notice(self, skills: "Skills") -> None:
        """Record the catalog when it is new to this session, with every choice between equal names."""
        catalog = skills.catalog
        if catalog is self._seen:
            return
        self._seen = catalog
        data = skills.snapshot() if self.keeps_record else b""
        digest = digest_of(data) if data else ""
        if digest and digest == self._snapshot:
            return
        self._snapshot = digest
        losers: dict[str, list[str]] = {}
        winners: dict[str, str] = {}
        for entry in catalog.shadowed:
            losers.setdefault(entry.skill.name, []).append(entry.skill.path)
            winners[entry.skill.name] = entry.winner.path
        collisions = [{"name": name, "winner": winners[name], "losers": paths} for name, paths in losers.items()]
        roots = tuple(root.path for root in catalog.roots)
        updated = SkillCatalogUpdated(len(catalog.skills), roots, catalog.profile.name, tuple(collisions), digest)
        warnings = (
            Warned("collision", f"{winners[name]} counts, {', '.join(paths)} not", name)
            for name, paths in losers.items()
        )
        self.note(updated, *warnings, artifacts={digest: data} if digest else None)

    # --- steps ---

    @contextmanager
    def operation(
        self, operation: str, asked: Callable[[], Mapping[str, Any]], after: Callable[[], None]
    ) -> Generator[Output, None, None]:
        """One step that a host or a model asked for: recorded with what it was asked and what it returned.

        The caller appends the text it returns. `after` is called when it is over, to save what the session knows.
        """
        with self.lock, self._span(operation, asked):
            if self._depth:
                yield Output()
                return
            self.note(SessionCalled(operation, asked()))
            output = Output()
            self._depth += 1
            try:
                yield output
            except MetierError as error:
                self._return(operation, "error", str(error), type(error).__name__)
                raise
            else:
                self._return(operation, "error" if output.code else "ok", "".join(output), output.code or None)
            finally:
                self._depth -= 1
                after()
                self.flush()

    def _span(self, operation: str, asked: Callable[[], Mapping[str, Any]]) -> AbstractContextManager[None]:
        """Around a step, where telemetry was asked for; what happens inside of a step belongs to it."""
        if telemetry.active is None or self._profile is None or self._depth:
            return _NO_SPAN
        return telemetry.active.operation(self._recorder, self._profile, operation, asked())

    def _return(self, operation: str, status: Literal["ok", "error"], text: str, code: str | None = None) -> None:
        data = utf8(text)
        digest = digest_of(data)
        self.note(SessionReturned(operation, status, digest, code), artifacts={digest: data})

    # --- state ---

    def save(self, session_id: str, state: Callable[[], State], merge: Callable[[State], None]) -> None:
        """Keep the state where the events are, when it changed: another process may take the session up.

        It is written with the events that are held back, in one go. If another process saved in the meantime, `merge`
        takes in what that one knows, and both are saved.
        """
        store = self.sink
        if not self.keeps_record or not isinstance(store, BaseStore):
            return
        try:
            for _ in range(_TRIES):
                current = state()
                if current == self._saved:
                    return
                document = {**current, _BEGUN: self._begun, _CATALOG: self._snapshot}
                try:
                    if not self._recorder.holding:
                        self.version = store.save_state(session_id, STATE, document, self.version)
                    elif self.flush((STATE, document, self.version)):
                        self.version += 1
                    else:
                        return  # the store is in trouble, which is tolerated; the next step tries again
                    self._saved = current
                    return
                except StateConflict:
                    known = store.load_state(session_id, STATE)
                    self.version = known.version if known else 0
                    merge(known.value if known else {})
            raise StoreError("the session is saved by too many at once", reason="conflict", store=store.location)
        except StoreError as error:
            self._recorder.tolerate(error)
