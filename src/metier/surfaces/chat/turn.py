"""One turn of a chat: the message goes to the model, the model's calls go to the session, and the results become items.

Every item is shown as it changes and stored when it matters, so a client that joins late or after a restart sees the
same. A turn is bounded in rounds, calls per round, characters and silence. However it ends, the chat can continue.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from metier.errors import MetierError
from metier.policy.decide import Request
from metier.record.store import Frame
from metier.record.writer import system_clock
from metier.running.sandbox import stopped_by
from metier.session.operation import Operation, R
from metier.session.operations import Call, Invoke, Load
from metier.session.session import Session
from metier.session.tools import ToolResult
from metier.surfaces.chat import history, models
from metier.surfaces.chat.chat_store import ChatBusy, Head, Status, close
from metier.surfaces.chat.history import CALLED, SHORTENED, FittedMessages
from metier.surfaces.chat.items import (
    ErrorItem,
    Item,
    NoticeItem,
    ReasoningItem,
    Spent,
    TextItem,
    ToolItem,
    UserItem,
    files_of,
    spent_on,
)
from metier.surfaces.chat.live import CHOICES, LiveTurn, TurnQuestions
from metier.surfaces.chat.model_choice import TEXT_CHARACTERS, ModelChoice
from metier.values.results import Invocation, Loaded
from metier.values.skill import Skill, wire_name

if TYPE_CHECKING:
    from metier.surfaces.chat.engine import Chats

BASE: Final = (
    "You are a helpful assistant with access to skills. Answer in the language of the user, in Markdown. "
    "Follow a skill's instructions once you have loaded it, and say plainly when something did not work."
)
ROUNDS: Final = 24
"""Requests to the model in one turn."""
CALLS: Final = 16
"""Calls in one answer of the model that are carried out."""
CHARACTERS: Final = 1_000_000
"""Characters in one answer of the model."""
RENEW_SECONDS: Final = 5.0
OUTPUT_SECONDS: Final = 0.2
"""How often the output of a running script is read."""
END_SECONDS: Final = 10.0
"""How long a stopped turn waits for its script to end, so that the card has all of its output."""
ASK_SECONDS: Final = 3_600.0
"""How long a question waits for an answer. After that, the answer is no."""

_STOPPED: Final = "stopped"
_LOG: Final = logging.getLogger("metier")

P = ParamSpec("P")
T = TypeVar("T")


class TurnFailed(Exception):
    """The turn cannot continue. The text is shown to the user."""


class _TooLong(TurnFailed):
    """The server refuses the request as longer than the model takes."""


class _NoSuchModel(Exception):
    """The server does not have the model that a skill asked for."""


class Turn:
    """One running turn. Lives in the event loop; the session is called in threads through `_work`."""

    def __init__(self, chats: "Chats", chat_id: str, head: Head, choice: ModelChoice, *, is_first: bool) -> None:
        """`is_first`: the chat had no turn before, so that its session is new."""
        self.chat_id, self.head, self._chats, self._is_first = chat_id, head, chats, is_first
        self._own_choice: ModelChoice = choice
        self.choice: ModelChoice = choice
        """The model that answers now. A skill may propose another one of the same provider for its turn."""
        self.status: Status = "running"
        self.started_ms = system_clock()
        self.ended = False
        self._store = chats.store
        self.live = LiveTurn(chat_id, chats.store)
        self._session: Session | None = None
        self._before: list[Item] = []
        self._step = 0
        self._spent = Spent()
        self._picked: set[str] = set()
        self.questions = TurnQuestions(self.live, self._claim, ASK_SECONDS)
        self._claiming, self._over = asyncio.Lock(), asyncio.Event()
        self.stopping = threading.Event()
        """Ends the script that the turn runs."""
        self._why = ""
        self._loop = asyncio.get_running_loop()
        self.task: asyncio.Task[None] | None = None

    # --- control ---

    def stop(self, why: str = _STOPPED) -> None:
        """End the turn as soon as possible and keep its items."""
        if self._why or self.ended:
            return
        self._why = why
        self.stopping.set()
        self.questions.stop()
        if self.task is not None:
            self.task.cancel()

    async def _work(self, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
        """Call a function of the session in a thread. A stop ends the script that it runs."""

        def stoppable() -> T:
            with stopped_by(self.stopping):
                return function(*args, **named)

        return await self._chats.in_thread(stoppable)

    @property
    def skills(self) -> list[str]:
        return self._session.given if self._session else list(self.head.skills)

    # --- the turn ---

    async def run(self, message: UserItem | None) -> None:
        """Answer a message that was just stored, or, without one, the last message again."""
        if message is not None:
            self.live.show(message, stored=True)
        outcome = "failed"
        renewing = asyncio.create_task(self._renew())
        try:
            await self._answer(message)
            outcome = "done"
        except asyncio.CancelledError:
            if self.task is not None:
                self.task.uncancel()
            outcome = "stopped"
            stopped = self._why == _STOPPED
            self._close(NoticeItem(text="Stopped.") if stopped else ErrorItem(message=self._why))
        except (TurnFailed, MetierError) as error:
            self._close(ErrorItem(message=str(error)))
        except Exception:  # noqa: BLE001 - the turn must end and the chat must stay usable
            _LOG.exception("a turn of chat %s failed", self.chat_id)
            self._close(ErrorItem(message="Something went wrong. The server's log has the details. Try again."))
        finally:
            self._over.set()
            await renewing
            await self._release(outcome)

    def _close(self, last: Item) -> None:
        why = "it was stopped" if self._why else "the turn ended"
        self.live.show(*close(self.live.items, why), last)

    async def _release(self, outcome: str) -> None:
        async def store(last: Sequence[Item]) -> Sequence[str]:
            skills: Sequence[str] = self.head.skills  # where the store cannot say more
            try:
                async with self._claiming:
                    self.ended = True
                    skills = await asyncio.to_thread(lambda: self.skills)
                    arguments = (self.chat_id, self.head, skills, outcome, last)
                    self.head = await asyncio.to_thread(self._store.release, *arguments)
            except MetierError as error:
                _LOG.warning("chat %s could not be released: %s", self.chat_id, error)
                if outcome == "done":
                    self.live.show(ErrorItem(message=str(error)))
            return skills

        await self.live.end(store)
        self.status = "idle"
        if self._session is not None:
            self._session.exclusive = False

    async def _renew(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), RENEW_SECONDS)
                return
            await self._claim(self.status)

    async def _claim(self, status: Status) -> None:
        self.status = status
        try:
            async with self._claiming:
                if not self.ended:
                    self.head = await asyncio.to_thread(self._store.renew, self.chat_id, self.head, status)
        except ChatBusy as lost:
            self.stop(str(lost))
        except MetierError as error:
            _LOG.warning("the claim on chat %s could not be renewed: %s", self.chat_id, error)

    async def _answer(self, new: UserItem | None) -> None:
        kept, _ = await asyncio.to_thread(self._store.items, self.chat_id)
        if new is not None:
            self._before = [item for item in kept if item.id != new.id]
        else:
            self._before = kept
            self._prepare_retry()
        message = next((item for item in reversed(self._all) if isinstance(item, UserItem)), None)
        if message is None:
            raise TurnFailed("There is no message to answer.")
        self._session = session = await self._work(
            self._chats.session, self.chat_id, self.choice, is_new=self._is_first
        )
        session.use_files({name: one.digest for name, one in files_of(self._all).items()})
        await self._call_by_name(session, message, again=new is None)
        if new is None:
            await self._work(session.state)  # learns what other processes did in earlier turns
        session.exclusive = True
        async with contextlib.AsyncExitStack() as stack:
            await self._rounds(stack, session, message.text)

    @property
    def _all(self) -> list[Item]:
        return [*self._before, *(item for item in self.live.items if item not in self._before)]

    def _prepare_retry(self) -> None:
        """Set aside what came after the last message or result. Calls that were carried out stay."""
        changed: list[Item] = close(self._before, "it was interrupted")
        for item in reversed(self._before):
            if isinstance(item, UserItem | ToolItem):
                break
            if isinstance(item, TextItem | ErrorItem) and not item.superseded:
                item.superseded = True
                if isinstance(item, ErrorItem):
                    item.retry = False
                changed.append(item)
        for item in reversed(self._before):
            if isinstance(item, UserItem):
                break
            if isinstance(item, TextItem | ToolItem):
                self._step = max(self._step, item.step + 1)
        self.live.show(*changed)
        self._before = [item for item in self._before if item not in changed]

    # --- commands ---

    async def _call_by_name(self, session: Session, message: UserItem, *, again: bool) -> None:
        """Handle a skill that the message calls by name: load it where the profile does, else name it to the model.

        The model is told in the message, not in the system prompt, which stays the same from turn to turn.
        """
        if again and (not message.skill or message.loaded):
            return
        invocation, frames = await self._used(session, Invoke(message=message.text))
        if invocation.unloaded is not None:
            message.message = invocation.message
            self.live.show(message)
            return
        loaded = set[str]() if again else await self._load_chosen(session, message, invocation)
        if invocation.skill is None or invocation.skill.path in loaded:
            return
        injected = invocation.loaded is not None and not session.profile.invocation.loads
        message.skill, message.message = invocation.skill.name, _told(invocation, message.text, session)
        message.loaded = invocation.loaded is not None and not injected
        self.live.show(message)
        if invocation.loaded is not None and not again:
            await self._show_loaded(session, invocation.skill, invocation.loaded, frames, injected=injected)

    async def _used(self, session: Session, operation: Operation[R]) -> tuple[R, list[Frame]]:
        frames: list[Frame] = []
        try:
            return await self._work(session.perform, operation, watch=frames.append), frames
        except MetierError as error:
            raise TurnFailed(f"The skill could not be used: {error}") from error

    async def _load_chosen(self, session: Session, message: UserItem, invocation: Invocation) -> set[str]:
        """Load the skills of names that several skills bear: a model could only ask for them by such a name.

        The person picks them, or a path in the message has decided. Returns their paths.
        """
        picked = [skill for one in invocation.choices[:CHOICES] if (skill := await self.questions.choose(one))]
        self._picked = {skill.path for skill in picked}
        named = session.skills.catalog.by_name
        decided = [one for one in invocation.mentioned if [other.path for other in named[one.name]] != [one.path]]
        chosen = [*picked, *(decided if invocation.loaded is None else ())]
        for skill in chosen:
            loaded, frames = await self._used(session, Load(path=skill.path))
            message.skill, message.loaded = skill.name, True
            self.live.show(message)
            await self._show_loaded(session, skill, loaded, frames, injected=False)
        return {skill.path for skill in chosen}

    async def _show_loaded(
        self, session: Session, skill: Skill, loaded: Loaded, frames: Sequence[Frame], *, injected: bool
    ) -> None:
        tool = session.profile.tools.load or session.profile.tools.read or "load"
        card = ToolItem(
            tool=tool, role="load", args={"name": skill.name}, step=self._step, call="", by="user", injected=injected
        )
        card.fill(ToolResult({}, loaded.text), frames)
        await self.live.keep(card)

    # --- rounds ---

    async def _rounds(self, stack: contextlib.AsyncExitStack, session: Session, question: str) -> None:
        async def put_back(budget: int) -> str:
            return (await self._work(session.compact, budget)).text

        def sent() -> list[Item]:
            return [item for item in self._all if not isinstance(item, ReasoningItem)]

        offline = self._own_choice.provider == "offline"  # the guide would take the words of a file for the user's
        files = [] if offline else self._all
        texts = await asyncio.to_thread(history.texts, files, self._store.store.get_artifact)
        names = {str(role): name for role, name in session.offered(wire=True).items()}
        conversation = FittedMessages(sent, put_back, self._chats.learned, texts, names.get("output", ""))
        rules = session.profile
        nothing = "" if rules.enabled else f"Skills are switched off in the profile {rules.name}: {rules.off_hint}."

        async def use(choice: ModelChoice) -> Model:
            self.choice, model = choice, await stack.enter_async_context(models.opened(choice, names, nothing))
            await conversation.begin(choice.label, model.profile.get("context_window"))
            return model

        model = await use(self.choice)
        missing: set[str] = set()
        for _ in range(ROUNDS):
            wanted = self._wanted(session)
            if wanted != self.choice and wanted.name not in missing:
                model = await use(wanted)
                self.live.show(NoticeItem(text=f"A skill asked for the model {wanted.name}, which answers now."))
            notices = (item.text for item in self._all if isinstance(item, NoticeItem))
            if conversation.shortened and SHORTENED not in notices:  # it is said once in a chat
                self.live.show(NoticeItem(text=SHORTENED))
            try:
                response, calls = await self._ask_model(model, session, conversation.messages, question)
            except _TooLong:
                if not await conversation.shorten():
                    raise
                continue
            except _NoSuchModel:
                missing.add(self.choice.name)
                text = f"The server does not have the model {self.choice.name}, so {self._own_choice.name} answers."
                self.live.show(NoticeItem(text=text))
                model = await use(self._own_choice)
                continue
            if not calls:
                return
            results = [await self._call(part, number, session) for number, part in enumerate(calls)]
            self._step += 1
            await conversation.grow(history.sendable(response), ModelRequest(parts=results))
        raise TurnFailed(f"The model kept calling tools without an answer, and was stopped after {ROUNDS} rounds.")

    def _wanted(self, session: Session) -> ModelChoice:
        """The model for the next request: the one that a skill proposed and policy granted, of the same provider."""
        name: object = session.overrides.get("model")
        if self._own_choice.provider == "offline" or not isinstance(name, str) or name == "inherit":
            return self._own_choice
        usable = 0 < len(name) <= TEXT_CHARACTERS and name.isprintable()
        return replace(self._own_choice, name=name) if usable else self._own_choice

    async def _ask_model(
        self, model: Model, session: Session, messages: Sequence[ModelMessage], question: str
    ) -> tuple[ModelResponse, list[ToolCallPart]]:
        """One answer of the model, shown as it arrives, and the calls in it."""
        system = await self._work(session.system_prompt, BASE, message=question, wire=True)
        parameters = ModelRequestParameters(
            function_tools=history.definitions(await self._work(session.tools, wire=True)),
            instruction_parts=[InstructionPart(content=system)],
        )
        if self.choice.images:
            messages = await asyncio.to_thread(history.with_images, messages, self._all, self._store.store.get_artifact)
        parts: dict[int, TextItem] = {}
        settings = ModelSettings(
            first_event_timeout=self.choice.timeout, request_timeout=models.REQUEST_SECONDS, max_retries=1
        )
        try:
            async with model_request_stream(
                model, messages, model_settings=settings, model_request_parameters=parameters
            ) as stream:
                size = 0
                async for event in stream:
                    grown = history.growth(event)
                    if grown.text:
                        size += len(grown.text)
                        self._show_text(parts, grown)
                    if size > CHARACTERS:
                        raise TurnFailed(f"The answer was cut at {CHARACTERS:,} characters.")
                response = history.with_names(stream.get(), parameters.function_tools)
        except (asyncio.CancelledError, TurnFailed, MetierError):
            raise
        except Exception as error:
            if not parts and self.choice != self._own_choice and models.status_of(error) in (400, 404):
                raise _NoSuchModel from error
            if not parts and models.too_long(error):
                raise _TooLong(models.explain(error, self.choice)) from error
            raise TurnFailed(models.explain(error, self.choice)) from error
        self._spent += spent_on(response)
        answers = [item for item in parts.values() if not isinstance(item, ReasoningItem)]
        for item in answers:
            item.spent, self._spent = self._spent.as_dict(), Spent()
        self._end_parts(parts)
        return response, self._calls(response, has_text=bool(answers))

    def _show_text(self, parts: dict[int, TextItem], grown: history.Growth) -> None:
        if grown.part in parts:
            self.live.grow(parts[grown.part], grown.text)
        elif grown.text.strip():
            self._end_parts(parts)
            kind = ReasoningItem if grown.reasoning else TextItem
            parts[grown.part] = item = kind(step=self._step, text=grown.text.lstrip())
            self.live.show(item)

    def _end_parts(self, parts: Mapping[int, TextItem]) -> None:
        """A part of an answer has ended when the next one begins."""
        ended = [item for item in parts.values() if not item.done]
        for item in ended:
            item.done = True
            if isinstance(item, ReasoningItem):
                item.ended_ms = system_clock()
        self.live.show(*ended)

    def _calls(self, response: ModelResponse, *, has_text: bool) -> list[ToolCallPart]:
        """The calls in an answer. An answer that is empty or incomplete is reported."""
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        refusal = models.refusal(response)
        if refusal:
            self.live.show(NoticeItem(text=refusal))
            return calls
        if not has_text and not calls:
            raise TurnFailed(f"The server of {self.choice.label} sent an empty answer. Try again.")
        if response.finish_reason == "length":
            self.live.show(NoticeItem(text="The answer was cut at the model's length limit."))
        elif not models.finished(response, self.choice):
            text = "The server did not mark the answer as complete; it may have been cut off."
            self.live.show(NoticeItem(text=text))
        return calls

    # --- calls ---

    async def _call(self, part: ToolCallPart, number: int, session: Session) -> ToolReturnPart:
        by_wire = {wire_name(name): (role, name) for role, name in session.offered().items()}
        role, tool = by_wire.get(wire_name(part.tool_name), (None, part.tool_name))
        arguments = history.arguments(part)
        card = ToolItem(tool=tool, role=role, args=arguments.shown, step=self._step, call=part.tool_call_id)
        if number >= CALLS:
            card.state, card.code, card.text = "failed", "TOO_MANY", f"Only {CALLS} calls are answered at once."
            self.live.show(card)
            return history.returned(card)
        name = arguments.shown.get("name")
        card.skill = name if isinstance(name, str) else None
        await self._show_call(card)
        frames: list[Frame] = []
        watching = asyncio.create_task(self._watch_output(card, frames)) if role == "run" else None
        call = Call(tool=wire_name(tool) if role else tool, arguments=arguments.given)
        work = asyncio.ensure_future(self._work(session.perform, call, watch=frames.append))
        try:
            result = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work], timeout=END_SECONDS if role == "run" else 0)
            card.stop(frames)
            self.live.show(card)
            raise
        finally:
            if watching is not None:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
        card.fill(result, frames)
        await self._show_call(card)
        return history.returned(card)

    async def _show_call(self, card: ToolItem) -> None:
        """Show a card. A script is stored before and after it runs, and instructions before the model uses them."""
        if card.role == "run" or (card.role == "load" and card.state != "running"):
            await self.live.keep(card)
        else:
            self.live.show(card)

    async def _watch_output(self, card: ToolItem, frames: Sequence[Frame]) -> None:
        """Show what a script prints while it runs."""
        while True:
            await asyncio.sleep(OUTPUT_SECONDS)
            if card.show_output(frames):
                self.live.show(card, stored=True)

    # --- questions ---

    def ask(self, request: Request) -> str:
        """Show a question of the policy and wait for the answer. Called in a thread of the session."""
        return asyncio.run_coroutine_threadsafe(self._ask(request), self._loop).result()

    async def _ask(self, request: Request) -> str:
        if self._why or self.ended or self._session is None:
            return "no"
        if request.tool == "skill_load" and request.path in self._picked:
            return "once"  # picking it was the answer
        return await self.questions.ask(request, self._session.policy)


def _told(invocation: Invocation, text: str, session: Session) -> str:
    """What the model is told instead of a message that calls a skill."""
    message = invocation.message.strip()
    if invocation.skill is None or invocation.loaded:
        return message
    tool = session.offered(wire=True).get("load")
    call = f" Call `{tool}` for it before you answer." if tool else ""
    return f"{message or text}\n\n{CALLED.format(name=invocation.skill.name)}{call}"
