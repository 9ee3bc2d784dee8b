"""The search index of a catalog: read once, kept on disk, brought up to date, and in memory if the disk fails."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from limited import open_folder as open_folder  # a fixture
from limited import run_as_nobody
from metier import Skills
from metier.search import Ranker
from metier.search import finder as module
from metier.search.documents import FORMAT
from metier.search.finder import Finder
from metier.search.index import TextIndex
from metier.search.parts import IndexBusy
from metier.search.reading import KEYWORD_FIELDS, TextSource, indexed_skills
from metier.testing import write_skill
from metier.values.skill import Root, Skill
from worlds import World


def skill(path: str, name: str = "", description: str = "Does one thing.") -> Skill:
    name = name or os.path.basename(os.path.dirname(path))
    return Skill(name, description, path, path, Root(os.path.dirname(path), "repo", "agents"), 0, 1, {})


def source(path: str) -> TextSource:
    return TextSource.of(skill(path))


def everything(_: Skill) -> bool:
    return True


def names(finder: Finder, query: str, limit: int = 8) -> list[str]:
    return [hit.skill.name for hit in finder.search(query, limit, everything, "/")]


@pytest.fixture
def shelf(world: World) -> Skills:
    world.skill(".agents/skills/invoices", description="Reads invoices.", body="One zebra more. " * 8)
    world.skill(".agents/skills/charts", description="Draws charts.")
    world.skill(".agents/skills/minutes", description="Writes minutes of a meeting.")
    return world.discover()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "index")


# --- reading ---


def test_every_skill_is_read_once_and_then_only_what_changed(world: World, shelf: Skills, folder: str) -> None:
    assert Finder(folder).sync(shelf) == 3
    assert Finder(folder).sync(shelf) == 0
    world.skill(".agents/skills/charts", description="Paints walls.", body="Longer than before.\n")
    world.skill(".agents/skills/letters", description="Writes letters.")
    shelf.refresh()
    finder = Finder(folder)
    assert finder.sync(shelf) == 2
    assert names(finder, "paint walls") == ["charts"]
    assert names(finder, "draw") == []
    assert names(finder, "write letters") == ["letters"]


def test_a_removed_skill_vanishes_and_so_does_one_that_is_no_longer_given(shelf: Skills, folder: str) -> None:
    finder = Finder(folder)
    finder.sync(shelf)
    kept = [one for one in shelf if one.name != "invoices"]
    assert finder.sync(kept) == 0
    assert names(finder, "invoices") == names(finder, "zebra") == []
    assert len(TextIndex.open(folder).stamps()) == 2


def test_a_body_is_read_to_a_bound_and_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.limits, "INDEXED_BYTES", 200)
    path = write_skill(tmp_path / "long", body="early " + "x " * 200 + "late")
    whole, gone = indexed_skills([(source(path), []), (source(str(tmp_path / "gone" / "SKILL.md")), [])])
    assert "early" in whole.body
    assert "late" not in whole.body
    assert "description" not in whole.body
    assert gone.body == ""


def test_keywords_are_taken_from_wherever_a_frontmatter_has_them() -> None:
    fields = {
        "tags": ["ledger", {"more": ["audit"]}],
        "metadata": {"Triggers": "close the books", "author": "nobody", "deep": {"category": "finance"}},
        "keywords": None,
        "license": "MIT",
    }
    (one,) = indexed_skills([(TextSource.of(replace(skill("/s/a/SKILL.md"), frontmatter=fields)), [])])
    assert one.keywords == ("ledger", "audit", "close the books", "finance")
    assert "triggers" in KEYWORD_FIELDS


# --- trouble with the folder ---


def test_an_index_that_breaks_while_it_is_used_is_made_anew_in_memory(shelf: Skills, folder: str) -> None:
    finder = Finder(folder)
    finder.sync(shelf)

    class Broken(TextIndex):
        def search(self, *_: object, **__: object) -> list[object]:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise module.IndexUnavailable("the disk went away")

    finder._index = Broken.open(None)
    assert names(finder, "zebra") == ["invoices"]
    assert finder._folder == ""


def test_while_somebody_else_writes_what_is_there_is_searched(
    shelf: Skills, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = Finder(folder)
    finder.sync(shelf)

    def busy(*_: object) -> None:
        raise IndexBusy("another process is updating the search index")

    monkeypatch.setattr(finder._index, "update", busy)
    more = [*shelf, skill("/s/new/SKILL.md", description="Counts zebras.")]
    assert finder.sync(more) == 0
    assert names(finder, "zebra") == ["invoices"]


def test_another_format_is_made_beside_the_old_one(shelf: Skills, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Finder(folder).sync(shelf)
    monkeypatch.setattr("metier.search.index.FORMAT", FORMAT + 1)
    finder = Finder(folder)
    assert finder.sync(shelf) == 3
    assert names(finder, "zebra") == ["invoices"]
    monkeypatch.undo()
    assert Finder(folder).sync(shelf) == 0


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become another user")
@pytest.mark.parametrize("stored", [False, True])
def test_in_a_read_only_folder_search_works_in_memory(open_folder: Path, stored: bool) -> None:
    write_skill(open_folder / "skills" / "invoices", description="Reads invoices.", body="One zebra more. " * 8)
    shelf = Skills.scan(open_folder / "skills", home=open_folder)
    (open_folder / "index").mkdir()
    if stored:
        Finder(str(open_folder / "index")).sync(shelf)
        write_skill(open_folder / "skills" / "charts", description="Draws charts.")
    for place, _, files in os.walk(open_folder):
        os.chmod(place, 0o755)
        for file in files:
            os.chmod(os.path.join(place, file), 0o644)
    code = (
        "import metier.search.finder as f\n"
        "skills = metier.Skills.scan(sys.argv[1] + '/skills', home='/')\nfinder = f.Finder(sys.argv[1] + '/index')\n"
        "finder.sync(skills)\nprint([hit.skill.name for hit in finder.search('zebra', 5, lambda _: True, '/')])\n"
        "print([hit.skill.name for hit in finder.search('draw', 5, lambda _: True, '/')])\n"
    )
    done = run_as_nobody("import metier.search.finder\n" + code, str(open_folder))
    assert done.stderr == b""
    assert done.stdout == (b"['invoices']\n['charts']\n" if stored else b"['invoices']\n[]\n")


FULL = """
import os, resource, signal, sys
from metier import Skills
from metier.search.finder import Finder
skills = Skills.scan(sys.argv[1], home=sys.argv[1])
if sys.argv[3] == "limit":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
finder = Finder(sys.argv[2])
read = finder.sync(skills)
print(read, [hit.skill.name for hit in finder.search("zebra", 5, lambda _: True, "/")], finder._folder or "memory")
"""


@pytest.mark.system
@pytest.mark.parametrize("kind", ["limit", "tmpfs"])
def test_on_a_full_disk_search_works_in_memory(tmp_path: Path, kind: str) -> None:
    for at in range(150):
        many = " ".join(f"word{at}x{n}" for n in range(150))
        write_skill(tmp_path / "skills" / f"s{at}", description="Does one thing.", body=many)
    write_skill(tmp_path / "skills" / "invoices", body="One zebra more. " * 8)
    place = tmp_path / "small"
    place.mkdir()
    command = [sys.executable, "-c", FULL, str(tmp_path / "skills"), str(place), kind]
    if kind == "tmpfs":
        mounted = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=64k none "{place}" && exec "$@"', "sh"]
        if subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode:
            if os.environ.get("CI") and os.geteuid() == 0:
                pytest.fail("a small file system must be mountable in CI")
            pytest.skip("this user may not mount a small file system to fill it")
        command = [*mounted, *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "151 ['invoices'] memory\n"), done.stderr


# --- a ranker of one's own ---


class Topics:
    """A ranker with only what `Ranker` requires, and with its own names, order and scale."""

    def __init__(self, **topics: list[tuple[str, float]]) -> None:
        self.topics = topics
        self.limits: list[int] = []

    def rank(self, text: str, most: int, /) -> Sequence[tuple[str, float]]:
        self.limits.append(most)
        return tuple(pair for topic, pairs in self.topics.items() if topic in text for pair in pairs)


def test_the_protocol_is_all_that_a_ranker_needs(world: World, shelf: Skills) -> None:
    invoices, charts = shelf["invoices"].path, shelf["charts"].path
    topics = Topics(money=[(charts, 0.0015), ("/not/in/the/catalog/SKILL.md", 1.0), (invoices, 0.002)])
    ranker: Ranker = topics
    skills = Skills.discover(world.project, home=world.home, env={}, rankers=[(0.5, ranker)])
    assert [hit.skill.name for hit in skills.search("about money").results] == ["invoices", "charts"]
    assert [hit.skill.name for hit in skills.search("about money", limit=1).results] == ["invoices"]
    assert min(topics.limits) >= 100
    assert skills.search("about time").results == ()
    skills.disable("invoices")
    assert [hit.skill.name for hit in skills.search("about money").results] == ["charts"]


def test_what_a_ranker_raises_reaches_the_caller(world: World, shelf: Skills) -> None:
    class Offline:
        def rank(self, query: str, limit: int, /) -> Sequence[tuple[str, float]]:
            raise ConnectionError(query)

    skills = Skills.discover(world.project, home=world.home, env={}, rankers=[(1.0, Offline())])
    with pytest.raises(ConnectionError, match="draw charts"):
        skills.search("draw charts")
    assert [hit.skill.name for hit in shelf.search("draw charts").results] == ["charts"]
