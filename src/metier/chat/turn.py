"""One turn of a chat: the user's words go to the model, its calls to the session, and what happens becomes items.

Each item is shown as it changes and stored when it matters, so that whoever joins late, or comes back after a restart,
sees the same. The turn ends: rounds of calls, calls in a round, characters and silence are bounded, and every way to
end leaves a conversation that can go on.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters

from metier.chat import cards, history, items, models
from metier.chat.chat_store import Busy, Head, Shelf, Status, close
from metier.chat.demo_model import CALLED
from metier.chat.items import Item
from metier.chat.live import Stage
from metier.chat.model_choice import Choice
from metier.errors import MetierError
from metier.model import Invocation
from metier.session.policy import Request
from metier.session.session import Session
from metier.session.tools import ToolResult

BASE: Final = (
    "You are a helpful assistant with access to skills. Answer in the language of the user, in Markdown. "
    "Follow a skill's instructions once you have loaded it, and say plainly when something did not work."
)
ROUNDS: Final = 24
"""Requests to the model in one turn."""
CALLS: Final = 16
"""Calls in one answer of the model that are carried out."""
CHARACTERS: Final = 1_000_000
"""Of one answer of the model."""
RENEW_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.2
"""How often the output of a running script is looked at."""
ASK_SECONDS: Final = 3_600.0
"""How long a question waits for its answer; then it is no."""

Answer = Literal["once", "always", "no"]
_LOG: Final = logging.getLogger("metier")


class Trouble(Exception):
    """The turn cannot go on; the text is for the person who watches."""


class Turn:
    """One turn at work. Lives in the event loop; the session is called in threads of `work`."""

    def __init__(
        self,
        chat_id: str,
        head: Head,
        shelf: Shelf,
        choice: Choice,
        open_session: Callable[[], Session],
        work: Callable[..., Awaitable[Any]],
        redact: Callable[[str], str],
    ) -> None:
        self.chat_id, self.head, self.choice = chat_id, head, choice
        self.status: Status = "running"
        self.ended = False
        self.stage = Stage(chat_id, shelf, redact)
        self._shelf, self._open_session, self._work = shelf, open_session, work
        self._session: Session | None = None
        self._before: list[Item] = []
        self._step = 0
        self._asked: dict[str, asyncio.Future[Answer]] = {}
        self._claiming, self._over = asyncio.Lock(), asyncio.Event()
        self._why = ""
        self._loop = asyncio.get_running_loop()
        self.task: asyncio.Task[None] | None = None

    # --- for those who watch ---

    def stop(self, why: str = "stopped") -> None:
        """End the turn as soon as possible; what there is stays."""
        if self._why or self.ended:
            return
        self._why = why
        for future in self._asked.values():
            if not future.done():
                future.set_result("no")
        if self.task is not None:
            self.task.cancel()

    def answer(self, ask_id: str, said: Answer) -> bool:
        """Give an answer; false where the question is not, or no longer, there."""
        future = self._asked.get(ask_id)
        if future is None or future.done():
            return False
        future.set_result(said)
        return True

    @property
    def skills(self) -> list[str]:
        return list(self._session.activated) if self._session else list(self.head.skills)

    # --- the turn ---

    async def run(self, text: str | None) -> None:
        """Answer a message, or, without one, the last message again."""
        outcome = "failed"
        renewing = asyncio.create_task(self._renew())
        try:
            await self._answer(text)
            outcome = "done"
        except asyncio.CancelledError:
            cast("asyncio.Task[None]", asyncio.current_task()).uncancel()
            outcome = "stopped"
            await self._close(items.notice("Stopped.") if self._why == "stopped" else items.error(self._why))
        except (Trouble, MetierError) as error:
            await self._close(items.error(str(error)))
        except Exception:  # noqa: BLE001 - whatever it was, the turn ends and the chat stays usable
            _LOG.exception("a turn of chat %s failed", self.chat_id)
            await self._close(items.error("Something went wrong here; it is in the server's log. Try again."))
        finally:
            self._over.set()
            await renewing
            await self._release(outcome)

    async def _close(self, last: Item) -> None:
        why = "it was stopped" if self._why else "the turn ended"
        try:
            await self.stage.show(*close(self.stage.items, why), last)
        except MetierError as error:
            _LOG.warning("what was said last in chat %s could not be stored: %s", self.chat_id, error)

    async def _release(self, outcome: str) -> None:
        try:
            async with self._claiming:
                self.ended = True
                self.head = await asyncio.to_thread(self._shelf.release, self.chat_id, self.head, self.skills, outcome)
        except MetierError as error:
            _LOG.warning("chat %s could not be released: %s", self.chat_id, error)
        self.status = "idle"
        self.stage.end(self.skills)

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
                    self.head = await asyncio.to_thread(self._shelf.renew, self.chat_id, self.head, status)
        except Busy as lost:
            self.stop(str(lost))
        except MetierError as error:
            _LOG.warning("the claim on chat %s could not be renewed: %s", self.chat_id, error)

    async def _answer(self, text: str | None) -> None:
        self._before, _ = await asyncio.to_thread(self._shelf.items, self.chat_id)
        if text is not None:
            await self.stage.show(items.user(text))
        else:
            await self._take_up()
        asked = next((item for item in reversed(self._all) if item.type == "user"), None)
        if asked is None:
            raise Trouble("There is no message to answer.")
        self._session = session = await self._work(self._open_session)
        called = await self._call_by_name(session, asked, again=text is None)
        names = {role: history.wire_name(name) for role, name in session.offered().items()}
        async with models.opened(self.choice, names) as model:
            await self._rounds(model, session, str(asked["text"]), called)

    @property
    def _all(self) -> list[Item]:
        return [*self._before, *self.stage.items]

    async def _take_up(self) -> None:
        """Prepare another try: what was said after the last message or result is set aside, what was done stays."""
        changed: list[Item] = close(self._before, "it was interrupted")
        for item in reversed(self._before):
            if item.type in ("user", "tool"):
                break
            if item.type in ("text", "error") and not item["superseded"]:
                item.data["superseded"] = True
                if item.type == "error":
                    item.data["retry"] = False
                changed.append(item)
        for item in reversed(self._before):
            if item.type == "user":
                break
            self._step = max(self._step, (item["step"] or 0) + 1) if item.type in ("text", "tool") else self._step
        await self.stage.show(*changed)
        self._before = [item for item in self._before if item not in changed]

    # --- commands ---

    async def _call_by_name(self, session: Session, asked: Item, again: bool) -> str:
        """What a message calls by name: loaded by the host where the profile says so, else named to the model."""
        if again and (not asked["skill"] or asked["loaded"]):
            return str(asked["skill"] or "") if not asked["loaded"] else ""
        before = await asyncio.to_thread(self._shelf.store.last_seq, session.id)
        try:
            invocation: Invocation = await self._work(session.invoke, asked["text"])
        except MetierError as error:
            raise Trouble(f"The skill could not be used: {error}") from error
        if invocation.ambiguous:
            await self.stage.show(items.notice("Several skills bear the name that the message has; none was used."))
        if invocation.skill is None:
            return ""
        injected = invocation.loaded is not None and not session.profile.invocation.loads
        asked.data.update(
            skill=invocation.skill.name,
            message=invocation.message.strip() if invocation.loaded else invocation.message.strip() or asked["text"],
            loaded=invocation.loaded is not None and not injected,
        )
        await self.stage.show(asked)
        if invocation.loaded is not None and not again:
            tool = session.profile.tools.load or session.profile.tools.read or "load"
            card = items.card(tool, "load", {"name": invocation.skill.name}, self._step, "", by="user")
            card.data["injected"] = injected
            result = ToolResult({}, invocation.loaded.text)
            await self._fill(card, session, result, before)
        return invocation.skill.name if invocation.loaded is None else ""

    # --- rounds ---

    async def _rounds(self, model: Model, session: Session, question: str, called: str) -> None:
        told = history.messages(self._all)
        for _ in range(ROUNDS):
            response, calls = await self._ask_model(model, session, told, question, called)
            if not calls:
                return
            told.append(history.sendable(response))
            results = [await self._call(part, number, session) for number, part in enumerate(calls)]
            told.append(ModelRequest(parts=results))
            self._step += 1
        raise Trouble(f"The model kept calling tools without an answer, and was stopped after {ROUNDS} rounds.")

    def _system(self, session: Session, question: str, called: str) -> str:
        base = BASE
        if called:
            base += f"\n\n{CALLED.format(name=called)}"
            tool = session.offered().get("load")
            base += f" Call `{history.wire_name(tool)}` for it before you answer." if tool else ""
        return session.system_prompt(base, message=question)

    async def _ask_model(
        self, model: Model, session: Session, told: Sequence[ModelMessage], question: str, called: str
    ) -> tuple[ModelResponse, list[ToolCallPart]]:
        """One answer of the model, shown as it comes, and the calls in it."""
        system = await self._work(self._system, session, question, called)
        parameters = ModelRequestParameters(
            function_tools=history.definitions(await self._work(session.tools)),
            instruction_parts=[InstructionPart(content=system)],
        )
        parts: dict[int, Item] = {}
        try:
            async with model_request_stream(
                model, told, model_settings=models.settings(self.choice), model_request_parameters=parameters
            ) as stream:
                size = 0
                async for event in stream:
                    text = _text_of(event)
                    if text:
                        size += len(text)
                        await self._hear(parts, getattr(event, "index", 0), text)
                    if size > CHARACTERS:
                        raise Trouble(f"The answer was cut at {CHARACTERS:,} characters.")
                response = history.with_names(stream.get(), parameters.function_tools)
        except (asyncio.CancelledError, Trouble, MetierError):
            raise
        except Exception as error:
            raise Trouble(models.explain(error, self.choice)) from error
        for item in parts.values():
            item.data["done"] = True
        await self.stage.show(*parts.values())
        return response, await self._calls(response, bool(parts))

    async def _hear(self, parts: dict[int, Item], index: int, text: str) -> None:
        if index in parts:
            await self.stage.grow(parts[index], text)
        elif text.strip():
            parts[index] = item = items.answer(self._step)
            item.data["text"] = text.lstrip()
            await self.stage.show(item, keep=False)

    async def _calls(self, response: ModelResponse, spoke: bool) -> list[ToolCallPart]:
        """The calls in an answer; what its server says about an unfinished one is told."""
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        if not spoke and not calls:
            raise Trouble(f"The server of {self.choice.label} sent an empty answer. Try again.")
        if response.finish_reason == "length":
            await self.stage.show(items.notice("The answer was cut at the model's limit of length."))
        elif response.finish_reason == "content_filter":
            await self.stage.show(items.notice("The model's server held back a part of the answer."))
        elif not models.finished(response, self.choice):
            await self.stage.show(
                items.notice("The server did not say that the answer is whole; it may have been cut off.")
            )
        return calls

    # --- calls ---

    async def _call(self, part: ToolCallPart, number: int, session: Session) -> ToolReturnPart:
        by_wire = {history.wire_name(name): (role, name) for role, name in session.offered().items()}
        role, tool = by_wire.get(history.wire_name(part.tool_name), (None, part.tool_name))
        shown, given = history.arguments(part)
        card = items.card(tool, role, shown, self._step, part.tool_call_id)
        if number >= CALLS:
            card.data.update(state="failed", code="TOO_MANY", text=f"Only {CALLS} calls are answered at once.")
            await self.stage.show(card)
            return history.returned(card)
        card.data["skill"] = shown.get("name") if isinstance(shown.get("name"), str) else None
        await self.stage.show(card)
        before = await asyncio.to_thread(self._shelf.store.last_seq, session.id)
        watching = asyncio.create_task(self._watch(card, session, before)) if role == "run" else None
        try:
            result: ToolResult = await self._work(session.call, tool, given)
        finally:
            if watching is not None:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
        await self._fill(card, session, result, before)
        return history.returned(card)

    async def _watch(self, card: Item, session: Session, before: int) -> None:
        """Show what a script prints while it runs."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            frames = await asyncio.to_thread(
                self._shelf.store.read, session.id, session.id, {"tool_stdout", "tool_stderr"}, before
            )
            for frame in frames:
                card.data[frame["type"].removeprefix("tool_")] += frame["text"]
                before = frame["seq"]
            if frames:
                await self.stage.show(card, keep=False)

    async def _fill(self, card: Item, session: Session, result: ToolResult, before: int) -> None:
        frames = await asyncio.to_thread(self._shelf.store.read, session.id, session.id, None, before)
        cards.fill(card, result, frames)
        await self.stage.show(card)

    # --- questions ---

    def ask(self, request: Request) -> str:
        """Put a question of the policy to whoever watches. Called in a thread of the session; waits."""
        return asyncio.run_coroutine_threadsafe(self._ask(request), self._loop).result()

    async def _ask(self, request: Request) -> str:
        if self._why or self.ended:
            return "no"
        session = cast("Session", self._session)
        item = cards.question(request, session.policy.decide(request).why)
        self._asked[item.id] = future = self._loop.create_future()
        await self.stage.show(item)
        await self._claim("waiting")
        try:
            said = await asyncio.wait_for(future, ASK_SECONDS)
        except TimeoutError:
            said = "no"
        if self._why:
            return "no"  # the end of the turn closes the question, too
        item.data["state"] = said
        await self.stage.show(item)
        await self._claim("running")
        return said


def _text_of(event: Any) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""
