"""A skill is replaced in one step, and an install that is killed leaves the old skill or the new one."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

import forking
from metier.errors import InstallError
from metier.sources.install import InstallRequest, placing
from sources.install.places import place
from worlds import World

INSTALL: Final = """
import os, random, signal, sys
from metier.hosts.settings import resolve
from metier.sources.install import Installer, InstallRequest, archive, lock, placing
from metier.record.store import open_store

project, home, *words = sys.argv[1:]

def install(source, store="memory:"):
    with open_store(store) as kept:
        request = InstallRequest(source, replace=True)
        return Installer(resolve(project, home=home), kept).install(request, lambda _: True)

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run(world: World, code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with `install` and `die`."""
    command = [sys.executable, "-c", INSTALL + code, str(world.project), str(world.home), *map(str, words)]
    return forking.run(command, capture_output=True, text=True, check=False)


def versions(world: World) -> tuple[Path, Path]:
    """Two versions of one skill. Each has a file that says which one it is, and one that only it has."""
    for letter in "ab":
        world.skill(f"{letter}/probe", body=letter * 3000, files={"which": letter, f"only-{letter}": letter})
    return world.project / "a/probe", world.project / "b/probe"


def remains(world: World) -> list[str]:
    """What is neither a skill nor the lock file: stages."""
    return sorted(set(os.listdir(world.home / ".agents")) - {"skills", "skills.lock.json"})


INTERRUPTED: Final = "its install was interrupted; install it again"


def test_a_reader_finds_the_old_skill_or_the_new_one_at_every_moment(world: World) -> None:
    first, second = versions(world)
    here = place(world)
    here.take(first)
    done, reading, seen = threading.Event(), threading.Event(), set[str]()

    def read() -> None:
        while not done.is_set():
            body = (here.skills / "probe/SKILL.md").read_text().splitlines()[-1]
            assert len(body) == 3000
            seen.update(body)
            reading.set()

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        reading.wait()
        for number in range(100):
            here.take((second, first)[number % 2], replace=True)
        done.set()
        reader.result()
    assert seen == {"a", "b"}


@pytest.mark.system
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize(
    ("step", "is_new", "told"),
    [
        ("archive.write = die", False, False),
        ("lock.write = die", False, False),
        ("placing.put = die", False, True),
        ("Installer._append = die", True, True),
        ("Installer._append = lambda *_: setattr(lock, 'write', die)", True, True),
    ],
)
def test_an_install_that_is_killed_before_a_step_leaves_the_old_skill_or_the_new_one(
    world: World, step: str, is_new: bool, told: bool, fresh: bool
) -> None:
    first, second = versions(world)
    here = place(world)
    if not fresh:
        here.take(first)
    killed = run(world, f"{step}\ninstall(words[0])", second)
    assert killed.returncode == -signal.SIGKILL
    expected = "b" if is_new else "" if fresh else "a"
    which = here.skills / "probe/which"
    assert (which.read_text() if which.exists() else "") == expected
    assert [skill.name for skill in world.discover()] == ([] if not expected else ["probe"])
    assert len(remains(world)) == 1

    world.skill("other")
    here.take(world.project / "other")
    assert remains(world) == []
    found = {finding.name: finding.problems for finding in here.installer.verify()}
    assert found.get("probe", ()) == ((INTERRUPTED,) if told else ())
    here.take(second, replace=True)
    assert [finding.problems for finding in here.installer.verify()] == [(), ()]
    assert "before" not in (world.home / ".agents/skills.lock.json").read_text()


@pytest.mark.system
def test_installs_that_are_killed_at_any_moment_leave_nothing_that_is_seen_or_stays(world: World) -> None:
    first, second = versions(world)
    world.skill("other")
    rounds = """
import itertools, json, time
chance, url = random.Random(11), words[3]
agents = os.path.join(home, ".agents")
outcomes = {"a": 0, "b": 0, "interrupted": 0, "stage": 0}
began = time.monotonic()
install(words[1], url)
install(words[0], url)
usual = time.monotonic() - began
for number in range(40):
    child = os.fork()
    if not child:
        for turn in itertools.count(number + 1):
            install(words[turn % 2], url)
    time.sleep(chance.uniform(0, usual))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    which = open(os.path.join(agents, "skills/probe/which")).read()
    assert os.path.exists(os.path.join(agents, "skills/probe", f"only-{which}"))
    assert set(os.listdir(os.path.join(agents, "skills"))) <= {"probe", "other"}
    outcomes[which] += 1
    outcomes["stage"] += any(name.startswith(".installing-") for name in os.listdir(agents))
    with open_store("memory:") as memory:
        problems = [p for f in Installer(resolve(project, home=home), memory).verify() for p in f.problems]
    outcomes["interrupted"] += bool(problems)
    assert problems in ([], ["its install was interrupted; install it again"]), problems
    install(words[2], url)
    assert sorted(os.listdir(agents)) == ["skills", "skills.lock.json"], os.listdir(agents)
    if problems:
        install(words[0], url)
    with open_store(url) as store:
        findings = Installer(resolve(project, home=home), store).verify()
        assert [f.problems for f in findings] == [(), ()], findings
        last = [frame for frame in store.read("installs") if frame["name"] == "probe"][-1]
    locked = json.load(open(os.path.join(agents, "skills.lock.json")))["skills"]["probe"]["digest"]
    assert last["tree"] == locked
print(json.dumps(outcomes))
"""
    done = run(world, rounds, first, second, world.project / "other", world.home / "record.db")
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert all(outcomes.values()), outcomes


def cannot(*_: object) -> None:
    raise OSError(errno.ENOSYS, "not implemented")


@pytest.mark.system
def test_a_file_system_that_cannot_exchange_folders_gets_two_renames_and_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = versions(world)
    here = place(world)
    here.take(first)
    monkeypatch.setattr(placing, "_exchange", cannot)
    here.take(second, replace=True)
    assert (here.skills / "probe/which").read_text() == "b"
    # Killed between the two renames: the old skill waits in the stage.
    between = """
real = os.rename
def cannot(*_): raise OSError(38, "not implemented")
def rename(*paths): real(*paths), die()
placing._exchange, os.rename = cannot, rename
install(words[0])
"""
    assert run(world, between, first).returncode == -signal.SIGKILL
    assert not (here.skills / "probe").exists()
    world.skill("other")
    here.take(world.project / "other")
    assert (here.skills / "probe/which").read_text() == "b"
    assert [finding.problems for finding in here.installer.verify()] == [(), (INTERRUPTED,)]
    assert remains(world) == []


def test_a_skill_that_was_installed_while_the_question_was_open_is_not_replaced(world: World) -> None:
    first, second = versions(world)
    here = place(world)

    def meanwhile(_: object) -> bool:
        place(world).take(second)
        return True

    with pytest.raises(InstallError, match="changed meanwhile"):
        here.installer.install(InstallRequest(str(first)), meanwhile)
    assert (here.skills / "probe/which").read_text() == "b"
    assert [finding.problems for finding in here.installer.verify()] == [()]


def test_a_stage_that_a_project_brings_is_removed_and_moves_nothing_of_others(world: World) -> None:
    first, _ = versions(world)
    world.skill("own/.before-stolen")
    stage = world.project / ".agents/.installing-x"
    stage.mkdir(parents=True)
    (stage / "SKILL.md").write_text("{}")
    (world.project / ".agents/.installing-y").symlink_to(world.project / "own")
    here = place(world)
    here.take(first, project=True)
    assert not stage.exists()
    assert (world.project / "own/.before-stolen/SKILL.md").exists()
    assert os.listdir(world.project / ".agents/skills") == ["probe"]


def test_what_another_program_puts_there_at_the_last_moment_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = versions(world)
    here = place(world)
    put = placing.put

    def late(folder: str, target: str, *, replaces: bool) -> None:
        world.skill("~/.agents/skills/probe", body="own")
        put(folder, target, replaces=replaces)

    monkeypatch.setattr(placing, "put", late)
    with pytest.raises(InstallError, match="cannot be written"):
        here.take(first)
    assert (here.skills / "probe/SKILL.md").read_text().endswith("own")
    assert os.listdir(here.skills.parent) == ["skills"]
