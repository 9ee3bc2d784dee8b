"""One scenario through every surface: whoever drives a session, the same happens, and the record says the same."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from mcp_requests import ask
from metier import MetierError
from metier.app import App
from metier.record.store import Frame, open_store
from metier.replay import from_store, replay
from metier.session.session import Session
from metier.web.api import build
from worlds import World

METIER = (sys.executable, "-c", "from metier.cli import main; main()")
RULES = """
[permissions]
allow = [{tool = "skill_run", skill_name = "probe"}]
deny = [{tool = "skill_load", skill_name = "secret"}, {tool = "skill_run", skill_name = "notes"}]
"""
EDITED = "probe's description, edited"
THEN, LATER = 1_700_000_000, 1_700_000_100

Step = tuple[str, dict[str, Any]]


def call(tool: str, **args: Any) -> Step:
    return "call", {"tool": tool, "args": args}


def read(name: str, path: str | None = None, **given: Any) -> Step:
    return "read", {"name": name, "path": path, "by": "model", "raw": True, **given}


SCENARIO: tuple[Step, ...] = (
    ("catalog", {}),
    call("skill_search", query="probe the system"),
    call("skill_search", query="notes about meetings", limit=1),
    call("skill_search", query="zebra crossing"),
    call("skill_search", query="probe", scope="repo"),
    call("skill_search"),
    call("skill_load", name="probe"),
    call("skill_load", name="probe"),
    call("skill_load", name="probe", arguments="with arguments"),
    call("skill_load", name="notes", parent="probe"),
    call("skill_load", name="probe", parent="notes"),
    call("skill_load", name="no-such"),
    call("skill_load", name="secret"),
    call("skill_load", name="hidden"),
    call("skill_load", name=3),
    call("skill_load", nonsense="x"),
    call("no_such_tool"),
    call("skill_read", name="probe", path="references/a.md"),
    call("skill_read", name="probe", path="no-such.md"),
    call("skill_read", name="probe", path="../notes/SKILL.md"),
    call("skill_read", name="probe", path="/etc/passwd"),
    call("skill_read", name="probe", path="link.md"),
    call("skill_read", name="probe", path="bin.dat"),
    call("skill_read", name="hidden", path="SKILL.md"),
    read("skill://probe/references/a.md"),
    read("skill://probe/bin.dat"),
    read("skill://probe/SKILL.md"),
    read("skill://probe/references/../../notes/SKILL.md"),
    read("skill://probe/link.md"),
    read("skill://secret/SKILL.md"),
    read("skill://probe/no-such.md"),
    call("skill_run", name="probe", script="scripts/hello.sh", arguments=["a b", "c"]),
    call("skill_run", name="probe", script="scripts/fails.sh"),
    call("skill_run", name="probe", script="scripts/no-such.sh"),
    call("skill_run", name="notes", script="scripts/hello.sh"),
    call("skill_run", name="probe", script="../notes/scripts/hello.sh"),
    ("invoke", {"message": "/notes about today"}),
    ("invoke", {"message": "/probe"}),
    ("compact", {"budget": 100_000}),
    ("compact", {"budget": 200}),
    ("edit", {}),
    call("skill_search", query="edited"),
    call("skill_load", name="probe"),
    call("skill_load", name="probe"),
    ("compact", {"budget": 100_000}),
)

DIRECT: tuple[Step, ...] = (
    ("search", {"query": "probe the system"}),
    ("search", {"query": "probe", "by": "model", "limit": 1}),
    ("load", {"name": "probe", "arguments": "x y"}),
    ("load", {"name": "probe", "arguments": "x y", "by": "model"}),
    ("load", {"name": "hidden", "by": "model"}),
    ("load", {"name": "hidden"}),
    ("load", {"name": "secret"}),
    ("read", {"name": "probe", "path": "references/a.md"}),
    ("read", {"name": "probe", "path": "bin.dat"}),
    ("read", {"name": "probe", "path": "bin.dat", "raw": True}),
    ("read", {"name": "probe", "path": "../x"}),
    ("run", {"name": "probe", "script": "scripts/hello.sh", "arguments": ["one"]}),
    ("run", {"name": "notes", "script": "scripts/hello.sh", "by": "model"}),
    ("output", {"ref": "skill-000000000000"}),
    ("edit", {}),
    ("load", {"name": "probe"}),
    ("invoke", {"message": "nothing is called here"}),
    ("compact", {"budget": 300}),
)


@pytest.fixture
def library(world: World) -> World:
    """Skills of every sort that the scenario needs, with times that do not change from one surface to the next."""
    for name in ("probe", "notes"):
        scripts = {"scripts/hello.sh": '#!/bin/sh\necho "hello $*"\n', "scripts/fails.sh": "#!/bin/sh\nexit 3\n"}
        files = {"references/a.md": f"a reference of {name}\n", "bin.dat": b"\0\1\xff", **scripts}
        folder = world.skill(f".agents/skills/{name}", body=f"# {name}\n$ARGUMENTS\n", files=files)
        for script in scripts:
            (folder.parent if folder.is_file() else folder).joinpath(script).chmod(0o755)
    world.skill(".agents/skills/secret", body="# denied by policy\n")
    world.skill(".agents/skills/hidden", body="# not for models\n", disable_model_invocation=True)
    (world.project / ".agents/skills/probe/link.md").symlink_to("/etc/hostname")
    world.trust()  # rules by name do not cover the skills of other projects
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(RULES)
    return world


def edit(world: World, description: str, when: int) -> None:
    file = world.project / ".agents/skills/probe/SKILL.md"
    file.write_text(f"---\nname: probe\ndescription: {description}\n---\n# probe\n$ARGUMENTS\n{description}\n")
    os.utime(file, (when, when))


def reset(world: World) -> None:
    edit(world, "Probes the system.", THEN)
    for folder, _, files in os.walk(world.project / ".agents"):
        for name in files:
            if not os.path.islink(os.path.join(folder, name)):
                os.utime(os.path.join(folder, name), (THEN, THEN))


def plain(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}


# --- the surfaces ---


class Surface(Protocol):
    """Takes a step of the scenario; an answer that is an error is an answer."""

    def __call__(self, kind: str, given: Mapping[str, Any]) -> object: ...


class Python:
    def __init__(self, world: World, store: str) -> None:
        self.skills = world.discover()
        self.store = open_store(store)
        self.session: Session = self.skills.session(store=self.store)

    def __call__(self, kind: str, given: Mapping[str, Any]) -> object:
        if kind == "refresh":
            return self.skills.refresh()
        if kind == "catalog":
            return list(self.skills)
        if kind == "call":
            return self.session.call(given["tool"], given["args"])
        with contextlib.suppress(MetierError):
            return getattr(self.session, kind)(**given)

    def close(self) -> None:
        self.store.close()


class CommandLine:
    """Every step a process of its own: all it knows of the steps before is in the store."""

    def __init__(self, world: World, store: str) -> None:
        self.world, self.line = world, ["--store", store, "--session", "parity", "--json"]

    def __call__(self, kind: str, given: Mapping[str, Any]) -> object:
        done = subprocess.run(
            [*METIER, *self.words(kind, given), *self.line],
            cwd=self.world.project, env={**os.environ, "HOME": str(self.world.home)}, input=b"", capture_output=True,
        )  # fmt: skip
        assert done.returncode in (0, 1, 3), done.stderr.decode()
        return done

    def words(self, kind: str, given: Mapping[str, Any]) -> list[str]:
        left = dict(given)
        match kind:
            case "refresh" | "catalog":
                return ["list"]
            case "call":
                return ["call", left["tool"], json.dumps(left["args"])]
            case "read":
                words = ["read", left.pop("name"), *([left.pop("path")] if left.get("path") else [])]
                left.pop("path", None)
            case "run":
                words = ["run", left.pop("name"), left.pop("script")]
            case _:
                key = {"search": "query", "invoke": "message", "output": "ref"}.get(kind, "name")
                words = [kind, *([left.pop(key)] if key in left else [])]
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
    def __init__(self, world: World, store: str) -> None:
        line = [*METIER, "rpc", "--cwd", str(world.project), "--home", str(world.home), "--store", store]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, kind: str, given: Mapping[str, Any]) -> object:
        if kind in ("catalog", "refresh"):
            return self.ask("skills.list", {"force_reload": kind == "refresh"})
        return self.ask(f"session.{kind}", given)

    def ask(self, method: str, params: Mapping[str, Any]) -> object:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        while "id" not in (answer := json.loads(self.process.stdout.readline())):
            pass  # a notification
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


class Http:
    def __init__(self, world: World, store: str) -> None:
        self.app = App(world.project, home=world.home, store=store, surface="http")
        config = uvicorn.Config(build(self.app), "127.0.0.1", 0, log_level="error", ws="none")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        (socket,) = self.server.servers[0].sockets
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{socket.getsockname()[1]}", timeout=60)
        self.session = self.client.post("/api/sessions", json={}).json()["session_id"]

    def __call__(self, kind: str, given: Mapping[str, Any]) -> object:
        if kind == "catalog":
            return self.client.get("/api/skills")
        if kind == "refresh":
            message = {"jsonrpc": "2.0", "id": 1, "method": "skills.list", "params": {"force_reload": True}}
            return self.client.post("/rpc", json=message)
        answer = self.client.post(f"/api/sessions/{self.session}/{kind}", json=plain(given))
        assert answer.status_code in (200, 403, 404, 409, 422), answer.text
        return answer

    def close(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join(20)
        self.app.close()


class Mcp:
    """A client of the official SDK in a loop of its own, on `metier mcp`."""

    def __init__(self, world: World, store: str) -> None:
        line = [*METIER, "mcp", "--cwd", str(world.project), "--home", str(world.home), "--store", store]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.done = asyncio.Event()
        self.ready = threading.Event()
        self.life = asyncio.run_coroutine_threadsafe(self._live(line), self.loop)
        assert self.ready.wait(60)

    async def _live(self, line: list[str]) -> None:
        async with Client(StdioServerParameters(command=line[0], args=line[1:]), cache=None) as self.client:
            self.ready.set()
            await self.done.wait()

    def __call__(self, kind: str, given: Mapping[str, Any]) -> object:
        return asyncio.run_coroutine_threadsafe(self._step(kind, given), self.loop).result(60)

    async def _step(self, kind: str, given: Mapping[str, Any]) -> object:
        with contextlib.suppress(MCPError):
            match kind:
                case "catalog":
                    return await ask(self.client, "skills/list")
                case "call":
                    return await self.client.call_tool(given["tool"], given["args"])
                case "read":
                    return await self.client.read_resource(given["name"])
                case "invoke":
                    name, _, arguments = given["message"].partition(" ")
                    return await self.client.get_prompt(name[1:], {"arguments": arguments} if arguments else {})
                case "refresh":
                    while True:  # the server looks by itself
                        prompts = (await self.client.list_prompts()).prompts
                        if any(prompt.description == EDITED for prompt in prompts):
                            return None
                        await asyncio.sleep(0.05)
                case _:
                    return await ask(self.client, f"metier/{kind}", **given)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.done.set)
        self.life.result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()


SURFACES: dict[str, Callable[[World, str], Any]] = {
    "python": Python,
    "cli": CommandLine,
    "rpc": JsonRpc,
    "http": Http,
    "mcp": Mcp,
}


@contextlib.contextmanager
def opened(name: str, world: World, store: str) -> Generator[Surface, None, None]:
    surface = SURFACES[name](world, store)
    try:
        yield surface
    finally:
        surface.close()


def drive(name: str, world: World, folder: Path, steps: tuple[Step, ...]) -> list[Frame]:
    """The frames that a surface leaves behind; a replay of them must give the same bytes."""
    reset(world)
    store = str(folder / f"{name}.db")
    with opened(name, world, store) as surface:
        for kind, given in steps:
            if kind == "edit":
                edit(world, EDITED, LATER)
                surface("refresh", {})
            else:
                surface(kind, given)
    with open_store(store) as kept:
        (session,) = {frame["session_id"] for frame in kept.read()}
        outcome = replay(from_store(kept, session))
        assert outcome.identical, outcome.differences[:2]
        return kept.read(session)


def comparable(frames: list[Frame]) -> list[dict[str, Any]]:
    """Frames without ids, times, hashes and the names of the surface and the process."""
    aside = {
        "id",
        "session_id",
        "stream_id",
        "timestamp_ms",
        "surface",
        "duration_ms",
        "op",
        "life",
        "chain",
        "process",
    }
    return [{key: value for key, value in frame.items() if key not in aside} for frame in frames]


def check_parity(names: list[str], world: World, folder: Path, steps: tuple[Step, ...]) -> list[Frame]:
    records = {name: drive(name, world, folder, steps) for name in names}
    expected = comparable(records["python"])
    for name, frames in records.items():
        said = [frame["surface"] for frame in frames if frame["type"] == "session_started"]
        assert said == [name]
        for number, (one, other) in enumerate(zip(expected, comparable(frames), strict=False)):
            assert one == other, f"frame {number} of {name}"
        assert len(frames) == len(expected), name
    return records["python"]


@pytest.mark.behaviour("R-046")
def test_one_scenario_leaves_the_same_events_on_every_surface(library: World, tmp_path: Path) -> None:
    assert len(SCENARIO) >= 40
    frames = check_parity(list(SURFACES), library, tmp_path, SCENARIO)
    kinds = [frame["type"] for frame in frames]
    for kind in ("skills_searched", "skill_loaded", "skill_resource_read", "skill_resource_refused", "tool_ended"):
        assert kind in kinds
    assert kinds.count("skill_catalog_updated") == 2
    reasons = {frame["reason"] for frame in frames if frame["type"] == "skill_resource_refused"}
    assert {"link", "not-found", "binary"} <= reasons
    codes = {frame.get("code") for frame in frames if frame["type"] == "session_returned"}
    assert {"ACCESS_DENIED", "NOT_FOUND", "INVALID_PARAM", "SkillNotFound", "PathEscape"} <= codes


@pytest.mark.behaviour("R-046")
def test_what_a_host_does_itself_leaves_the_same_events_wherever_it_can_do_it(library: World, tmp_path: Path) -> None:
    frames = check_parity(["python", "cli", "rpc", "http"], library, tmp_path, DIRECT)
    assert {"manual", "auto"} <= {frame["mode"] for frame in frames if frame["type"] == "skill_invoked"}
