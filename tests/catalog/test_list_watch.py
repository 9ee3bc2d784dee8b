"""`metier list --watch`: a line for every change."""

import json
import signal
import subprocess
import sys
import threading
from typing import Self

import pytest

import forking
from patience import PATIENCE
from worlds import World

pytestmark = pytest.mark.system

SKILLS = ".agents/skills"
BROKEN = "---\nname: draft\ndescr"


class Following:
    """`metier list --watch` in a process of its own."""

    def __init__(self, world: World, *arguments: str) -> None:
        start = "from metier.surfaces.cli import main; main()"
        command = [sys.executable, "-c", start, "list", "--watch", "--cwd", str(world.project), *arguments]
        self.process = forking.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.patience = threading.Timer(PATIENCE, self.process.kill)
        self.patience.start()

    def __enter__(self) -> Self:
        return self

    def line(self, beginning: str) -> str:
        """The next line that starts with this text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line.rstrip("\n")
        raise AssertionError(f"it ended: {self.process.communicate()[1]}")

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGINT)
        _, self.err = self.process.communicate()
        self.patience.cancel()
        assert self.process.returncode == 0, self.err


def test_list_watch_prints_the_table_and_a_line_for_each_change(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    world.skill(f"{SKILLS}/old")
    with Following(world) as shown:
        assert shown.line("old").split()[:2] == ["old", "repo"]
        assert shown.line("pdf").split()[:2] == ["pdf", "repo"]
        for name in ("one", "two"):
            world.skill(f"staged/{name}")
        world.skill("staged/pdf", description="Changed.")
        (world.project / SKILLS / "old").rename(world.project / "staged/old")
        (world.project / "staged/pdf/SKILL.md").replace(world.project / SKILLS / "pdf/SKILL.md")
        for name in ("one", "two"):
            (world.project / "staged" / name).rename(world.project / SKILLS / name)
        told: set[str] = set()  # in one line or, if the watcher was quick, in several
        while told != {"+one", "+two", "-old", "~pdf"}:
            line = shown.line("+")
            names = line.partition(": ")[2].split()
            assert line.startswith(" / ".join(f"{sign}{sum(n[0] == sign for n in names)}" for sign in "+-~"))
            assert told.isdisjoint(names)
            told.update(names)
        (world.project / SKILLS / "one/SKILL.md").write_text(BROKEN)
        assert shown.line("+") == "+0 / -1 / ~0: -one"
        assert shown.line("error[").startswith("error[")
    assert "watching; press Ctrl-C to stop" in shown.err


def test_list_watch_json_prints_one_object_a_line(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    with Following(world, "--json", "--scope", "repo") as shown:
        first = json.loads(shown.line("{"))
        assert (first["event"], [skill["name"] for skill in first["skills"]]) == ("catalog", ["pdf"])
        world.skill("~/.agents/skills/of-another-scope")
        world.skill(f"{SKILLS}/xlsx")
        news = json.loads(shown.line("{"))
        assert (news["event"], [skill["name"] for skill in news["added"]]) == ("changed", ["xlsx"])
        assert (news["removed"], news["changed"], news["errors"]) == ([], [], [])
    assert shown.err == ""


def test_a_hostile_path_is_harmless_in_the_lines_of_changes(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    with Following(world) as shown:
        assert shown.line("pdf")
        world.skill("staged", text=BROKEN)
        (world.project / "staged").rename(world.project / SKILLS / "evil\x1b[2J\x9b31m")
        line = shown.line("  -->")
    assert "evil" in line
    assert not set(line) & {"\x1b", "\x9b"}
