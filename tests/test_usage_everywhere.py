"""Usage at the far end: sessions on real surfaces, counted by other processes, and on every surface with one result."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from every_surface import Http, JsonRpc, Mcp, opened
from forking import METIER
from metier.adapters.conversation import Conversation
from metier.record.store import open_store
from parts import needs
from worlds import World

pytestmark = pytest.mark.system

SKILLS = ".agents/skills"
RULES = """
[permissions]
allow = [{tool = "skill_run", skill_name = "measure"}]
deny = [{tool = "skill_run", skill_name = "boil"}]
"""


@pytest.fixture
def library(world: World) -> World:
    files = {"references/a.md": "A reference.\n", "scripts/say.sh": "#!/bin/sh\necho twelve boards\n"}
    world.skill(f"{SKILLS}/measure", description="Measures timber.", body="# Measure twice\n", files=files)
    world.skill(f"{SKILLS}/boil", description="Boils eggs.", files=files)
    world.skill(f"{SKILLS}/idle", description="Is never used.")
    world.trust()
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(RULES)
    return world


def counted(world: World, store: str, *options: str) -> Any:
    """What `metier usage --json` prints in a process of its own."""
    line = [*METIER, "usage", "--json", "--store", store, "--home", str(world.home), *options]
    done = subprocess.run(line, cwd=world.project, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def by_name(found: Any) -> dict[str, Any]:
    return {one["name"]: one for one in found["skills"]}


@needs("bwrap")
def test_what_a_client_of_mcp_was_shown_and_did_is_counted_by_another_process(library: World, tmp_path: Path) -> None:
    store = str(tmp_path / "mcp.db")
    with opened("mcp", library, store) as client:
        assert isinstance(client, Mcp)
        instructions = client.client.instructions or ""
        tools = asyncio.run_coroutine_threadsafe(client.client.list_tools(), client.loop).result().tools
        client("call", {"tool": "skill_search", "args": {"query": "timber"}})
        load = client("call", {"tool": "skill_load", "args": {"name": "measure"}})
        read = client("call", {"tool": "skill_read", "args": {"name": "measure", "path": "references/a.md"}})
        ran = client("call", {"tool": "skill_run", "args": {"name": "measure", "script": "scripts/say.sh"}})
        client("call", {"tool": "skill_load", "args": {"name": "boil"}})
        client("call", {"tool": "skill_run", "args": {"name": "boil", "script": "scripts/say.sh"}})
    found = counted(library, store)
    skills = by_name(found)
    measure = skills["measure"]
    assert (found["sessions"], found["never_loaded"]) == (1, ["idle"])
    assert [skills[name]["offered"] for name in ("measure", "boil", "idle")] == [1, 1, 1]
    wanted = {"found": 1, "loaded": 1, "read": 1, "ran": 1, "refused": 0}
    assert {key: measure[key] for key in wanted} == wanted
    assert (skills["boil"]["ran"], skills["boil"]["refused"]) == (0, 1)
    described = "\n".join([instructions, *(tool.description or "" for tool in tools)])
    lines = [line for line in described.split("\n") if line == "- measure: Measures timber."]
    assert len(lines) == 2
    assert measure["characters"] == sum(map(len, (*lines, load, read, ran)))
    assert measure["share"] == round(measure["characters"] / found["characters"], 4)


def test_an_adapter_offers_what_its_request_shows(library: World, tmp_path: Path) -> None:
    store = str(tmp_path / "adapter.db")
    with open_store(store) as kept:
        own = Conversation(library.discover().session(store=kept))
        prompts = [own.system("Be kind.", [text], text).text for text in ("Hi.", "Measure.")]
        assert own.tools()
        own.call("skill_load", {"name": "measure"})
    assert len({*prompts}) == 1
    measure = by_name(counted(library, store))["measure"]
    assert (measure["offered"], measure["loaded"]) == (1, 1)
    (entry,) = [line for line in prompts[0].split("\n") if "<name>measure</name>" in line]
    assert measure["characters"] > len(entry)


def test_every_surface_counts_the_same(library: World, tmp_path: Path) -> None:
    store = str(tmp_path / "all.db")
    with opened("rpc", library, store) as client:
        assert isinstance(client, JsonRpc)
        client("system_prompt", {"base": "Be kind."})
        client("call", {"tool": "skill_load", "args": {"name": "measure"}})
        everything, wanted = {}, {"skill": "measure", "since": "1h", "sort": "loaded"}
        everything["rpc"] = [client.ask("usage.count", {}), client.ask("usage.count", wanted)]
        session = client.ask("session.state", {})
        wrong = client.ask("usage.count", {"sort": "nonsense"}), client.ask("usage.count", {"session": "nowhere"})
    assert isinstance(session, dict)
    assert "sort" in str(wrong[0])
    assert "there is no session 'nowhere'" in str(wrong[1])
    options = [f"--{key}={value}" for key, value in wanted.items()]
    everything["cli"] = [counted(library, store), counted(library, store, *options)]
    server = Http(library, store)  # it begins a session, which counts only where none is named
    try:
        chosen: Any = {"session": session["id"]}
        answers = [server.client.get("/api/usage", params=chosen | more) for more in ({}, wanted)]
        everything["http"] = [answer.json() for answer in answers]
        refused = [refusal(server.client, **given) for given in ({"since": "soon"}, {"session": "x"}, {"sort": "x"})]
    finally:
        server.close()
    assert everything["rpc"] == everything["cli"] == everything["http"]
    assert by_name(everything["cli"][0])["measure"]["loaded"] == 1
    assert [one["name"] for one in everything["cli"][1]["skills"]] == ["measure"]
    assert [status for status, _ in refused] == [422, 404, 400]
    assert ["30m, 12h, 7d or 4w" in refused[0][1], "no session 'x'" in refused[1][1]] == [True, True]


def refusal(client: httpx2.Client, **given: str) -> tuple[int, str]:
    answer = client.get("/api/usage", params=given)
    return answer.status_code, answer.json()["error"]["message"]
