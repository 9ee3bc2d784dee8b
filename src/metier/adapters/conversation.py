"""A session in the hands of an agent framework: what each request to a model shows of the skills, and who is asked.

The catalog is shown for the turn at hand. A loaded skill is in every request exactly once: in the messages, or, where
the framework dropped it from them, in the system prompt. Nothing here knows a framework.
"""

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from metier import limits
from metier.app import SESSIONS, App
from metier.errors import ConfigError, MetierError
from metier.files.digests import digest_of
from metier.files.text import one_line, utf8
from metier.hosts.profiles import Profile
from metier.model import Tool, ToolResult
from metier.session import activation
from metier.session.approvals import Answers, questions
from metier.session.policy import Request
from metier.session.session import Session
from metier.skills import Skills


class Conversation:
    """See the module. `budget` is for the catalog, `restore` for loaded skills that are put back, in characters."""

    def __init__(
        self, session: Session, *, budget: int | None = None, restore: int = limits.COMPACTION_CHARACTERS
    ) -> None:
        self.session = session
        self._budget, self._restore = budget, restore
        self._texts: dict[str, str] = {}
        """What was put back, by ref: it is asked of the session, and so recorded, once."""
        self._asked: dict[str, tuple[Request, ...]] = {}
        """Calls that wait for an answer, and what was shown to whoever gives it."""
        self._waiting: dict[str, tuple[str, Mapping[str, Any]]] = {}
        """The same calls by the framework's id."""

    @classmethod
    def of(
        cls,
        given: Session | Skills,
        surface: str,
        *,
        asks: bool,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Any,
    ) -> "Conversation":
        """For a session as it is, or for a new one on these skills, with the arguments of `Skills.session`.

        `asks` says that the framework can ask a person; a session of your own says so by `approve=Answers()`.
        """
        if isinstance(given, Session):
            if options:
                raise _misplaced(options)
            return cls(given, budget=budget, restore=restore)
        if asks:
            options.setdefault("approve", Answers())
        return cls(given.session(**{"surface": surface, **options}), budget=budget, restore=restore)

    # --- what a model is shown ---

    def tools(self) -> list[Tool]:
        return self.session.tools()

    def names(self) -> list[str]:
        """All tools that are ours, whether or not they are offered now."""
        return tool_names(self.session.profile)

    def system(self, base: str, messages: Sequence[str], message: str | None) -> str:
        """The whole system prompt of a request with these messages; `message` is the user's latest."""
        text = self.prompt(base, message)
        return "\n\n".join(part for part in (text, self.restored([text, *messages])) if part)

    def prompt(self, base: str = "", message: str | None = None) -> str:
        """The system prompt without what has to be put back."""
        return self.session.system_prompt(base, message=message, budget=self._budget)

    def restored(self, context: Sequence[str]) -> str:
        """The loaded skills that are not in this context any more: whole while they fit, the newest first, else by ref.

        `context` is everything that is about to be sent, text by text.
        """
        parts: list[str] = []
        left = self._restore
        for entry, text in reversed(self._absent(context)):
            part = (
                text if len(text) <= left else activation.reminder(entry["name"], entry["ref"], self.session.offered())
            )
            if len(part) <= left:
                parts.append(part)
                left -= len(part)
        return "\n\n".join(("These skills were loaded earlier in this conversation:", *parts)) if parts else ""

    def _absent(self, context: Sequence[str]) -> list[tuple[Mapping[str, str], str]]:
        present = {digest_of(utf8(text)) for text in context}
        absent: list[tuple[Mapping[str, str], str]] = []
        for entry in self.session.state()["loaded"]:
            if entry["rendered"] in present:
                continue
            text = self._text_of(entry["ref"])
            if text and not any(text in one for one in context):
                absent.append((entry, text))
        return absent

    def _text_of(self, ref: str) -> str:
        if ref not in self._texts:
            try:
                self._texts[ref] = self.session.output(ref)
            except MetierError:
                return ""  # it changed on disk since: the model loads it again, and gets the new text
        return self._texts[ref]

    # --- calls, and who is asked ---

    def questions(self, tool: str, arguments: Any, call_id: str = "") -> tuple[Request, ...]:
        """What the framework must ask a person before this call; a call that waits for its answer asks the same."""
        if not isinstance(self.session.approve, Answers) or not isinstance(arguments, Mapping):
            return ()  # the session asks by itself, or nobody can be asked
        given = cast("Mapping[str, Any]", arguments)
        asked = questions(self.session, tool, given)
        if not asked:
            return ()
        if call_id:
            self._waiting[call_id] = (tool, given)
        return self._asked.setdefault(call_key(tool, given), asked)

    def waits(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether somebody was asked about this call here, and has not answered."""
        return call_key(tool, arguments) in self._asked

    def call(self, tool: str, arguments: Any, *, answer: bool | None = None, call_id: str = "") -> ToolResult:
        """Make a call; `answer` is what the person said who was asked ahead."""
        self._waiting.pop(call_id, None)
        answers = self.session.approve
        if answer is None or not isinstance(answers, Answers) or not isinstance(arguments, Mapping):
            return self.session.call(tool, arguments)
        given = cast("Mapping[str, Any]", arguments)
        shown = self._asked.pop(call_key(tool, given), None) or questions(self.session, tool, given)
        with answers.given(shown, answer):
            return self.session.call(tool, given)

    async def acall(self, tool: str, arguments: Any, *, answer: bool | None = None, call_id: str = "") -> ToolResult:
        return await asyncio.to_thread(self.call, tool, arguments, answer=answer, call_id=call_id)

    def settle(self, answered: Iterable[str]) -> None:
        """Record the refusals that a framework keeps to itself: calls that have a result and were never made."""
        for call_id in answered:
            if call_id in self._waiting:
                self.call(*self._waiting[call_id], answer=False, call_id=call_id)


class Conversations:
    """The conversations of an agent that may serve many: each has a session of its own, by the framework's id for it.

    A session that is given is the only one. Skills open one for each id, and an `App` also takes up from its store what
    another process left.
    """

    def __init__(
        self,
        given: Session | Skills | App,
        surface: str,
        *,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Any,
    ) -> None:
        if options and not isinstance(given, Skills):
            raise _misplaced(options)
        self._given, self._surface, self._options = given, surface, options
        self._limits: dict[str, Any] = {"budget": budget, "restore": restore}
        self._open: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, id: str | None) -> Conversation:  # noqa: A002 - what it is
        """The conversation of that id; all that have none are one."""
        key = "" if id is None or isinstance(self._given, Session) else id
        with self._lock:
            known = self._open.get(key)
            if known is None:
                known = self._open[key] = self._new(key)
            elif isinstance(self._given, App):
                known.session = self._given.session(known.session.id, approve=known.session.approve)
            self._open.move_to_end(key)
            while len(self._open) > SESSIONS:
                self._open.popitem(last=False)
            return known

    def _new(self, key: str) -> Conversation:
        given = self._given
        if isinstance(given, App):
            given = given.session(key or None, approve=Answers(), surface=self._surface)
        return Conversation.of(given, self._surface, asks=True, **self._limits, **self._options)

    def last(self) -> Conversation:
        """The one that was used last."""
        with self._lock:
            known = next(reversed(self._open.values()), None)
        return known or self.of(None)

    def names(self) -> list[str]:
        """All tools that are ours, in any conversation."""
        given = self._given
        return tool_names(given.skills().profile if isinstance(given, App) else given.profile)


def _misplaced(options: Mapping[str, Any]) -> ConfigError:
    return ConfigError(f"{', '.join(options)}: give this to the session itself", key=next(iter(options)))


def tool_names(profile: Profile) -> list[str]:
    return list(profile.tools.by_role().values())


def shown(requests: Iterable[Request]) -> list[dict[str, str]]:
    """Questions as data, for whoever is to answer them."""
    return [
        {
            "tool": request.tool, "skill": request.skill_name, "path": request.path, "command": request.command,
            "digest": request.digest, "content": request.detail,
        }
        for request in requests
    ]  # fmt: skip


def describe(requests: Iterable[Request]) -> str:
    """Questions as one line."""
    about = (f"{one.tool} for the skill {one.skill_name}: {one.command or one.path}" for one in requests)
    return one_line("; ".join(about))


def decoded(arguments: str | None) -> Any:
    """A model's arguments as data; what is no JSON stays as it is, and the call says so."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def call_key(tool: str, arguments: Mapping[str, Any]) -> str:
    """The same for the same call."""
    return json.dumps([tool, arguments], sort_keys=True, default=str)
