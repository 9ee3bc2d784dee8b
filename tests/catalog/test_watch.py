"""The watcher: after any change on disk, the live catalog equals a fresh scan, and listeners hear of it once."""

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from random_edits import BROKEN, RandomEdits

from metier import Skills
from metier.app import App
from metier.catalog import watch
from metier.catalog.watch import News, Watcher
from metier.hosts.trust import trust
from patience import PATIENCE
from watching import dumped, wait_for, watched
from worlds import World

SKILLS = ".agents/skills"
LIMITED = """
echo {limit} > /proc/sys/user/max_inotify_watches || exit 77
exec "$0" -c '
import sys
from metier import Skills
from metier.catalog.watch import Watcher
with Watcher(Skills.discover(sys.argv[1])) as watcher:
    watcher.wait_ready()
    print(watcher.how)
' "$1"
"""


def names(skills: Skills) -> list[str]:
    return [skill.name for skill in skills]


def follows(skills: Skills, fresh: Callable[[], Skills]) -> None:
    """Wait until the live catalog equals a fresh scan."""
    wait_for(lambda: dumped(skills) == dumped(fresh()), "the live catalog to be that of a fresh scan")


# --- every kind of change


def test_after_hundreds_of_random_changes_the_live_catalog_is_that_of_a_fresh_scan(world: World) -> None:
    root = world.project / SKILLS
    root.mkdir(parents=True)
    edits = RandomEdits(root, random.Random(7))
    skills = world.discover()
    with watched(skills) as (watcher, told):
        assert watcher.how == "watching"
        done = 0
        while done < 400:
            for _ in range(batch := edits.chance.choice((1, 5, 20, 50, 100))):
                edits.act()
            done += batch
            follows(skills, world.discover)
    assert told
    assert all(told)


def test_a_thousand_changes_come_as_one(world: World) -> None:
    root = world.project / SKILLS
    root.mkdir(parents=True)
    for number in range(1_000):
        world.skill(f"staged/s{number}")
    skills = world.discover()
    with watched(skills) as (_, told):
        for number in range(1_000):
            os.rename(world.project / f"staged/s{number}", root / f"s{number}")
        wait_for(lambda: len(skills) == 1_000)
        wait_for(lambda: bool(told))
        world.skill(f"{SKILLS}/last")
        wait_for(lambda: len(told) > 1)
    assert [str(news.changes) for news in told] == ["+1000 / -0 / ~0", "+1 / -0 / ~0"]


def test_what_a_watcher_just_found_is_not_searched_again(world: World) -> None:
    """`adopt` takes the result of the last scan, and searches only if another scan was made since."""
    world.skill(f"{SKILLS}/first")
    skills = world.discover()
    world.skill(f"{SKILLS}/second")
    found = skills.look()
    assert names(skills) == ["first"], "to look changes nothing"
    world.skill(f"{SKILLS}/third")
    assert skills.adopt({skills: found}).added == ("second",), "and not the third, which that scan did not see"
    assert names(skills) == ["first", "second"]
    older = skills.look()
    world.skill(f"{SKILLS}/fourth")
    skills.look()
    assert skills.adopt({skills: older}).added == ("fourth", "third"), "an older result never replaces a newer one"
    assert names(skills) == names(world.discover())
    world.skill(f"{SKILLS}/fifth")
    assert skills.adopt({}).added == ("fifth",), "a catalog of which nothing was found is searched"


# --- what is told


def test_the_catalog_is_current_when_a_listener_is_called(world: World) -> None:
    skills = world.discover()
    seen: list[list[str]] = []
    with Watcher(skills, lambda news: seen.append(names(skills))):
        world.skill(f"{SKILLS}/pdf")
        wait_for(lambda: bool(seen))
    assert seen == [["pdf"]]


@pytest.mark.parametrize("seconds", [watch.LONGEST, 0.0], ids=["quick", "late"])
@pytest.mark.parametrize(
    ("moment", "changed"),
    [
        *((moment, "root") for moment in ("before look", "after look", "before follow", "after follow")),
        *((moment, "skill") for moment in ("before look", "after look", "before follow", "after follow")),
        *((moment, "file") for moment in ("before follow", "after follow")),
    ],
)
def test_a_change_at_any_moment_of_the_first_scan_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str, changed: str, seconds: float
) -> None:
    """`late`: each scan takes longer than a watcher waits for quiet. Only what is told on its own counts here."""
    monkeypatch.setattr(watch, "ANYWAY", 3_600.0)
    monkeypatch.setattr(watch, "LONGEST", seconds)
    if changed != "root":
        world.skill(f"{SKILLS}/kept", files={"notes.md": "Old."})
    pending = [moment]

    def change() -> None:
        if changed == "file":
            (world.project / SKILLS / "kept/notes.md").write_text("Newer.")
        else:
            world.skill(f"{SKILLS}/new")

    def interrupted(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            if pending == [f"before {name}"]:
                pending.clear()
                change()
            result = step(*given)
            if pending == [f"after {name}"]:
                pending.clear()
                change()
            return result

        return run

    skills = world.discover()
    monkeypatch.setattr(Skills, "look", interrupted("look", Skills.look))
    monkeypatch.setattr(Watcher, "_follow", interrupted("follow", Watcher._follow))
    told: list[News] = []
    with Watcher(skills, told.append, files=True):
        wait_for(lambda: bool(told), f"the change {moment}")
    assert [(news.changes.added, news.files) for news in told] == [
        ((), ("kept",)) if changed == "file" else (("new",), ())
    ]


def test_a_file_that_is_half_written_is_no_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.skill(f"{SKILLS}/draft")
    skills = world.discover()
    looks: list[bool] = []
    look = Skills.look

    def finish_after_first_look(self: Skills) -> object:
        found = look(self)
        if path.read_text() == BROKEN:
            looks.append(bool(found.failed))
            world.skill(f"{SKILLS}/draft", description="Whole.")
        return found

    monkeypatch.setattr(Skills, "look", finish_after_first_look)
    with watched(skills) as (_, told):
        path.write_text(BROKEN)
        wait_for(lambda: bool(told))
    assert looks == [True], "the half-written file was seen"
    assert [(str(news.changes), news.rest) for news in told] == [("+0 / -0 / ~1", False)]
    assert skills["draft"].description == "Whole."


def test_a_file_that_stays_broken_is_told(world: World) -> None:
    path = world.skill(f"{SKILLS}/draft")
    skills = world.discover()
    with watched(skills) as (_, told):
        path.write_text(BROKEN)
        wait_for(lambda: bool(told))
    assert told[0].changes.removed == ("draft",)
    assert told[0].rest
    assert skills.errors


def test_what_is_only_shadowed_is_told_as_the_rest(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    (world.home / ".agents/skills").mkdir(parents=True)
    skills = world.discover()
    with watched(skills) as (_, told):
        world.skill("~/.agents/skills/pdf", description="Another.")
        wait_for(lambda: bool(told))
    assert told == [News(watch.Changes(), (), True)]


def test_other_files_of_a_skill_are_told_to_those_who_ask(world: World) -> None:
    world.skill(f"{SKILLS}/pdf", files={"references/deep/forms.md": "Old."})
    world.skill(f"{SKILLS}/xlsx")
    page = world.project / SKILLS / "pdf/references/deep/forms.md"
    skills = world.discover()
    with watched(skills, files=True) as (_, told), watched(world.discover()) as (_, unasked):
        page.write_text("Newer.")
        wait_for(lambda: bool(told))
        new = world.project / SKILLS / "xlsx/scripts"
        new.mkdir()
        (new / "run.py").write_text("print()")
        wait_for(lambda: len(told) > 1)
        world.skill(f"{SKILLS}/last")
        wait_for(lambda: bool(unasked))
        wait_for(lambda: len(told) > 2)
    assert [(news.files, bool(news.changes)) for news in told] == [(("pdf",), False), (("xlsx",), False), ((), True)]
    assert [news.changes.added for news in unasked] == [("last",)]


def test_a_refresh_by_somebody_else_is_told_as_well(world: World) -> None:
    skills = world.discover()
    with watched(skills) as (_, told):
        world.skill(f"{SKILLS}/pdf")
        skills.refresh()
        wait_for(lambda: bool(told))
    assert [news.changes.added for news in told] == [("pdf",)]


def test_a_listener_that_fails_does_not_end_the_others(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def fails(news: News) -> None:
        raise ValueError("a listener's own fault")

    skills = world.discover()
    told: list[News] = []
    with Watcher(skills, fails) as watcher:
        watcher.listen(told.append)
        world.skill(f"{SKILLS}/pdf")
        wait_for(lambda: len(told) == 1)
        world.skill(f"{SKILLS}/xlsx")
        wait_for(lambda: len(told) == 2)
    assert "a listener for changed skills failed" in caplog.text


def test_an_event_loop_can_wait_for_news(world: World) -> None:
    async def first() -> News:
        news = watcher.news()
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.ensure_future(anext(news))
            await asyncio.sleep(0)
            world.skill(f"{SKILLS}/pdf")
            found = await waiting
            await news.aclose()
            return found

    with watched(world.discover()) as (watcher, _):
        assert asyncio.run(first()).changes.added == ("pdf",)


# --- where one looks


def test_a_root_that_did_not_exist_is_noticed(world: World) -> None:
    skills = world.discover()
    with watched(skills):
        world.skill("~/.agents/skills/mine")
        wait_for(lambda: names(skills) == ["mine"])
        world.skill(f"{SKILLS}/ours")
        wait_for(lambda: names(skills) == ["mine", "ours"])


def test_a_root_that_is_replaced_is_noticed(world: World) -> None:
    world.skill(f"{SKILLS}/old")
    skills = world.discover()
    with watched(skills):
        (world.project / ".agents").rename(world.project / "away")
        wait_for(lambda: names(skills) == [])
        world.skill(f"{SKILLS}/new")
        wait_for(lambda: names(skills) == ["new"])
        world.skill(f"{SKILLS}/newer")
        wait_for(lambda: names(skills) == ["new", "newer"])


def test_a_root_that_is_a_link_is_watched_where_it_leads(world: World) -> None:
    world.skill("elsewhere/one")
    world.skill("other/two")
    (world.project / ".agents").mkdir()
    link = world.project / SKILLS
    link.symlink_to(world.project / "elsewhere")
    skills = world.discover()
    with watched(skills):
        world.skill("elsewhere/more")
        wait_for(lambda: names(skills) == ["more", "one"])
        link.unlink()
        link.symlink_to(world.project / "other")
        wait_for(lambda: names(skills) == ["two"])
        world.skill("other/three")
        wait_for(lambda: names(skills) == ["three", "two"])


def test_a_skill_file_that_is_a_link_is_watched_where_it_leads(world: World) -> None:
    target = world.skill("elsewhere/pdf", description="Old.")
    (world.project / SKILLS / "pdf").mkdir(parents=True)
    (world.project / SKILLS / "pdf/SKILL.md").symlink_to(target)
    skills = world.discover()
    with watched(skills) as (_, told):
        world.skill("elsewhere/pdf", description="New.")
        wait_for(lambda: skills["pdf"].description == "New.")
        wait_for(lambda: bool(told))
    assert told[0].changes.changed == ("pdf",)


def test_ignored_folders_are_not_watched_below_their_top(world: World) -> None:
    world.skill(f"{SKILLS}/pdf", files={"node_modules/a/b/c/index.js": "", "references/a.md": ""})
    (world.project / SKILLS / ".git/objects/ab").mkdir(parents=True)
    skills = world.discover()
    with watched(skills, files=True) as (watcher, _):
        followed = {os.path.relpath(path, world.project) for path in watcher._watched}
    assert followed >= {SKILLS, f"{SKILLS}/pdf", f"{SKILLS}/pdf/references", f"{SKILLS}/.git"}
    assert not [path for path in followed if "objects" in path or "node_modules/" in path]


def test_a_switch_by_another_process_is_noticed(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    skills, other = world.discover(), world.discover()
    with watched(skills) as (_, told):
        other.disable("pdf")
        wait_for(lambda: bool(told))
        assert not skills["pdf"].enabled
        trust(skills.settings.config_folder, str(world.project))
        other.enable("pdf")
        wait_for(lambda: len(told) > 1)
    assert skills["pdf"].enabled
    assert [news.changes.changed for news in told] == [("pdf",), ("pdf",)]


def test_plugins_that_are_installed_are_noticed(world: World) -> None:
    world.skill("~/plugin/skills/from-plugin")
    registry = world.home / ".claude/plugins/installed_plugins.json"
    skills = world.discover("omp", settings={"catalog": {"refresh": "request"}})
    with watched(skills):
        registry.parent.mkdir(parents=True)
        entry = {"installPath": str(world.home / "plugin"), "scope": "user"}
        registry.write_text(json.dumps({"plugins": {"p": [entry]}}))
        wait_for(lambda: "from-plugin" in skills)


def test_a_named_folder_that_goes_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.skill("named/pdf")
    skills = world.discover(roots=[world.project / "named"])
    with watched(skills):
        (world.project / "named").rename(world.project / "away")
        wait_for(lambda: "changes of skills are not noticed" in caplog.text)
        (world.project / "away").rename(world.project / "named")
        world.skill("named/xlsx")
        wait_for(lambda: names(skills) == ["pdf", "xlsx"])
    assert caplog.text.count("changes of skills are not noticed") == 1


def test_every_catalog_of_an_app_is_watched_also_those_that_come_later(world: World, tmp_path: Path) -> None:
    other = World(world.home, tmp_path / "other")
    (other.project / ".git").mkdir(parents=True)
    app = App(world.project, home=world.home, store="memory:")
    try:
        with watched(app) as (_, told):
            assert len(app.skills(world.project)) == len(app.skills(other.project)) == 0
            world.skill(f"{SKILLS}/here")
            other.skill(f"{SKILLS}/there")
            wait_for(lambda: "here" in app.skills(world.project) and "there" in app.skills(other.project))
            wait_for(lambda: {name for news in told for name in news.changes.added} == {"here", "there"})
    finally:
        app.close()


# --- where nothing can be watched


def test_polling_sees_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHFILES_FORCE_POLLING", "1")
    monkeypatch.setattr(watch, "POLL", 0.05)
    root = world.project / SKILLS
    root.mkdir(parents=True)
    edits = RandomEdits(root, random.Random(11))
    skills = world.discover()
    with watched(skills, files=True) as (watcher, told):
        assert watcher.how == "polling every 0.05 s: requested"
        for _ in range(5):
            for _ in range(20):
                edits.act()
            follows(skills, world.discover)
        world.skill(f"{SKILLS}/pdf")
        wait_for(lambda: "pdf" in told[-1].changes.added)
        (root / "pdf/notes.md").write_text("A page.")
        wait_for(lambda: told[-1].files == ("pdf",))


def test_without_watchfiles_it_polls_and_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles._rust_notify", None)
    world.skill(f"{SKILLS}/pdf")
    with watched(world.discover()) as (watcher, _):
        assert watcher.how == "polling every 1 s: watchfiles is not installed (pip install 'metier[watch]')"


@pytest.mark.system
def test_where_the_systems_limit_is_reached_it_polls_and_says_so(world: World) -> None:
    for number in range(20):
        world.skill(f"{SKILLS}/s{number}")
    script = LIMITED.format(limit=5)
    command = ["unshare", "-Ur", "sh", "-c", script, sys.executable, str(world.project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no user namespace in which to lower the limit")
    assert done.stdout == (
        "polling every 1 s: the limit of watched folders is reached (sysctl fs.inotify.max_user_watches)\n"
    )


def test_hosts_that_look_only_at_their_start_are_not_watched(world: World) -> None:
    with watched(world.discover("omp")) as (watcher, told):
        assert watcher.how == "not watching: omp looks for skills only when it starts"
    assert told == []


def test_stopping_leaves_no_thread_behind(world: World) -> None:
    with watched(world.discover()):
        assert any(thread.name == "metier-watch" for thread in threading.enumerate())
    assert not any(thread.name == "metier-watch" for thread in threading.enumerate())
