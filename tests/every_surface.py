"""Every surface of Metier for tests: what it is asked as data, and what a model or a person reads of the answer.

All surfaces take the same steps, on the same files and the same rules, and keep their events in a store of their own.
"""

import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Protocol, cast

import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

import forking
from mcp_requests import ask
from metier import MetierError
from metier.app import App
from metier.record.store import open_store
from metier.session.session import Session
from metier.surfaces.cli.registry import COMMANDS
from metier.surfaces.web.api import build
from patience import PATIENCE
from terminals import Terminal
from watching import wait_for
from worlds import World

"""How long an answer may take on a busy machine."""

Step = tuple[str, dict[str, Any]]


def call(tool: str, **args: Any) -> Step:
    return "call", {"tool": tool, "args": args}


class Surface(Protocol):
    """Takes a step and returns what a model or a person reads; an answer that is an error is an answer."""

    def __call__(self, kind: str, given: Mapping[str, Any]) -> str: ...

    def close(self) -> None: ...


def said(answer: object) -> str:
    """The text in an answer that is JSON: of a result, of a loaded skill in it, of a script, or of an error."""
    if isinstance(answer, str):
        return answer
    table = cast("Mapping[str, object]", answer) if isinstance(answer, Mapping) else {}
    for key in ("loaded", "error", "text", "stdout", "message"):
        if table.get(key):
            return said(table[key])
    return ""


class Python:
    def __init__(self, world: World, store: str, profile: str = "standard") -> None:
        self.skills = world.discover(profile)
        self.store = open_store(store)
        self.session: Session = self.skills.session(store=self.store)

    def __call__(self, kind: str, given: Mapping[str, Any]) -> str:
        if kind == "refresh":
            return str(self.skills.refresh())
        if kind == "catalog":
            return str(list(self.skills))
        if kind == "call":
            return self.session.call(given["tool"], given["args"]).text
        try:
            result = getattr(self.session, kind)(**given)
        except MetierError as error:
            return str(error)
        return result if isinstance(result, str) else result.text if result is not None else ""

    def close(self) -> None:
        self.store.close()


class CommandLine:
    """Every step a process of its own: all it knows of the steps before is in the store."""

    def __init__(self, world: World, store: str, profile: str = "standard") -> None:
        self.line = ["--store", store, "--session", "parity", "--json", "--profile", profile]
        self.where: dict[str, Any] = {"cwd": world.project, "env": {**os.environ, "HOME": str(world.home)}}

    def __call__(self, kind: str, given: Mapping[str, Any]) -> str:
        command = [*forking.METIER, *self.words(kind, given), *self.line]
        done = forking.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **self.where)
        assert done.returncode in (0, 1, 3, 4), done.stderr
        return said(json.loads(done.stdout)) if done.stdout else done.stderr.strip()

    def words(self, kind: str, given: Mapping[str, Any]) -> list[str]:
        left = dict(given)
        match kind:
            case "refresh" | "catalog":
                return ["list"]
            case "end_turn":
                return ["session", "end-turn"]
            case "call":
                return ["session", "call", left["tool"], json.dumps(left["args"])]
            case "read":
                words = ["read", left.pop("name"), *([left.pop("path")] if left.get("path") else [])]
                left.pop("path", None)
            case "run":
                words = ["run", left.pop("name"), left.pop("script")]
            case _:
                key = {"search": "query", "invoke": "message", "output": "ref"}.get(kind, "name")
                command = [kind] if kind in COMMANDS else ["session", kind.replace("_", "-")]
                words = [*command, *([left.pop(key)] if key in left else [])]
        arguments = left.pop("arguments", [])
        if isinstance(arguments, str):
            words += ["--args", arguments] if arguments else []
            arguments = []
        words += ["--raw"] if left.pop("raw", False) else []
        for key, value in left.items():
            words += [f"--{key}", str(value)]
        # The shared options stand behind, so a script's own arguments come before them only with a separator.
        return [*words, *arguments] if not any(one.startswith("-") for one in arguments) else words

    def close(self) -> None:
        pass


class JsonRpc:
    def __init__(self, world: World, store: str, profile: str = "standard") -> None:
        line = [*forking.METIER, "rpc", *_place(world, store, profile)]
        self.process = forking.start(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, kind: str, given: Mapping[str, Any]) -> str:
        if kind in ("catalog", "refresh"):
            return said(self.ask("skills.list", {"force_reload": kind == "refresh"}))
        return said(self.ask(f"session.{kind}", given))

    def ask(self, method: str, params: Mapping[str, Any]) -> object:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        while "id" not in (answer := json.loads(self.process.stdout.readline())):
            pass  # a notification
        return answer.get("result", answer.get("error"))

    def close(self) -> None:
        _end(self.process)


class Http:
    def __init__(self, world: World, store: str, profile: str = "standard") -> None:
        self.app = App(world.project, home=world.home, profile=profile, store=store, surface="http")
        config = uvicorn.Config(build(self.app), "127.0.0.1", 0, log_level="error", ws="none")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        wait_for(lambda: self.server.started, "the start of the server")
        (socket,) = self.server.servers[0].sockets
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{socket.getsockname()[1]}", timeout=PATIENCE)
        self.session = self.client.post("/api/sessions", json={}).json()["session_id"]

    def __call__(self, kind: str, given: Mapping[str, Any]) -> str:
        if kind == "catalog":
            return self.client.get("/api/skills").text
        if kind == "refresh":
            message = {"jsonrpc": "2.0", "id": 1, "method": "skills.list", "params": {"force_reload": True}}
            return self.client.post("/rpc", json=message).text
        body = {key: value for key, value in given.items() if value is not None}
        answer = self.client.post(f"/api/sessions/{self.session}/{kind}", json=body)
        assert answer.status_code in (200, 204, 403, 404, 409, 422), answer.text
        return said(answer.json()) if answer.content else ""

    def close(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join()
        self.app.close()


class Mcp:
    """A client of the official SDK in a loop of its own, on `metier mcp`."""

    def __init__(self, world: World, store: str, profile: str = "standard") -> None:
        line = [*forking.program("mcp"), *_place(world, store, profile)]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.done = asyncio.Event()
        self.ready = threading.Event()
        self.life = asyncio.run_coroutine_threadsafe(self._live(line), self.loop)
        assert self.ready.wait(PATIENCE)

    async def _live(self, line: list[str]) -> None:
        server = StdioServerParameters(command=line[0], args=line[1:], env=dict(os.environ))
        async with Client(server, cache=None) as self.client:
            self.ready.set()
            await self.done.wait()

    def __call__(self, kind: str, given: Mapping[str, Any]) -> str:
        return asyncio.run_coroutine_threadsafe(self._step(kind, given), self.loop).result()

    async def _step(self, kind: str, given: Mapping[str, Any]) -> str:
        try:
            match kind:
                case "catalog":
                    return str(await ask(self.client, "skills/list"))
                case "call":
                    return _texts((await self.client.call_tool(given["tool"], given["args"])).content)
                case "read":
                    return str(await self.client.read_resource(given["name"]))
                case "invoke":
                    word, _, arguments = given["message"].partition(" ")
                    name = word.removeprefix("/").removeprefix("skill:")
                    prompt = await self.client.get_prompt(name, {"arguments": arguments} if arguments else {})
                    return _texts([message.content for message in prompt.messages])
                case "refresh":
                    return await self._changed()
                case _:
                    return said(await ask(self.client, f"metier/{kind}", **given))
        except MCPError as error:
            return error.error.message

    async def _changed(self) -> str:
        """The server looks by itself. The tests edit a description."""
        async with asyncio.timeout(PATIENCE):
            while True:
                prompts = (await self.client.list_prompts()).prompts
                if any("edited" in (prompt.description or "") for prompt in prompts):
                    return ""
                await asyncio.sleep(0.05)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.done.set)
        self.life.result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Picker:
    """`metier pick --print load` in a real terminal, where a person can do one thing: load a skill."""

    def __init__(self, world: World, store: str, profile: str = "standard") -> None:
        self.world, self.number = world, 0
        self.line = f"--print load --store {shlex.quote(store)} --session parity --profile {profile}"

    def __call__(self, kind: str, given: Mapping[str, Any]) -> str:
        assert kind == "load"
        name = os.path.basename(os.path.dirname(given["path"]))
        self.number += 1
        said, code = self.world.home / f"said-{self.number}", self.world.home / f"code-{self.number}"
        terminal = Terminal(self.world, self.world.home / f"tmux-{self.number}")
        try:
            terminal.run(f"metier pick {name} {self.line} >{said} 2>&1; echo $? >{code}; echo done")
            terminal.until(" of ")
            terminal.keys("Enter")
            wait_for(lambda: code.exists() and code.read_text() != "", "the end of the picker")
        finally:
            terminal.close()
        return said.read_text().rstrip("\n")

    def close(self) -> None:
        pass


def _place(world: World, store: str, profile: str) -> list[str]:
    return ["--cwd", str(world.project), "--home", str(world.home), "--store", store, "--profile", profile]


def _texts(contents: list[Any]) -> str:
    return "".join(getattr(content, "text", "") for content in contents)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


SURFACES: Final[Mapping[str, Callable[[World, str, str], Surface]]] = {
    "python": Python,
    "cli": CommandLine,
    "rpc": JsonRpc,
    "http": Http,
    "mcp": Mcp,
    "tui": Picker,
}
OF_A_MODEL: Final = ("python", "cli", "rpc", "http", "mcp")
"""The surfaces through which a model's tool call can come."""


@contextlib.contextmanager
def opened(name: str, world: World, store: str, profile: str = "standard") -> Generator[Surface, None, None]:
    surface = SURFACES[name](world, store, profile)
    try:
        yield surface
    finally:
        surface.close()
