"""The contract of `Files`. The files on disk and a source from outside must both pass it, also in a session."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from metier.errors import ResourceNotFound
from metier.files.beneath import Content, Listing
from metier.files.source import DiskFiles, Files
from metier.skills import Skills
from metier.values.results import Request
from metier.values.skill import Skill
from worlds import World

TEXT = "---\nname: pdf\ndescription: Fills forms.\n---\nThe body.\n"
FILES = {"b.md": "bb", "a.md": "a", "references/forms.md": "x" * 100}


class MemoryFiles:
    """Files in memory, written against the protocol and nothing else."""

    def __init__(self, files: Mapping[str, str], asks: Sequence[Request] = ()) -> None:
        self.files = {path: text.encode() for path, text in files.items()}
        self.asks = asks

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        return self.asks

    def skill_file(self, skill: Skill, limit: int) -> Content:
        return self.resource(skill, "SKILL.md", limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        if path not in self.files:
            raise ResourceNotFound(path)
        return Content(self.files[path][:limit], len(self.files[path]), skill.mtime_ns)

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        chosen: list[str] = []
        others = sorted(path for path in self.files if path != "SKILL.md")
        for path in others:
            total = sum(len(self.files[one]) for one in (*chosen, path))
            if len(chosen) < max_files and total <= max_bytes:
                chosen.append(path)
        left_out = len(others) - len(chosen)
        return Listing(tuple(chosen), left_out > 0, left_out)

    def folder(self, skill: Skill) -> str:
        return skill.dir


Make = Callable[[], Files]


@pytest.fixture
def skills(world: World) -> Skills:
    world.skill(".agents/skills/pdf", text=TEXT, files=FILES)
    return world.discover()


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    sources: dict[str, Make] = {"disk": DiskFiles, "memory": lambda: MemoryFiles({"SKILL.md": TEXT, **FILES})}
    return sources[request.param]()


def test_a_read_has_at_most_the_limit_and_the_size_of_the_whole(skills: Skills, files: Files) -> None:
    assert files.skill_file(skills["pdf"], 1000)[:2] == (TEXT.encode(), len(TEXT))
    assert files.skill_file(skills["pdf"], 7)[:2] == (TEXT.encode()[:7], len(TEXT))
    assert files.resource(skills["pdf"], "references/forms.md", 10)[:2] == (b"x" * 10, 100)
    assert files.resource(skills["pdf"], "a.md", 0)[:2] == (b"", 1)


def test_a_file_that_does_not_exist_is_not_found(skills: Skills, files: Files) -> None:
    with pytest.raises(ResourceNotFound):
        files.resource(skills["pdf"], "references/none.md", 10)


def test_a_listing_is_sorted_and_without_the_skill_file(skills: Skills, files: Files) -> None:
    assert files.listing(skills["pdf"], 10, 1000) == Listing(("a.md", "b.md", "references/forms.md"), False)


@pytest.mark.parametrize(
    ("max_files", "max_bytes", "listed"),
    [(1, 1000, ("a.md",)), (10, 3, ("a.md", "b.md")), (10, 2, ("a.md",)), (10, 0, ()), (3, 102, ("a.md", "b.md"))],
)
def test_a_listing_that_a_limit_cuts_is_truncated(
    skills: Skills, files: Files, max_files: int, max_bytes: int, listed: tuple[str, ...]
) -> None:
    assert files.listing(skills["pdf"], max_files, max_bytes) == Listing(listed, True, 3 - len(listed))


def test_a_session_works_with_any_source(skills: Skills, files: Files) -> None:
    session = skills.session(files=files)
    assert "The body." in session.load("pdf").text
    assert session.load("pdf").files == ("a.md", "b.md", "references/forms.md")
    assert session.read("pdf", "b.md").text == "bb"
    with pytest.raises(ResourceNotFound) as error:
        session.read("pdf", "none.md")
    assert error.value.available == ("a.md", "b.md", "references/forms.md")
