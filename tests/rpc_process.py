"""The other end of `metier rpc`, which runs in a process of its own."""

import json
import subprocess
from typing import Any

import forking
from piping import reading
from worlds import World


class RpcProcess:
    """A client of `metier rpc`. Every wait is bounded."""

    def __init__(self, world: World, *options: str) -> None:
        line = [*forking.METIER, "rpc", "--store", "memory:", *options]
        line += ["--cwd", str(world.project), "--home", str(world.home)]
        self.process = forking.start(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines = reading(self.process.stdout)

    def send(self, id_: object, method: str, **params: object) -> None:
        self.write({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})

    def write(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        return json.loads(self._lines.get())

    def call(self, method: str, **params: object) -> Any:
        self.send(method, method, **params)
        got = self.receive()
        assert got["id"] == method, got
        return got.get("result", got.get("error"))

    def answer(self, id_: str, answer: str) -> None:
        self.write({"jsonrpc": "2.0", "id": id_, "result": {"answer": answer}})

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        self.close_input()
        assert self.process.wait() == 0
