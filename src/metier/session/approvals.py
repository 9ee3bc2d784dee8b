"""What a call would ask, for hosts that ask first and call afterwards.

A session asks while it answers a call; agent frameworks ask a person before they make it. `questions` says what a call
would ask now, without asking or recording anything, and `Answers` is the `approve` of a session whose host asks ahead.
An answer holds for exactly the request that was shown, and for one call; whatever nobody answered counts as a no.
"""

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

from metier import limits
from metier.errors import MetierError
from metier.files import beneath, urls
from metier.files.source import DiskFiles
from metier.model import SKILL_FILE, Skill
from metier.session import scripts, tools
from metier.session.policy import Request

if TYPE_CHECKING:
    from metier.session.session import Session


class Answers:
    """Answers that are known before the session asks: `skills.session(approve=Answers())`."""

    def __init__(self) -> None:
        self._given: dict[Request, bool] = {}
        self._lock = threading.Lock()

    @contextmanager
    def given(self, requests: Sequence[Request], answer: bool) -> Generator[None, None, None]:
        """While one call is made: the answer to these requests, each once."""
        with self._lock:
            self._given.update(dict.fromkeys(requests, answer))
        try:
            yield
        finally:
            with self._lock:
                for request in requests:
                    self._given.pop(request, None)

    def __call__(self, request: Request) -> bool | str:
        with self._lock:
            return self._given.pop(request, "unanswered")


def questions(session: "Session", tool: str, arguments: Mapping[str, Any] | None) -> tuple[Request, ...]:
    """What `session.call(tool, arguments)` would ask, in order, if each answer is yes; most calls ask nothing.

    Files of skills that come from elsewhere than the disk are not fetched for a question: there is none for them.
    """
    rehearsal = _Rehearsal(session)
    tools.call(cast("Session", rehearsal), tool, arguments, tools.problem(arguments))
    return tuple(rehearsal.asked)


class _Over(MetierError):
    """The rehearsal knows what it wanted to know."""


class _Rehearsal:
    """A session as far as the handlers of tools need one: it notes what a call would ask, and does nothing."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.profile, self.skills, self.visible = session.profile, session.skills, session.visible
        self.tools_enabled, self.has_read_tool, self.can_run = session.tools_enabled, session.has_read_tool, True
        self.asked: list[Request] = []

    def load(self, name: str | None = None, *, path: str | None = None, **_: Any) -> NoReturn:
        skill = self._at(path) if path else self._named(name or "")
        self._confirm(Request("skill_load", skill.name, skill.path))
        raise _Over

    def read(self, name: str, path: str | None = None, **_: Any) -> NoReturn:
        if path is None:
            name, path = urls.parse_url(name)
        skill = self._named(name)
        relative = beneath.check_relative(path, self.profile.resources.parents)
        if relative == SKILL_FILE:
            self._confirm(Request("skill_load", name, skill.path))
            if not self.profile.tools.load:
                raise _Over
        self._confirm(Request("skill_read", name, relative or skill.path))
        raise _Over

    def run(self, name: str, script: str, arguments: Sequence[str] = (), **_: Any) -> NoReturn:
        skill = self._named(name)
        if skill.path not in self._session.loaded_versions():
            raise _Over
        relative = beneath.check_relative(script, self.profile.resources.parents)
        content = DiskFiles().resource(skill, relative, limits.SCRIPT_BYTES)
        checked = scripts.check(skill, relative, arguments, self.profile, content.data)
        if self.profile.policy.enforce_hints:
            scripts.refuse_by_hint(checked, self._session.policy, self.profile.tools.run)
        self._confirm(checked.request)
        raise _Over

    def search(self, *_: Any, **__: Any) -> NoReturn:
        raise _Over

    output = search

    def _confirm(self, request: Request) -> None:
        verdict = self._session.policy.decide(request).verdict
        if verdict == "deny":
            raise _Over
        if verdict == "ask":
            self.asked.append(request)

    def _named(self, name: str) -> Skill:
        """The one skill that the model means, among those that it may see."""
        bearers = [skill for skill in self.visible() if skill.name == name]
        if len(bearers) != 1:
            raise _Over
        return bearers[0]

    def _at(self, path: str) -> Skill:
        skill = self.skills.catalog.find_path(path)
        only = self._session.only
        if not skill.visible or (only is not None and skill.name not in only):
            raise _Over
        return skill
