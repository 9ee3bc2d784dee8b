"""The chats of one server: which turns are at work here, which model answers, and how a word reaches a turn elsewhere.

A turn is a task of its own and goes on when nobody watches. A stop or an answer that arrives at a process where the
turn is not at work is passed on through the store, to whichever process has it.
"""

import asyncio
import functools
import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from metier.app import App
from metier.catalog.build import Catalog
from metier.chat import model_choice as choices
from metier.chat.chat_store import Busy, Head, NoSuchChat, Shelf, close
from metier.chat.items import Item
from metier.chat.model_choice import Choice
from metier.errors import MissingExtra
from metier.model import Skill
from metier.record.events import ChatTurnStarted
from metier.record.recorder import random_ids
from metier.sandbox.stoppable import StoppableRunner, on_behalf_of
from metier.session import scripts
from metier.session.policy import Policy, Request
from metier.session.session import Session

if TYPE_CHECKING:
    from metier.chat.live import Message
    from metier.chat.turn import Answer, Turn

__all__ = ["Busy", "Chats", "NoSuchChat"]

TURNS: Final = 32
"""Turns at work in one process."""
CHANNEL: Final = "chat"
"""Of the store, on which processes tell each other of stops and answers."""
MESSAGE_CHARACTERS: Final = 200_000
TITLE_CHARACTERS: Final = 80
_LISTEN_SECONDS: Final = 1.0

T = TypeVar("T")


@dataclass(frozen=True)
class Asker:
    """Puts the questions of a chat's session to its turn; where none is at work, nobody can be asked."""

    chats: "Chats"
    chat_id: str

    def __call__(self, request: Request) -> str:
        turn = self.chats.turn(self.chat_id)
        return turn.ask(request) if turn is not None else "no"


class Chats:
    """See the module. Belongs to one event loop."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.shelf = Shelf(app.store)
        self.owner = choices.configured(app.config.model)
        self.choice = self.owner
        self._redact = Policy(redact_arguments=bool(app.config.permissions.get("redact"))).redact
        self._turns: dict[str, Turn] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._listening: asyncio.Task[None] | None = None
        self._commands: tuple[Catalog, dict[str, tuple[str, Skill]]] | None = None

    def choose(self, given: dict[str, Any]) -> Choice:
        """Let another model answer from now on; in the memory of this process only."""
        self.choice = choices.asked_for(given, self.owner)
        return self.choice

    def turn(self, chat_id: str) -> "Turn | None":
        """The turn that is at work on a chat in this process."""
        return self._turns.get(chat_id)

    # --- turns ---

    async def start(self, chat_id: str, text: str | None) -> "Turn":
        """Answer a message; without one, try the last one again."""
        if len(self._turns) >= TURNS:
            raise Busy(f"{TURNS} chats are being answered here; try again in a moment", here=True)
        try:
            turns = await asyncio.to_thread(importlib.import_module, "metier.chat.turn")
        except ImportError as error:
            raise MissingExtra("the chat", "web") from error
        chosen = self.choice
        started = ChatTurnStarted(random_ids(), chosen.provider, chosen.label, chosen.tools)
        title = self._redact(" ".join((text or "").split())[:TITLE_CHARACTERS])
        head = await asyncio.to_thread(self._settled, chat_id)
        head = await asyncio.to_thread(self.shelf.claim, chat_id, head, started, title)

        def session() -> Session:
            self._runner()
            return self.app.session(chat_id, approve=Asker(self, chat_id), tools=chosen.tools, surface="chat")

        work = functools.partial(self._work, on_behalf_of, chat_id)
        turn: Turn = turns.Turn(chat_id, head, self.shelf, chosen, session, work, self._redact)
        self._turns[chat_id] = turn
        turn.task = asyncio.create_task(turn.run(text))
        turn.task.add_done_callback(lambda _: self._turns.pop(chat_id, None))
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._listen())
        return turn

    def _runner(self) -> StoppableRunner | None:
        """The server's runner, which from now on can end the scripts of a chat."""
        runner = self.app.runner or scripts.default_runner()
        if runner is not None and not isinstance(runner, StoppableRunner):
            runner = StoppableRunner(runner)
        self.app.runner = runner
        return runner

    def _stop(self, turn: "Turn", why: str = "stopped") -> None:
        turn.stop(why)
        if isinstance(self.app.runner, StoppableRunner):
            self.app.runner.stop(turn.chat_id)

    async def stop(self, chat_id: str) -> None:
        turn = self.turn(chat_id)
        if turn is not None:
            self._stop(turn)
        elif (await asyncio.to_thread(self.shelf.head, chat_id)).busy:
            await self._tell({"chat": chat_id, "stop": True})

    async def answer(self, chat_id: str, ask_id: str, said: "Answer") -> bool:
        """Give a question its answer; false where it waits for none."""
        head = await asyncio.to_thread(self.shelf.head, chat_id)
        turn = self.turn(chat_id)
        if turn is not None:
            return turn.answer(ask_id, said)
        kept, _ = await asyncio.to_thread(self.shelf.items, chat_id)
        waiting = any(item.id == ask_id and item["state"] == "waiting" for item in kept)
        if waiting and head.busy:
            await self._tell({"chat": chat_id, "ask": ask_id, "answer": said})
        return waiting and head.busy

    def end(self) -> None:
        """Tell every turn to end: what there is is stored, and can be gone on with."""
        for turn in list(self._turns.values()):
            self._stop(turn, "The server was stopped in the middle of the answer. Try again.")

    async def close(self) -> None:
        """End, and wait for it."""
        turns = list(self._turns.values())
        self.end()
        await asyncio.gather(*(turn.task for turn in turns if turn.task), return_exceptions=True)
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def _work(self, function: Callable[..., T], *given: Any) -> T:
        if self._threads is None:
            # Threads of their own: a question to a person holds one for as long as the person thinks.
            self._threads = ThreadPoolExecutor(TURNS + 1, "metier-chat")
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *given)

    # --- other processes ---

    async def _tell(self, notice: dict[str, Any]) -> None:
        await asyncio.to_thread(self.app.store.notify, CHANNEL, json.dumps(notice))

    async def _listen(self) -> None:
        """Hear what other processes pass on, while a turn is at work here."""
        listener = await asyncio.to_thread(self.app.store.listen, CHANNEL)
        while self._turns:
            for payload in await self._work(listener.get, _LISTEN_SECONDS):
                heard: dict[str, Any] = json.loads(payload)
                turn = self.turn(heard["chat"])
                if turn is not None and heard.get("stop"):
                    self._stop(turn)
                elif turn is not None:
                    turn.answer(heard["ask"], heard["answer"])

    # --- reading ---

    def _settled(self, chat_id: str) -> Head:
        head = self.shelf.head(chat_id)
        return self.shelf.settle(chat_id, head) if head.lost else head

    def read(self, chat_id: str) -> tuple[Head, list[Item]]:
        """A chat as it is stored; one whose process died is put in order first."""
        head = self._settled(chat_id)
        kept, _ = self.shelf.items(chat_id)
        if not head.busy:
            close(kept, "it was interrupted")
        return head, kept

    def commands(self, wanted: str, limit: int) -> list[dict[str, str]]:
        """Skills that a user may call by a command: whose names begin with what was typed, then those that fit it."""
        skills = self.app.skills()
        if self._commands is None or self._commands[0] is not skills.catalog:
            offered = skills.session().commands()
            named = {name.lstrip("/").removeprefix("skill:"): name for name in offered}
            found = {skill.name: skill for skill in skills.catalog.skills if skill.name in named}
            self._commands = (skills.catalog, {name: (named[name], skill) for name, skill in sorted(found.items())})
        known = self._commands[1]
        chosen = [name for name in known if name.startswith(wanted)][:limit]
        if wanted and len(chosen) < limit:
            hits = (hit.skill.name for hit in skills.search(wanted, limit=limit).results)
            chosen += [name for name in hits if name in known and name not in chosen][: limit - len(chosen)]
        return [{"name": name, "command": known[name][0], "description": known[name][1].description} for name in chosen]

    async def follow(self, chat_id: str, news: Callable[[], Awaitable[bool]]) -> AsyncIterator["Message"]:
        """The turn that is at work, wherever it is; ends at once where there is none. `news` waits for a change."""
        turn = self.turn(chat_id)
        if turn is not None:
            async for message in turn.stage.follow():
                yield message
            return
        place = -1
        while True:
            head = await asyncio.to_thread(self._settled, chat_id)
            kept, place = await asyncio.to_thread(self.shelf.items, chat_id, place)
            for item in kept:
                yield "item", item.as_dict()
            if not head.busy:
                yield "end", {"status": "idle", "skills": list(head.skills)}
                return
            if not await news():
                yield "still", {}
