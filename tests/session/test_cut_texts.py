"""What a model reads where something was cut: that it was, how much there is, and a way to the rest that exists."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from metier.app import App
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from worlds import World

FOLDERS = {"omp": ".omp/skills", "mycodeagent": "skills", "remcochat": ".skills", "rip": ".rip/skills"}
HOSTS = ["standard", "codelia", "omp", "mycodeagent", "remcochat", "rip", "claude-code", "gemini-cli"]


def configure(world: World, **tables: Mapping[str, object]) -> None:
    file = world.home / ".config/metier/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"[{table}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for table, keys in tables.items()]
    file.write_text("".join(lines))


def opened(world: World, store: MemoryStore | None = None) -> Session:
    runner = FakeRunner(default=Outcome(0, "exit", 1, b"line\n" * 300))
    return world.discover().session(runner=runner, policy={"unasked": "allow"}, store=store)


def test_a_cut_text_says_so_and_the_way_that_it_names_leads_to_the_rest(world: World) -> None:
    files = {"big.md": "word " * 1_000, "scripts/x.sh": "#!/bin/sh\n", **{f"refs/{n}.md": "REF" for n in range(9)}}
    world.skill(".agents/skills/knots", description="Ties knots.", files=files)
    for number in range(20):
        world.skill(f".agents/skills/more-{number:02}", description="Ties knots, too.")
    configure(world, resources={"max_bytes": 1_000}, run={"output_bytes": 500}, load={"max_files": 3})
    store = MemoryStore()
    session = opened(world, store)

    loaded = session.call("skill_load", {"name": "knots"}).text
    assert "8 more files of this skill are not listed here. `skill_read` reads any file by its path." in loaded
    assert session.call("skill_read", {"name": "knots", "path": "refs/8.md"}).text == "REF"
    assert "refs/8.md" not in loaded

    read = session.call("skill_read", {"name": "knots", "path": "big.md"}).text
    way = "the user can raise resources.max_bytes in ~/.config/metier/config.toml"
    assert read.endswith(f"[truncated: 4000 bytes of big.md are left out of 5000; {way}]")

    ran = session.call("skill_run", {"name": "knots", "script": "scripts/x.sh"}).text
    assert "[note: the output was cut after 500 bytes, and the script was ended; have it print less" in ran
    assert "raise run.output_bytes in ~/.config/metier/config.toml]" in ran

    found = session.call("skill_search", {"query": "knots", "limit": 3}).text
    assert found.endswith("\nMore than these 3 match; ask more precisely, or for more results with `limit`, up to 50.")
    assert "match;" not in session.call("skill_search", {"query": "knots", "limit": 50}).text
    assert replay(from_store(store, session.id)).identical

    configure(world, resources={"max_bytes": 9_000}, run={"output_bytes": 5_000}, load={"max_files": 300})
    after = opened(world)
    texts = [
        after.call("skill_load", {"name": "knots"}).text,
        after.call("skill_read", {"name": "knots", "path": "big.md"}).text,
        after.call("skill_run", {"name": "knots", "script": "scripts/x.sh"}).text,
    ]
    assert not [text for text in texts if "not listed" in text or "truncated" in text or "was cut" in text]


@pytest.mark.parametrize("host", HOSTS)
def test_a_catalog_without_room_names_a_way_that_the_host_has(world: World, host: str) -> None:
    for number in range(40):
        world.skill(f"{FOLDERS.get(host, '.agents/skills')}/knot-{number:02}", description="Ties a knot of this kind.")
        world.skill(f".claude/skills/knot-{number:02}", description="Ties a knot of this kind.")
    session = world.discover(host, settings={"enabled": True}).session()
    offered = session.offered()
    text = session.system_prompt(budget=700)
    if "search" in offered:
        assert offered["search"] in text
        return
    tool = offered.get("load") or offered["read"]
    assert f"If `{tool}` does not know a name, it answers with similar ones." in text
    given = {"path": "skill://knot"} if host == "omp" else {"name": "knot"}
    assert "available: knot-" in session.call(tool, given).text


def test_without_any_tool_the_user_is_the_way(world: World, tmp_path: Path) -> None:
    for number in range(40):
        world.skill(f".agents/skills/knot-{number:02}", description="Ties a knot of this kind.")
    app = App(world.project, home=world.home, store="memory:")
    text = app.skills().session(tools=False).system_prompt(budget=700)
    assert "skills are not shown; you can still load them by name. The user can call them by name." in text


def test_skills_that_are_all_named_are_not_called_left_out(world: World) -> None:
    for number in range(10):
        world.skill(f".agents/skills/s{number}", description="d" * 1_000)
    session = world.discover().session()
    shown = {budget: session.prompt(budget=budget) for budget in range(300, 6_000, 100)}
    assert any(prompt.shown < 10 for prompt in shown.values())
    assert any(prompt.shown == 10 and prompt.more for prompt in shown.values()), "some only by name"
    assert all(prompt.truncated == (prompt.shown < 10) for prompt in shown.values())
