"""What belongs to a skill: not the files of a skill in its folder, and its SKILL.md by no other name."""

import json
import os
from pathlib import Path

import pytest

from hosts.asking import metier
from metier.app import App
from metier.files import beneath
from metier.files.tree import take
from metier.session.session import Session
from metier.surfaces.rpc import Dispatcher
from worlds import World

ROOT = ".agents/skills"
SCRIPT = "#!/bin/sh\necho RAN\n"
ASK = '[permissions]\nask = [{ tool = "skill_load" }]\n'


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of opening files."""
    if not request.param:
        monkeypatch.setattr(beneath, "_has_openat2", lambda: False)


@pytest.fixture
def nest(world: World) -> World:
    """A skill at the top of a root, with its own file, and two others below it. One is named like a scripts folder."""
    world.skill(ROOT, name="top", body="TOP-BODY", files={"own.md": "OWN", "notes/deep.md": "DEEP"})
    world.skill(f"{ROOT}/other", body="OTHER-BODY", files={"secret.md": "SECRET", "a/b.md": "SECRET"})
    world.skill(f"{ROOT}/scripts", body="SCRIPTS-BODY", files={"x.sh": SCRIPT})
    root = world.project / ROOT
    (root / "link.md").symlink_to("other/secret.md")
    (root / "folder").symlink_to("other")
    (root / "notes/up").symlink_to("../other/a")
    return world


def read(session: Session, name: str, path: str) -> str:
    return session.call("skill_read", {"name": name, "path": path}).text


SIBLINGS = [
    "other/secret.md",
    "other/a/b.md",
    "other/SKILL.md",
    "./other//secret.md",
    "link.md",
    "folder/secret.md",
    "folder/SKILL.md",
    "notes/up/b.md",
]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("path", SIBLINGS)
def test_a_skill_at_the_top_of_a_root_does_not_read_its_siblings(nest: World, path: str) -> None:
    session = nest.discover().session()
    session.load("top")
    assert "belongs to another skill" in read(session, "top", path)
    assert not {"SECRET", "OTHER-BODY"} & set(read(session, "top", path).split())
    assert session.call("skill_read", {"name": "top", "path": "own.md"}).ok
    assert session.call("skill_read", {"name": "top", "path": "notes/deep.md"}).ok
    assert "SECRET" in read(session, "other", "secret.md")


@pytest.mark.system
def test_it_does_not_list_them(nest: World) -> None:
    session = nest.discover().session()
    assert session.load("top").files == ("notes/deep.md", "own.md")
    assert session.load("other").files == ("a/b.md", "secret.md")
    shown = metier(nest, "show", "top")
    assert "secret" not in json.dumps(shown)
    assert "deep.md" in json.dumps(shown)


def test_it_does_not_run_their_scripts(nest: World) -> None:
    session = nest.discover().session(approve=lambda _: True)
    session.load("top")
    ran = session.call("skill_run", {"name": "top", "script": "scripts/x.sh"})
    assert not ran.ok
    assert "belongs to another skill" in ran.text


def test_it_is_copied_without_them(nest: World) -> None:
    skill = nest.discover()["top"]
    opened = os.open(nest.project / ROOT, os.O_RDONLY)
    try:
        whole, own = take(opened), take(opened, skill.inner)
    finally:
        os.close(opened)
    assert "other/secret.md" in [file.path for file in whole.files]
    regular = [file.path for file in own.files if not file.target]
    assert regular == ["SKILL.md", "notes/deep.md", "own.md"]


def test_what_is_no_skill_of_the_catalog_belongs_to_the_skill_around_it(world: World) -> None:
    files = {"assets/template/SKILL.md": "TEMPLATE", "assets/template/a.md": "PART"}
    world.skill(f"{ROOT}/maker", files=files)
    session = world.discover().session()
    assert session.load("maker").files == ("assets/template/SKILL.md", "assets/template/a.md")
    assert "TEMPLATE" in read(session, "maker", "assets/template/SKILL.md")
    nested = world.discover("rip", settings={"directories": [f"./{ROOT}"]}).session()
    assert nested.load("maker").files == ("assets/template/SKILL.md", "assets/template/a.md"), "it is not valid"


@pytest.mark.parametrize("profile", ["codelia", "rip", "mycodeagent"])
def test_where_skills_nest_the_outer_one_ends_where_the_inner_one_begins(world: World, profile: str) -> None:
    root = {"codelia": ROOT, "rip": ".rip/skills", "mycodeagent": "skills"}[profile]
    world.skill(f"{root}/outer", files={"a.md": "A"})
    world.skill(f"{root}/outer/inner", files={"b.md": "B"})
    skills = world.discover(profile)
    assert skills["outer"].inner == ("inner",)
    assert skills.session().load("outer").files == ("a.md",)


# --- SKILL.md by another name ---


@pytest.fixture
def aliases(world: World) -> World:
    folder = world.skill(f"{ROOT}/one", body="BODY-MARKER", files={"d/a.md": "A"}).parent
    (folder / "x.md").symlink_to("SKILL.md")
    (folder / "d/y.md").symlink_to("../SKILL.md")
    (folder / "z.md").symlink_to("x.md")
    (folder / "self").symlink_to(".")
    os.link(folder / "SKILL.md", folder / "hard.md")
    world.configure_user(ASK)
    return world


NAMES = ["x.md", "d/y.md", "z.md", "hard.md", "self/SKILL.md", "self/x.md", "SKILL.md", "./SKILL.md", "d/../SKILL.md"]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("path", NAMES)
def test_no_other_name_of_a_skill_file_goes_around_the_question(aliases: World, path: str) -> None:
    asked: list[str] = []

    def refuse(request: object) -> bool:
        asked.append(str(request))
        return False

    for session in (aliases.discover().session(), aliases.discover().session(approve=refuse)):
        assert "BODY-MARKER" not in read(session, "one", path)
    assert "BODY-MARKER" not in json.dumps(rpc_read(aliases, path))
    assert "A" in read(session, "one", "d/a.md")


def rpc_read(world: World, path: str) -> object:
    dispatcher = Dispatcher(App(world.project, home=world.home, store="memory:"))
    params = {"tool": "skill_read", "args": {"name": "one", "path": path}}
    answer = json.loads(
        dispatcher.handle(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session.call", "params": params})) or ""
    )
    assert "result" in answer
    return answer


def test_links_to_other_files_of_the_skill_are_followed(aliases: World) -> None:
    (Path(aliases.project) / ROOT / "one/ok.md").symlink_to("d/a.md")
    assert "A" in read(aliases.discover().session(), "one", "ok.md")
