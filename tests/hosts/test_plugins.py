"""A stranger's host, installed as a package: its profile and its formats work on every surface.

The package is the one that the page "Write a profile for your host" builds, block by block.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from starlette.testclient import TestClient

from metier import ConfigError, Skills
from metier.app import App
from metier.authoring import check
from metier.hosts import formats
from metier.record.store import open_store
from metier.replay import from_store, replay
from metier.surfaces.mcp.handlers import RESULT_KEY
from metier.surfaces.mcp.server import McpServer
from metier.surfaces.rpc import Dispatcher
from metier.surfaces.web.api import build
from worlds import World

PAGE = Path(__file__).parents[2] / "docs" / "write-a-profile.md"
LISTING = "Recipes:\n1. bread: Bakes bread.\n2. soup: Cooks soup."
WRAPPED = "## Recipe bread\n\n# Bread\n- flour\n- water for two\n"
CALL = {"recipe": "bread", "notes": "two"}
RESULT = {"recipe": "bread", "steps": 2, "markdown": WRAPPED}


def blocks() -> dict[str, str]:
    found = re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    return dict(found)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages with the one of the page in it."""
    folder, written = tmp_path / "site", blocks()
    (folder / "quill").mkdir(parents=True)
    for name in ("quill/profile.toml", "quill/__init__.py"):
        (folder / name).write_text(written[name])
    info = folder / "quill_metier-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quill-metier\nVersion: 1.0\n")
    entry = re.search(r'\[project\.entry-points\."metier\.hosts"\]\n(\w+) = "(\w+)"', written["pyproject.toml"])
    assert entry is not None
    (info / "entry_points.txt").write_text(f"[metier.hosts]\n{entry[1]} = {entry[2]}\n")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("quill", None)
    formats.find.cache_clear()


@pytest.fixture
def kitchen(world: World, site: Path) -> World:
    world.skill(
        ".quill/recipes/bread",
        "Other Name",
        description="Bakes bread.",
        body="# Bread\n- flour\n- water for $ARGUMENTS\n",
    )
    world.skill(".quill/recipes/soup", description="Cooks soup.", body="# Soup\n")
    world.skill(".quill/recipes/secret", description="Hidden.", hide=True)
    return world


def test_python_has_the_host_its_record_replays_and_a_check_knows_it(kitchen: World) -> None:
    store = open_store("memory:")
    session = kitchen.discover("quill").session(store=store)
    assert session.prompt().text == LISTING
    assert [tool.name for tool in session.tools()] == ["use_recipe"]
    assert session.tools()[0].input_schema["required"] == ["recipe"]
    assert session.call("use_recipe", CALL).data == RESULT
    wrong = session.call("use_recipe", {"recipe": "cake"})
    assert (wrong.ok, set(wrong.data)) == (False, {"burnt", "code"})
    assert "recipe" in session.call("use_recipe", {}).text
    assert session.invoke("make $bread please").text == WRAPPED.replace("two", "$ARGUMENTS")
    assert replay(from_store(store, session.id)).identical
    (verdict,) = check.verdicts(kitchen.project / ".quill/recipes/bread", ["quill"], kitchen.project, kitchen.home)
    assert (verdict.status, verdict.name, verdict.model) == ("offered", "bread", True)


def test_formats_that_know_nothing_of_choices_lose_no_skill(kitchen: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that was written before messages could add to a cut listing shows its `skills` alone."""
    for number in range(80):
        kitchen.skill(f".quill/recipes/dish-{number}", description=f"Cooks dish {number} with a sauce. " * 3)
    assert "dish-70:" in kitchen.discover("quill").session().prompt(message="Please cook dish 70.").text
    kind = type(formats.find("format", "quill"))
    real = kind.listing
    monkeypatch.setattr(kind, "listing", lambda self, view: real(self, replace(view, others=(), chosen=())))  # type: ignore
    one = kitchen.discover("quill").session()
    assert one.prompt(message="Please cook dish 70.").text == one.prompt().text


def test_json_rpc_http_and_mcp_have_the_host(kitchen: World) -> None:
    app = App(kitchen.project, profile="quill", home=kitchen.home, store="memory:")
    message = {"jsonrpc": "2.0", "id": 1, "method": "session.call", "params": {"tool": "use_recipe", "args": CALL}}
    assert json.loads(Dispatcher(app).handle(json.dumps(message)) or "")["result"] == RESULT
    with TestClient(build(app, watch=False), base_url="http://127.0.0.1") as client:
        session_id = client.post("/api/sessions", json={}).json()["session_id"]
        shown = client.post(f"/api/sessions/{session_id}/prompt", json={}).json()
        assert shown["text"] == LISTING
        called = client.post(f"/api/sessions/{session_id}/call", json={"tool": "use_recipe", "args": CALL}).json()
        assert (called["result"], called["text"]) == (RESULT, WRAPPED)

    async def talk() -> tuple[list[str], Any]:
        async with Client(McpServer(app, watch=False)) as client:
            tools = (await client.list_tools()).tools
            return [tool.name for tool in tools], await client.call_tool("use_recipe", CALL)

    names, result = asyncio.run(talk())
    assert (names, result.content[0].text) == (["use_recipe"], WRAPPED)
    assert result.meta[RESULT_KEY] == {"recipe": "bread", "steps": 2}  # the text has the rest


def test_its_settings_have_a_table_of_their_own_and_break_no_other_host(kitchen: World) -> None:
    config = kitchen.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    text = re.search(r"```toml\n(\[profile\].*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    config.write_text(text[1].replace("limit = 20", "limit = 1"))
    skills = Skills.discover(kitchen.project, home=kitchen.home)
    assert (skills.profile.name, len(skills)) == ("quill", 1)
    assert kitchen.discover("codelia").profile.prompt.max_entries == 50
    config.write_text(text[1].replace("profile.quill", "profile.quil"))
    with pytest.raises(ConfigError, match="no profile 'quil'"):
        Skills.discover(kitchen.project, home=kitchen.home)
    config.write_text("[skills.initial]\nmaxEntries = 5\n")
    assert kitchen.discover("codelia").profile.prompt.max_entries == 5
    (note,) = [one for one in kitchen.discover("quill").diagnostics if one.code == "setting-elsewhere"]
    assert (note.path, "skills.initial.maxEntries" in note.message) == (str(config), True)


WRONG = {
    'honours = ["hide"]': ('honours = ["hidden"]', "catalog.honours", "disable-model-invocation"),
    'forms = ["$name"]': ('forms = ["#name"]', "invocation.forms", "skill://name"),
    'format = "quill"': ('format = "quil"', "prompt.format", "xml"),
    'wrap = "quill"': ('wrap = "paper"', "load.wrap", "base-directory"),
    'shape = "quill"': ('shape = "round"', "tools.shape", "envelope"),
    'load = "use_recipe"\n': ('load = ""\n', "prompt.format", "tools.load is empty"),
    'search = ""': ('search = "use_recipe"', "tools.load", "another tool"),
    'read = ""': ('read = "read a file"', "tools.read", "letters, digits"),
}


def test_a_value_that_cannot_work_is_an_error_with_what_is_allowed(kitchen: World, site: Path) -> None:
    file = site / "quill/profile.toml"
    text = file.read_text()
    for right, (wrong, key, hint) in WRONG.items():
        assert right in text
        file.write_text(text.replace(right, wrong))
        with pytest.raises(ConfigError) as caught:
            kitchen.discover("quill")
        assert (caught.value.file, caught.value.key, caught.value.line > 0) == (str(file), key, True)
        assert hint in str(caught.value)
    file.unlink()
    with pytest.raises(ConfigError, match=r"needs a profile\.toml beside it"):
        kitchen.discover("quill")
