"""A server that is killed under load has lost nothing that it had acknowledged: the next process finds all of it."""

import signal
import threading
from pathlib import Path

import httpx2
import pytest
from processes import Process, serve

from metier.record import chain
from metier.record.store import open_store
from patience import PATIENCE
from worlds import World

pytestmark = pytest.mark.system

CLIENTS = 12
CALLS = 10
"""How many calls of each client are acknowledged before the kill."""


class Client:
    """Searches for words of its own, one after the other, and notes which searches were acknowledged."""

    def __init__(self, server: Process, number: int, enough: threading.Barrier) -> None:
        self.session = server.begin()
        self.acknowledged: list[str] = []
        self._http, self._number, self._enough = server.connected(), number, enough
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            word = f"word-{self._number}-{len(self.acknowledged)}"
            call = {"tool": "skill_search", "args": {"query": word}}
            try:
                answer = self._http.post(f"/api/sessions/{self.session}/call", json=call)
            except httpx2.TransportError:
                return
            assert answer.json()["ok"]
            self.acknowledged.append(word)
            if len(self.acknowledged) == CALLS:
                self._enough.wait(PATIENCE)

    def end(self) -> None:
        self._thread.join()
        assert not self._thread.is_alive()


def test_the_next_process_finds_all_that_a_killed_server_acknowledged(world: World, tmp_path: Path) -> None:
    world.skill(".agents/skills/alpha")
    enough = threading.Barrier(CLIENTS + 1)
    url = f"sqlite:///{tmp_path}/events.db"
    with serve(world, store=url) as server:
        clients = [Client(server, number, enough) for number in range(CLIENTS)]
        enough.wait(PATIENCE)  # from here on all clients are in the middle of something
        server.end(signal.SIGKILL)
        for client in clients:
            client.end()
    with open_store(url) as store:
        for client in clients:
            frames = store.read(client.session, client.session)
            assert [frame["seq"] for frame in frames] == list(range(len(frames)))
            assert not list(chain.breaks(frames))
            kept = [frame["query"] for frame in frames if frame["type"] == "skills_searched"]
            assert kept[: len(client.acknowledged)] == client.acknowledged
            assert len(kept) <= len(client.acknowledged) + 1, "at most the call whose answer was lost"
            assert len(client.acknowledged) >= CALLS
