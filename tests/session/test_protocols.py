"""A store or files written against the protocol alone are all that a session needs: no base class is looked for."""

from collections.abc import Sequence

from metier import Request, Skill
from metier.app import App
from metier.files.beneath import Content, Listing
from metier.replay import from_store, replay
from record.store.stranger import StrangerStore
from worlds import World


def test_a_store_from_scratch_keeps_events_and_state(world: World) -> None:
    world.skill(".agents/skills/one", body="# One\n$ARGUMENTS\n")
    store = StrangerStore()
    first = world.discover().session(id="talk", store=store)
    loaded = first.load("one", arguments="first")
    again = App(world.project, home=world.home, store=store).session("talk")
    assert again.activated == ["one"], "another process knows what was loaded"
    assert again.load("one", arguments="first").already_loaded
    assert again.output(loaded.ref) == loaded.text
    assert replay(from_store(store, "talk")).identical


class Shelf:
    """Files in memory, by the name of their skill."""

    def __init__(self, **skills: str) -> None:
        self._skills = skills

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        return [Request("fetch", skill.name, path)]

    def skill_file(self, skill: Skill, limit: int) -> Content:
        data = self._skills[skill.name].encode()
        return Content(data[:limit], len(data), 0)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        return Content(path.encode()[:limit], len(path), 0)

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        return Listing(("a.md",), False)

    def folder(self, skill: Skill) -> str:
        return skill.dir


def test_files_from_scratch_are_read_and_their_questions_are_asked_once(world: World) -> None:
    world.skill(".agents/skills/one", body="# On disk\n")
    asked: list[str] = []

    def approve(request: Request) -> bool:
        asked.append(f"{request.tool} {request.path}")
        return True

    session = world.discover(settings={"tools": {"host": ["fetch"]}}).session(
        files=Shelf(one="---\nname: one\ndescription: x\n---\n# In memory\n"),
        policy={"ask": [{"tool": "fetch"}]},
        approve=approve,
    )
    assert "# In memory" in session.load("one").text
    assert session.read("one", "a.md").text == "a.md"
    session.load("one", arguments="again")
    assert asked == ["fetch SKILL.md", "fetch a.md"]
