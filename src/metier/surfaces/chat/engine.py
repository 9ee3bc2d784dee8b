"""The chats of one server: the turns that run in this process, and the model that answers.

A turn is a task of its own and continues when no client follows it. Stop and answer commands for a turn that runs in
another process are sent through the store.
"""

import asyncio
import contextlib
import functools
import importlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from metier import limits
from metier.app import App
from metier.catalog.build import Catalog
from metier.errors import BadArguments, ResourceError, report_missing
from metier.files.digests import digest_of
from metier.files.media import text_of
from metier.policy.decide import Request
from metier.record.events import ChatTurnStarted
from metier.record.writer import random_ids
from metier.running.grants.files import check_name
from metier.session.session import Session
from metier.surfaces.chat import model_choice
from metier.surfaces.chat.chat_store import ChatBusy, ChatStore, Head, NoSuchChat, close
from metier.surfaces.chat.items import AskItem, ChoiceItem, FileItem, Item, UserItem, files_of, in_use
from metier.surfaces.chat.live import TurnMessage, begun, ended, idle
from metier.surfaces.chat.model_choice import KeptModels, ModelChoice
from metier.values.skill import Skill

if TYPE_CHECKING:
    from metier.surfaces.chat.turn import Turn
    from metier.surfaces.web.sse import Subscriber

__all__ = ["ChatBusy", "Chats", "NoSuchChat"]

TURNS: Final = 32
"""Turns that may run in one process."""
CHANNEL: Final = "chat"
"""The channel of the store on which processes send each other stop and answer commands."""
MESSAGE_CHARACTERS: Final = 200_000
TITLE_CHARACTERS: Final = 80
_LISTEN_SECONDS: Final = 1.0

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Asker:
    """Sends the questions of a chat's session to its turn. Without a running turn, the answer is no."""

    chats: "Chats"
    chat_id: str

    def __call__(self, request: Request) -> str:
        turn = self.chats.turn(self.chat_id)
        return turn.ask(request) if turn is not None else "no"


class Chats:
    """The chats of one `App`. Belongs to one event loop."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._redact = app.policy().redact
        self.store = ChatStore(app.store, self._redact)
        self.configured = model_choice.configured(app.config.model)
        self.kept = KeptModels(app.store, app.config.config_folder, self.configured)
        self._turns: dict[str, Turn] = {}
        self.learned: dict[str, int] = {}
        """How many characters a model takes, as far as its server has told."""
        self._threads: ThreadPoolExecutor | None = None
        self._listening: asyncio.Task[None] | None = None
        self._commands: tuple[Catalog, dict[str, tuple[str, Skill]]] | None = None

    def choose(self, given: Mapping[str, object]) -> ModelChoice:
        """Use another model from now on, in one chat if `given` names one, else in all that have no model of their own.

        The choice is kept over restarts; see `KeptModels`.
        """
        chat_id = given.get("chat")
        chosen = self.requested(given)
        self.kept.keep_key(chosen)
        if isinstance(chat_id, str) and chat_id:
            self.store.change(chat_id, model=chosen.kept())
        else:
            self.kept.keep(chosen)
        return chosen

    @property
    def choice(self) -> ModelChoice:
        """The model of all chats that have none of their own, as every server on the store knows it."""
        return self.kept.server_choice()

    def requested(self, given: Mapping[str, object]) -> ModelChoice:
        """The model that a page asks for, with the key that belongs to its address. Nothing changes."""
        chat_id = given.get("chat")
        current = self.choice_of(chat_id if isinstance(chat_id, str) else "")
        chosen = model_choice.requested(given, self.configured, current)
        return self.kept.with_key(chosen) or chosen

    def choice_of(self, chat_id: str) -> ModelChoice:
        """The model that answers in a chat."""
        return self._choice(self.store.head(chat_id) if chat_id else Head())

    def _choice(self, head: Head) -> ModelChoice:
        own = model_choice.from_kept(head.own_model) if head.own_model else None
        return self.kept.with_key(own) or self.choice

    def turn(self, chat_id: str) -> "Turn | None":
        """The turn of a chat that runs in this process."""
        return self._turns.get(chat_id)

    # --- turns ---

    async def start(self, chat_id: str, text: str | None, replaces: str = "") -> "Turn":
        """Answer a message, or, without one, the last message again. A message may replace an earlier one."""
        if len(self._turns) >= TURNS:
            raise ChatBusy(f"{TURNS} chats are being answered here; try again in a moment", here=True)
        try:
            turns = await asyncio.to_thread(importlib.import_module, "metier.surfaces.chat.turn")
        except ImportError as error:
            report_missing(error, "the chat", "web")
        message = UserItem(text=text, replaces=replaces) if text is not None else None
        answered, head, choice = await asyncio.to_thread(self._claim, chat_id, message)
        turn: Turn = turns.Turn(self, chat_id, head, choice, is_first=not answered)
        self._turns[chat_id] = turn
        turn.task = asyncio.create_task(turn.run(message))
        turn.task.add_done_callback(lambda _: self._turns.pop(chat_id, None))
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._listen())
        return turn

    def session(self, chat_id: str, choice: ModelChoice, *, is_new: bool) -> Session:
        """The session of a chat, with what a skill may propose for its turn if policy grants it."""
        asker = self.app.approve or Asker(self, chat_id)
        return self.app.session(
            chat_id, approve=asker, tools=choice.tools, surface="chat", applies=("model",), is_new=is_new
        )

    def _claim(self, chat_id: str, message: UserItem | None) -> tuple[bool, Head, ModelChoice]:
        """Begin a turn. Return whether the chat had one before, its head, and the model that answers."""
        head = self._settled(chat_id)
        if message is not None and message.replaces:
            used = in_use(self.store.items(chat_id)[0])
            if not any(isinstance(item, UserItem) and item.id == message.replaces for item in used):
                raise BadArguments("there is no such message to replace")
        choice = self._choice(head)
        started = ChatTurnStarted(random_ids(), choice.provider, choice.label, choice.tools)
        title = self._redact(" ".join(message.text.split())[:TITLE_CHARACTERS]) if message is not None else ""
        return bool(head.model), self.store.claim(chat_id, head, started, title, message), choice

    async def stop(self, chat_id: str) -> None:
        turn = self.turn(chat_id)
        if turn is not None:
            turn.stop()
        elif (await asyncio.to_thread(self.store.head, chat_id)).busy:
            await self._tell({"chat": chat_id, "stop": True})

    async def answer(self, chat_id: str, item_id: str, answer: str) -> bool:
        """Answer a question, or pick a skill by its id. Return false if nothing waits for this answer."""
        head = await asyncio.to_thread(self.store.head, chat_id)
        turn = self.turn(chat_id)
        if turn is not None:
            return turn.questions.answer(item_id, answer)
        kept, _ = await asyncio.to_thread(self.store.items, chat_id)
        asked = (item for item in kept if isinstance(item, AskItem | ChoiceItem) and item.id == item_id)
        waiting = head.busy and any(item.state == "waiting" and item.takes(answer) for item in asked)
        if waiting:
            await self._tell({"chat": chat_id, "item": item_id, "answer": answer})
        return waiting

    def end(self) -> None:
        """Stop every turn. What it has is stored, and the message can be tried again."""
        for turn in list(self._turns.values()):
            turn.stop("The server was stopped during the answer. Try again.")

    async def close(self) -> None:
        """Stop every turn and wait until they have ended."""
        turns = list(self._turns.values())
        self.end()
        await asyncio.gather(*(turn.task for turn in turns if turn.task), return_exceptions=True)
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def in_thread(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        if self._threads is None:
            # A separate pool: a question to a person holds its thread until the person answers.
            self._threads = ThreadPoolExecutor(TURNS + 1, "metier-chat")
        work = functools.partial(function, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # --- other processes ---

    async def _tell(self, command: Mapping[str, object]) -> None:
        await asyncio.to_thread(self.app.store.notify, CHANNEL, json.dumps(command))

    async def _listen(self) -> None:
        """Receive the commands of other processes while a turn runs here."""
        listener = await asyncio.to_thread(self.app.store.listen, CHANNEL)
        while self._turns:
            for payload in await self.in_thread(listener.get, _LISTEN_SECONDS):
                command: dict[str, Any] = json.loads(payload)
                turn = self.turn(command["chat"])
                if turn is not None and command.get("stop"):
                    turn.stop()
                elif turn is not None:
                    turn.questions.answer(command["item"], command["answer"])

    # --- files ---

    def add_file(self, chat_id: str, name: str, data: bytes) -> FileItem:
        """Add a file to a chat, between two turns. Raises `BadArguments` or `ResourceError`."""
        check_name(name)
        if self._redact("x") != "x":
            raise ResourceError("this server keeps no content, so it can keep no files", reason="redacted")
        if self._settled(chat_id).busy:
            raise ChatBusy("a turn is running on this chat; add the file when it has ended")
        characters = len(text_of(data) or "")
        item = FileItem(name=name, size=len(data), digest=digest_of(data), characters=characters)
        known = files_of(self.store.items(chat_id)[0]) | {name: item}
        if len(known) > limits.GIVEN_FILES or sum(one.size for one in known.values()) > limits.GIVEN_BYTES:
            most = f"{limits.GIVEN_FILES} files and {limits.GIVEN_BYTES // limits.MIB} MiB"
            raise ResourceError(f"a chat can have at most {most}", reason="too-large")
        self.store.keep(chat_id, [item], [data])
        return item

    # --- reading ---

    def _settled(self, chat_id: str) -> Head:
        head = self.store.head(chat_id)
        return self.store.settle(chat_id, head) if head.lost else head

    def read(self, chat_id: str) -> tuple[Head, list[Item]]:
        """A chat as it is stored. A chat whose process died is repaired first."""
        return self.read_to(chat_id)[:2]

    def read_to(self, chat_id: str) -> tuple[Head, list[Item], int]:
        """A chat as it is stored, and the position in its stream after which it can be watched."""
        head = self._settled(chat_id)
        kept, position = self.store.items(chat_id)
        if not head.busy:
            close(kept, "it was interrupted")
        return head, kept, position

    def commands(self, typed: str, limit: int) -> list[dict[str, str]]:
        """Skills that the user can call: those whose names begin with the typed text, then those that match it."""
        skills = self.app.skills()
        if self._commands is None or self._commands[0] is not skills.catalog:
            offered = skills.session().commands()
            named = {name.lstrip("/").removeprefix("skill:"): name for name in offered}
            found = {skill.name: skill for skill in skills.catalog.skills if skill.name in named}
            self._commands = (skills.catalog, {name: (named[name], skill) for name, skill in sorted(found.items())})
        known = self._commands[1]
        chosen = [name for name in known if name.startswith(typed)][:limit]
        if typed and len(chosen) < limit:
            hits = (hit.skill.name for hit in skills.search(typed, limit=limit).results if hit.fit != "weak")
            chosen += [name for name in hits if name in known and name not in chosen][: limit - len(chosen)]
        return [{"name": name, "command": known[name][0], "description": known[name][1].description} for name in chosen]

    async def watch(self, chat_id: str, wakeup: "Subscriber", after: int = -1) -> AsyncGenerator[TurnMessage | None]:
        """Follow a chat as long as its page is open: every turn, whichever process runs it, and files in between.

        `after` is the position in the chat's stream up to which the page has the items.
        """
        position, working, first = after, False, True
        while not wakeup.ending:
            turn = self.turn(chat_id)
            told: set[str] = set()
            if turn is not None and not turn.ended:
                yield begun(turn.started_ms)
                async with contextlib.aclosing(turn.live.follow(wakeup)) as messages:
                    async for message in messages:
                        yield message
                told, working = {item.id for item in turn.live.items}, False
            try:
                head = await asyncio.to_thread(self._settled, chat_id)
                kept, position = await asyncio.to_thread(self.store.items, chat_id, position)
            except NoSuchChat:
                return
            if head.busy and not working:
                yield begun(head.updated_ms)
            for item in kept:
                if item.id not in told:
                    yield TurnMessage("item", item.as_dict())
            if not head.busy and (working or first or (kept and not told)):
                # A page that has just opened may still show a turn that has ended meanwhile.
                nothing_new = first and not (working or told or kept)
                yield idle(head.skills) if nothing_new else ended(head.skills)
            first = False
            working = head.busy
            if self.turn(chat_id) is None and not await wakeup.wait():
                yield None

    async def follow(self, chat_id: str, wakeup: "Subscriber") -> AsyncGenerator[TurnMessage | None]:
        """Follow the turn of a chat, whichever process runs it; ends at once if none is running.

        `wakeup` must be woken by new events in the stream of the chat. `None` means that a heartbeat is due.
        """
        async with contextlib.aclosing(self.watch(chat_id, wakeup)) as messages:
            async for message in messages:
                if message is None or message.event in ("item", "delta"):
                    yield message
                elif message.event in ("end", "idle"):
                    yield TurnMessage("end", message.data)
                    return
