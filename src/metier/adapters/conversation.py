"""The conversation of an agent framework with a session: what requests show, and which calls wait for approval.

The system prompt begins with what stays the same in all requests. Every request contains each loaded skill exactly
once: in the messages, or in the system prompt if the framework dropped it from the messages. This module knows no
framework.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from metier import limits
from metier.app import SESSIONS, App
from metier.errors import ConfigError, MetierError
from metier.files.digests import digest_of
from metier.files.shapes import is_items, is_object
from metier.files.text import utf8
from metier.hosts.profiles import Profile
from metier.policy.asking import in_thread
from metier.policy.decide import Request
from metier.policy.question import Question, command_line
from metier.record.store import open_store
from metier.session import activation, queries
from metier.session.approvals import Answers, questions
from metier.session.options import SessionOptions, SharedOptions
from metier.session.session import Session
from metier.skills import Skills
from metier.values.results import Tool, ToolResult
from metier.values.skill import JsonObject, wire_name


class RequestPrompt(NamedTuple):
    """The system prompt of a request, in two parts that make up the text."""

    stable: str
    """What all requests of the conversation begin with."""
    rest: str

    @property
    def text(self) -> str:
        return self.stable + self.rest


class Conversation:
    """One session and what its framework shows and asks.

    `budget` limits the catalog, `restore` the loaded skills that are put back; both count characters.
    """

    def __init__(
        self, session: Session, *, budget: int | None = None, restore: int = limits.COMPACTION_CHARACTERS
    ) -> None:
        self.session = session
        self._budget, self._restore = budget, restore
        self._texts: dict[str, str] = {}
        """Texts that were put back, by ref. The session is asked for each, and records it, only once."""
        self._asked: dict[str, tuple[Request, ...]] = {}
        """The requests that were shown for each call that waits for an answer."""
        self._waiting: dict[str, tuple[str, Mapping[str, object]]] = {}
        """The tool and arguments of the same calls, by the framework's call id."""

    @classmethod
    def of(
        cls,
        given: Session | Skills,
        framework: str,
        *,
        asks: bool,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Unpack[SessionOptions],
    ) -> "Conversation":
        """A conversation on the given session, or on a new session of these skills with `options`.

        `framework` is the surface of a new session. `asks`: the framework can ask a person; for a session of your own,
        use `approve=Answers()` instead.
        """
        check_options(options)
        if isinstance(given, Session):
            if options:
                raise _misplaced(options)
            return cls(given, budget=budget, restore=restore)
        if asks:
            options.setdefault("approve", Answers())
        options.setdefault("surface", framework)
        options.setdefault("applies", ())  # a framework's model and tools belong to the agent
        return cls(given.session(**options), budget=budget, restore=restore)

    # --- what a model is shown ---

    def tools(self) -> list[Tool]:
        """The tools that can succeed now, by names that every provider accepts."""
        return self.session.tools(self._budget, wire=True)

    def names(self) -> list[str]:
        """The names of all skill tools, including those that are not offered now."""
        return tool_names(self.session.profile)

    def system(self, base: str, messages: Sequence[str], message: str | None) -> RequestPrompt:
        """The whole system prompt of a request with these messages; `message` is the user's latest."""
        prompt = self.prompt(base, message)
        text = joined(prompt.text, self.restored([prompt.text, *messages]))
        return RequestPrompt(prompt.stable, text[len(prompt.stable) :])

    def prompt(self, base: str = "", message: str | None = None) -> RequestPrompt:
        """The system prompt without the skills that are put back."""
        shown = queries.SystemPrompt(base=base, message=message, budget=self._budget)
        whole = self.session.perform(shown, wire=True)
        return RequestPrompt(whole.text[: whole.stable], whole.text[whole.stable :])

    def restored(self, context: Sequence[str]) -> str:
        """The loaded skills that are missing from `context`, the texts that are about to be sent.

        They stand in the order in which they were loaded, so that the next one is added at the end. The newest are the
        first to get room. A skill that does not fit is named by its ref.
        """
        parts: list[str] = []
        left = self._restore
        for entry, text in reversed(self._missing(context)):
            part = text
            if len(part) > left:
                part = activation.reminder(entry["name"], entry["ref"], self.session.offered(wire=True))
            if len(part) <= left:
                parts.append(part)
                left -= len(part)
        return joined("These skills were loaded earlier in this conversation:", *reversed(parts)) if parts else ""

    def _missing(self, context: Sequence[str]) -> list[tuple[dict[str, str], str]]:
        present = {digest_of(utf8(text)) for text in context}
        missing: list[tuple[dict[str, str], str]] = []
        loaded: list[dict[str, str]] = self.session.state()["loaded"]
        for entry in loaded:
            if entry["rendered"] in present:
                continue
            text = self._text_of(entry["ref"])
            escaped = json.dumps(text, ensure_ascii=False)[1:-1]  # as in a result that is JSON
            if text and not any(text in one or escaped in one for one in context):
                missing.append((entry, text))
        return missing

    def _text_of(self, ref: str) -> str:
        if ref not in self._texts:
            try:
                self._texts[ref] = self.session.output(ref)
            except MetierError:
                return ""  # the skill changed on disk: the model has to load it again to get the new text
        return self._texts[ref]

    # --- calls and approval ---

    def questions(self, tool: str, arguments: object, call_id: str = "") -> tuple[Request, ...]:
        """The requests that a person must approve before this call. A waiting call keeps the requests it was shown."""
        if not isinstance(self.session.approve, Answers) or not is_object(arguments):
            return ()  # the session asks by itself, or nobody can be asked
        asked = questions(self.session, tool, arguments)
        if not asked:
            return ()
        if call_id:
            self._waiting[call_id] = (tool, arguments)
        return self._asked.setdefault(call_key(tool, arguments), asked)

    def waits(self, tool: str, arguments: Mapping[str, object]) -> bool:
        """Whether this call was shown to a person who has not answered yet."""
        return call_key(tool, arguments) in self._asked

    def call(
        self, tool: str, arguments: Any, *, answer: bool | None = None, call_id: str = "", asks: bool = True
    ) -> ToolResult:
        """Call a tool with whatever a model sent. `answer` is a person's answer to `questions`.

        `asks` is false where the framework has nobody to ask: what needs approval is then refused with the rule that
        would allow it.
        """
        self._waiting.pop(call_id, None)
        answers = self.session.approve
        if isinstance(answers, Answers) and not asks:
            with answers.nobody():
                return self.session.call(tool, arguments)
        if answer is None or not isinstance(answers, Answers) or not is_object(arguments):
            return self.session.call(tool, arguments)
        shown = self._asked.pop(call_key(tool, arguments), None) or questions(self.session, tool, arguments)
        with answers.given(shown, answer):
            return self.session.call(tool, arguments)

    async def acall(
        self, tool: str, arguments: Any, *, answer: bool | None = None, call_id: str = "", asks: bool = True
    ) -> ToolResult:
        return await in_thread(self.call, tool, arguments, answer=answer, call_id=call_id, asks=asks)

    def settle(self, answered: Iterable[str]) -> None:
        """Record refusals that the framework does not report: waiting calls that have a result but were not made."""
        for call_id in answered:
            if call_id in self._waiting:
                self.call(*self._waiting[call_id], answer=False, call_id=call_id)


class Conversations:
    """The conversations of an agent that serves many, by the framework's conversation id.

    A `Session` is the only conversation. `Skills` and an `App` open a session for each id. If they have a store, the
    session has the same id there and continues in any process.
    """

    def __init__(
        self,
        given: Session | Skills | App,
        framework: str,
        *,
        asks: bool = True,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Unpack[SharedOptions],
    ) -> None:
        """`asks`: the framework can ask a person, as in `Conversation.of`."""
        check_options(options, SharedOptions)
        if options and not isinstance(given, Skills):
            raise _misplaced(options)
        store = options.get("store")
        if isinstance(store, str):
            options["store"] = open_store(store)  # one for all conversations
        self._given, self._framework, self._options = given, framework, options
        self._asks, self._budget, self._restore = asks, budget, restore
        self._open: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, id: str | None) -> Conversation:  # noqa: A002 - the framework's word
        """The conversation with that id; all calls without an id share one."""
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
        options: SessionOptions = {**self._options}
        if isinstance(given, App):
            approve = given.approve or (Answers() if self._asks else None)
            given = given.session(key or None, approve=approve, surface=self._framework, applies=())
        elif key and options.get("store") is not None:
            options["id"] = key
        return Conversation.of(
            given, self._framework, asks=self._asks, budget=self._budget, restore=self._restore, **options
        )

    def last(self) -> Conversation:
        """The conversation that was used last."""
        with self._lock:
            known = next(reversed(self._open.values()), None)
        return known or self.of(None)

    def names(self) -> list[str]:
        """The names of all skill tools, in any conversation."""
        given = self._given
        return tool_names(given.skills().profile if isinstance(given, App) else given.profile)


def check_options(options: SharedOptions, known: type[SharedOptions] = SessionOptions) -> None:
    """Raise `TypeError` for a misspelled option at once, even if the first session is opened later."""
    for name in options:
        if name not in known.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")


def _misplaced(options: SharedOptions) -> ConfigError:
    return ConfigError(f"{', '.join(options)}: pass this to the session itself", key=next(iter(options)))


def joined(*parts: str | None) -> str:
    """Parts of a system prompt as one text, with what is empty left out."""
    return "\n\n".join(part for part in parts if part)


def tool_names(profile: Profile) -> list[str]:
    return [wire_name(name) for name in profile.tools.by_role().values()]


def shown(requests: Iterable[Request]) -> list[JsonObject]:
    """Requests as data, for the person who answers them: their fields, and what to show.

    `command` is the script and its arguments, quoted as for a shell. `question` has the title, the facts, the content
    and the meaning of each answer; its `text` has all of it as text.
    """
    return [
        {
            "tool": request.tool,
            "skill": request.skill_name,
            "path": request.path,
            "command": command_line(request),
            "digest": request.digest,
            "content": request.detail,
            "before": request.before,
            "arguments": list(request.arguments),
            "grants": request.as_dict().get("grants", []),
            "folder": request.folder,
            "foreign": request.foreign,
            "project": request.as_dict().get("project", ""),
            "question": Question.of(request).as_dict(),
        }
        for request in requests
    ]


def describe(requests: Iterable[Request]) -> str:
    """Requests as text, for the person who answers them."""
    return "\n\n".join(Question.of(request).as_text() for request in requests)


def decoded(arguments: str | None) -> object:
    """The arguments of a model as data. Text that is not JSON is returned as it is, and the call reports it."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def call_key(tool: str, arguments: Mapping[str, object]) -> str:
    """A key that is equal for equal calls."""
    return json.dumps([tool, arguments], sort_keys=True, default=str)


# --- the messages of a request ---
#
# They come from the caller and may be dicts or objects, in any form that an SDK accepts. An item without text yields
# nothing, so no form raises.


def value_of(item: object, name: str) -> object:
    """A field of a message: the key of a dict or the attribute of an object; `None` if it has none."""
    return item.get(name) if is_object(item) else getattr(item, name, None)


def texts(items: Iterable[object]) -> Iterator[str]:
    """The texts of messages and parts (their `content`) and of tool results (their `output`)."""
    for item in items:
        for content in (value_of(item, "content"), value_of(item, "output")):
            for part in content if is_items(content) else [content]:
                text = part if isinstance(part, str) else value_of(part, "text")
                if isinstance(text, str):
                    yield text


def is_instruction(item: object) -> bool:
    """Whether a message is a system prompt: of the role `system`, or `developer` as some models call it."""
    return value_of(item, "role") in ("system", "developer")


def last_user_text(items: Iterable[object]) -> str | None:
    """The user's latest text."""
    found = [text for item in items if value_of(item, "role") == "user" for text in texts([item])]
    return found[-1] if found else None
