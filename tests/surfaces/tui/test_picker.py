"""The full-screen picker, driven by keys: what it shows, what it switches and what it returns."""

import dataclasses
import json
import re
import shutil
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from metier.surfaces.tui.model import Picker
from metier.surfaces.tui.screen import ROWS, PickApp, letters_score
from metier.values.skill import Skill
from patience import PATIENCE
from worlds import World

SKILLS = ".agents/skills"
SIZES = [(80, 24), (200, 50)]
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Driven:
    """A picker under test: its screen as text, and keys to press."""

    def __init__(self, program: PickApp, pilot: "Pilot[Skill]") -> None:
        self.program, self.pilot = program, pilot

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.program.entries]

    @property
    def drawn(self) -> list[str]:
        """The drawn lines of the list."""
        rows = self.program.rows
        return [rows.render_line(y).text.rstrip() for y in range(rows.size.height)]

    @property
    def preview(self) -> str:
        return self.said("#text")

    def said(self, where: str) -> str:
        return str(self.program.query_one(where, Static).render())

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < until, f"waited in vain: {what}; {self.drawn}"
            await self.pilot.pause(0.01)


@asynccontextmanager
async def driving(world: World, size: tuple[int, int] = (80, 24), query: str = "") -> AsyncGenerator[Driven]:
    """A picker that runs, and has ended afterwards."""
    program = PickApp(Picker(world.discover()), query)
    async with program.run_test(size=size) as pilot:
        await pilot.pause()
        yield Driven(program, pilot)


@pytest.fixture
def shelf(world: World) -> World:
    """Skills of two scopes, one name twice, and a file that is not a skill."""
    world.skill(
        f"{SKILLS}/pdf-forms", description="Fills forms.", files={"scripts/fill.py": ""}, body="# How to fill\n"
    )
    world.skill(f"{SKILLS}/release-notes", description="Drafts a changelog from history.")
    world.skill("~/.agents/skills/spreadsheet", description="Reads sheets and writes forms.")
    world.skill("~/.agents/skills/pdf-forms", description="The user's own way.")
    world.skill(f"{SKILLS}/broken", text="---\nname: broken\n---\n")
    return world


# --- searching


async def test_letters_in_their_order_find_a_name_and_are_marked(shelf: World) -> None:
    shelf.skill(f"{SKILLS}/csv-profile", description="Looks at tables.")
    shelf.skill(f"{SKILLS}/archive", description="Has csvprof in its text.")
    shelf.skill(f"{SKILLS}/cloud-server-via-proxy-of-files", description="Other.")

    async with driving(shelf) as driven:
        await driven.press(*"csvprof")
        names = ["csv-profile", "cloud-server-via-proxy-of-files", "archive"]
        await driven.until(lambda: sorted(driven.names) == sorted(names))
        await driven.until(lambda: driven.program.ranked[:2] == ("csvprof", "all"))
        assert driven.names[0] == "csv-profile", "the name comes before descriptions"
        line = driven.program.rows.render_line(0)
        assert "".join(part.text for part in line if part.style and part.style.bold) == "csvprof"
        await driven.press("ctrl+u")
        await driven.until(lambda: driven.program.typed == "" and len(driven.names) == 6)


async def test_letters_in_another_order_find_nothing_and_endless_ways_to_match_take_no_time(world: World) -> None:
    endless = f"{'a-' * 31}a"
    for name in ("csv-profile", endless):
        world.skill(f"{SKILLS}/{name}", description="Other.")
    picker = Picker(world.discover())
    for word in ("fsc", "cf", "cp"):
        assert picker.narrow(word, score=letters_score) == [], word
    assert [one.name for one in picker.narrow("aaaaaaaaaaaaaaaa", score=letters_score)] == [endless]


async def test_control_keys_move_as_in_a_shell(shelf: World) -> None:
    async with driving(shelf) as driven:
        for key, at in (("ctrl+n", 1), ("down", 2), ("ctrl+p", 1), ("up", 0), ("pagedown", 2)):
            await driven.press(key)
            assert driven.program.rows.highlighted == at, key
        assert len(driven.program.screen_stack) == 1, "no palette is open"


@pytest.mark.behaviour("C-100", "C-101")
@pytest.mark.parametrize("size", SIZES)
async def test_typing_and_a_key_for_scopes_limit_the_list(shelf: World, size: tuple[int, int]) -> None:
    async with driving(shelf, size) as driven:
        assert re.search(r"pdf-forms +repo ", driven.drawn[0])
        assert re.search(r"spreadsheet +user ", driven.drawn[2])
        await driven.press(*"form")
        await driven.until(lambda: driven.names == ["pdf-forms", "spreadsheet"])
        assert "release-notes" not in "\n".join(driven.drawn)
        await driven.press("ctrl+u")
        await driven.until(lambda: driven.names == ["pdf-forms", "release-notes", "spreadsheet"])
        await driven.press("ctrl+v")
        assert driven.names == ["pdf-forms", "release-notes"]
        await driven.press("ctrl+v")
        assert driven.names == ["spreadsheet"]
        assert " user 1 " in driven.said("#scopes")
        await driven.press("ctrl+v")
        assert len(driven.names) == 3


async def test_where_there_is_nothing_to_choose_the_screen_says_so_and_enter_does_nothing(world: World) -> None:
    async with driving(world) as driven:
        assert "There are no skills" in driven.said("#empty")
    world.skill(f"{SKILLS}/one")
    async with driving(world, query="on") as driven:
        await driven.until(lambda: driven.names == ["one"], "the query to begin with")
        await driven.press(*"zzzqqq")
        await driven.until(lambda: driven.names == [])
        assert "No skill matches “onzzzqqq”." in driven.said("#empty")
        await driven.press("enter")
        assert driven.program.is_running
    assert driven.program.return_value is None


# --- switches


@pytest.mark.behaviour("C-102")
async def test_a_switch_lasts(shelf: World) -> None:
    for mode, key, said in (("off", "ctrl+t", "release-notes is off"), ("auto", "ctrl+t", "release-notes is on")):
        async with driving(shelf) as driven:
            await driven.press(*"release")
            assert bool(re.search(r"release-notes +repo +off ", driven.drawn[0])) == (mode == "auto")
            await driven.press(key)
            await driven.until(lambda said=said: said in driven.said("#status"))
        assert shelf.discover()["release-notes"].mode == mode
    async with driving(shelf) as driven:
        await driven.press("ctrl+o")
        await driven.until(lambda: "pinned" in driven.drawn[0])
    assert shelf.discover()["pdf-forms"].mode == "pinned"


@pytest.mark.behaviour("C-102")
async def test_a_skill_that_was_switched_off_stays_where_it_was_beside_its_heir(shelf: World) -> None:
    async with driving(shelf) as driven:
        await driven.press("ctrl+t")
        await driven.until(lambda: driven.names.count("pdf-forms") == 2)
        current = driven.program.current
        assert current is not None
        assert current.mode == "off"
        await driven.press("ctrl+t")
        await driven.until(lambda: driven.names.count("pdf-forms") == 1)
    assert shelf.discover()["pdf-forms"].scope == "repo"


async def test_a_switch_that_cannot_be_written_says_so(shelf: World) -> None:
    (shelf.home / ".config").mkdir(parents=True)
    (shelf.home / ".config/metier").write_text("a file where a folder should be")

    async with driving(shelf) as driven:
        await driven.press("ctrl+t")
        await driven.until(lambda: "was not changed" in driven.said("#status"))


# --- choosing


async def test_enter_hands_over_what_is_under_the_cursor_and_leaving_nothing(shelf: World) -> None:
    for keys, name in {("down", "down", "up", "enter"): "release-notes", ("escape",): "", ("ctrl+c",): ""}.items():
        async with driving(shelf) as driven:
            await driven.press(*keys)
        chosen = driven.program.return_value
        assert (chosen.name if chosen else "") == name


# --- the preview and live changes


async def test_the_preview_shows_the_text_and_the_files(shelf: World) -> None:
    async with driving(shelf) as driven:
        await driven.until(lambda: "scripts/fill.py" in driven.preview)
        assert "Fills forms." in driven.preview
        assert "# How to fill" in driven.preview
        before = driven.program.query_one("#preview").scroll_y
        await driven.press("shift+down")
        assert driven.program.query_one("#preview").scroll_y > before


async def test_changes_on_disk_appear_in_the_list_and_are_counted(shelf: World) -> None:
    async with driving(shelf) as driven:
        driven.program.watcher.wait_ready(PATIENCE)
        await driven.press("down")
        shelf.skill("staged/one")
        (shelf.project / "staged/one").rename(shelf.project / SKILLS / "one")
        shutil.rmtree(shelf.home / ".agents/skills/spreadsheet")
        await driven.until(lambda: driven.names == ["one", "pdf-forms", "release-notes"])
        assert driven.said("#status").startswith("+1 / -1")
        current = driven.program.current
        assert current is not None
        assert current.name == "release-notes", "the cursor stays on its skill"


# --- hostile skills


async def test_what_a_skill_says_is_never_markup_nor_obeyed(world: World) -> None:
    nasty = "[red]not red[/red] [@click=app.quit]press[/] [" + "long " * 100
    text = f"---\nname: evil\ndescription: {json.dumps(nasty)}\n---\n\x1b[2J[bold]body[/bold] \u202e\x07\n"
    world.skill(f"{SKILLS}/evil", text=text)

    async with driving(world) as driven:
        assert "[red]not red[/red] [@click=app.quit]press" in driven.drawn[0]
        await driven.until(lambda: "[bold]body[/bold]" in driven.preview)
        for part in (driven.drawn[0], driven.preview):
            assert not set(part) & {"\x1b", "\x07", "\u202e"}
        assert all(len(line) <= 80 for line in driven.drawn)
        await driven.pilot.click("#rows", offset=(45, 0))
    assert driven.program.return_value is not None, "a click chooses, and runs no action of a skill"


async def test_wide_letters_keep_the_columns_and_without_colour_the_cursor_is_underlined(world: World) -> None:
    world.skill(f"{SKILLS}/japanese", description="日本語の文書を要約する。" * 20)
    world.skill(f"{SKILLS}/plain", description="Plain.")

    async with driving(world) as driven:
        rows = driven.program.rows
        assert {rows.render_line(y).cell_length for y in range(2)} == {rows.scrollable_content_region.width}
        assert any(segment.style is not None and segment.style.underline for segment in rows.render_line(0))
        assert driven.program.no_color


@pytest.mark.system
async def test_of_thousands_of_skills_the_best_are_shown_and_the_rest_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.skill(f"{SKILLS}/one")
    skills = world.discover()
    one = skills["one"]
    names = [f"s{number:04}" for number in range(7_000)]
    many = tuple(dataclasses.replace(one, name=name, path=one.path.replace("one", name)) for name in names)
    skills.catalog = dataclasses.replace(skills.catalog, skills=many)
    monkeypatch.setattr(skills, "_scan", lambda: skills.catalog)
    program = PickApp(Picker(skills))
    async with program.run_test(size=(80, 24)) as pilot:
        driven = Driven(program, pilot)
        assert driven.program.rows.option_count == ROWS
        assert driven.said("#status") == f"{ROWS} shown, {7_000 - ROWS:,} more"
        await driven.press(*"6999")
        await driven.until(lambda: driven.names == ["s6999"])
