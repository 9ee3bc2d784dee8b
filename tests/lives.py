"""Sessions over real processes: `metier rpc` and commands on one SQLite store, and the replay of what they wrote."""

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import forking
from metier import replay
from metier.record.store import Frame, open_store
from patience import PATIENCE
from worlds import World

"""How long an answer may take on a busy machine."""


class RpcFailure(Exception):
    """An error that a process answered with."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.data: dict[str, Any] = error.get("data", {})
        super().__init__(error["message"])


class Rpc:
    """A `metier rpc` process and its client. Messages that are no answers are passed over."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log
        self._ids = itertools.count()
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        with contextlib.suppress(ValueError):
            for line in lines:
                message = json.loads(line)
                if "id" in message:
                    self._answers[message["id"]].put(message)

    def send(self, method: str, **params: object) -> int:
        """Send a call, and return its number for `receive`."""
        number = next(self._ids)
        self._answers[number] = queue.SimpleQueue()
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return number

    def receive(self, number: int) -> Any:
        answer = self._answers[number].get()
        if "error" in answer:
            raise RpcFailure(answer["error"])
        return answer["result"]

    def call(self, method: str, **params: object) -> Any:
        return self.receive(self.send(method, **params))

    def tool(self, session: str, tool: str, **arguments: object) -> dict[str, Any]:
        """A model's tool call."""
        return self.call("session.call", session_id=session, tool=tool, args=arguments)

    def refresh(self) -> None:
        """Scan the disk again, without waiting for the watcher."""
        self.call("skills.list", force_reload=True)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> int:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self._reader.join()
        return code


@dataclass
class Lives:
    """A project whose sessions several processes share."""

    world: World
    url: str
    profile: str = "standard"
    shared: Sequence[str] = field(default_factory=tuple[str, ...])

    @property
    def place(self) -> list[str]:
        given = ["--cwd", str(self.world.project), "--home", str(self.world.home), "--store", self.url]
        return [*given, "--profile", self.profile, *self.shared]

    def permissions(self, text: str) -> None:
        """What the user's own file allows, from the next process on."""
        folder = self.world.home / ".config" / "metier"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)

    @contextlib.contextmanager
    def rpc(self, *more: str) -> Generator[Rpc, None, None]:
        command = [*forking.METIER, "rpc", *self.place]
        log = self.world.home / f"rpc-{os.urandom(4).hex()}.log"
        with (
            log.open("wb") as stderr,
            forking.start([*command, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as process,
        ):
            client = Rpc(process, log)
            try:
                yield client
            finally:
                if process.poll() is None:
                    try:
                        client.close()
                    except subprocess.TimeoutExpired:
                        process.kill()

    def run(self, *arguments: str, code: int = 0) -> str:
        """A command in a process of its own; what it printed, or what it said if it ended with another code."""
        command = [*forking.METIER, *arguments, *self.place]
        done = forking.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    def frames(self, session: str) -> list[Frame]:
        with open_store(self.url) as store:
            return store.read(session)

    def replayed(self, session: str) -> replay.ReplayOutcome:
        """The replay of a session, which must be what was recorded."""
        with open_store(self.url) as store:
            outcome = replay.replay(replay.from_store(store, session))
            assert [one.as_dict() for one in outcome.differences] == []
            assert [frame["seq"] for frame in outcome.frames] == list(range(len(outcome.frames)))
            times = [frame["timestamp_ms"] for frame in outcome.frames]
            assert times == sorted(times)
            return outcome
