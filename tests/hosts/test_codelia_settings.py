"""Codelia: the root, the scope of the home folder, versions, preloads and dropped rules, where people look for them."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from calling import Run, caller
from metier import BadArguments
from metier.app import App
from metier.record.store.memory import MemoryStore
from metier.surfaces.cli import doctor
from metier.surfaces.rpc import INVALID_PARAMS, Dispatcher
from metier.surfaces.web.api import build
from worlds import World

CODELIA = ("--profile", "codelia")
SKILLS = ".agents/skills"


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    sandbox = (doctor.Part("sandbox", True, "not looked at here"), list[Any]())
    monkeypatch.setattr(doctor, "_sandbox", lambda _: sandbox)  # its promises take seconds, and are not the point
    return caller(world, capsys, monkeypatch)


def rpc(world: World, method: str, cwd: Path | None = None, **params: Any) -> Any:
    app = App(cwd or world.project, profile="codelia", home=world.home, store="memory:", surface="rpc")
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.loads(Dispatcher(app).handle(json.dumps(message)) or "")


def http(world: World) -> TestClient:
    app = App(world.project, profile="codelia", home=world.home, store="memory:", surface="http")
    return TestClient(build(app, watch=False), base_url="http://127.0.0.1")


def messages(diagnostics: list[dict[str, Any]], code: str) -> list[str]:
    return [one["message"] for one in diagnostics if one["code"] == code]


@pytest.mark.behaviour("N-017", "N-018")
def test_an_unusable_root_is_said_and_markers_decide(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = world.project / "a/b"
    world.skill(f"{SKILLS}/at-marker")
    world.skill(f"a/b/{SKILLS}/at-cwd")
    world.skill(f"../{SKILLS}/above")
    (world.project / "AGENTS.md").write_text("AT-MARKER")
    (world.project.parent / "AGENTS.md").write_text("ABOVE")
    (world.project / "beside").mkdir()
    (world.project / "a/file").write_text("")
    for named, wanted, why in (
        ("/no/such/folder", "/no/such/folder", "does not exist"),
        (f"{world.project}/a/file", f"{world.project}/a/file", "is not a folder"),
        (f"{world.project}/beside", f"{world.project}/beside", "is not above the working directory"),
        ("below", f"{deep}/below", "does not exist"),
        ("../../beside", f"{world.project}/beside", "is not above the working directory"),
    ):
        monkeypatch.setenv("CODELIA_AGENTS_ROOT", named)
        said = f"CODELIA_AGENTS_ROOT is {wanted}, which {why}; it is ignored"
        listed = run("list", *CODELIA, "--cwd", str(deep))
        assert [line.split()[0] for line in listed.out.splitlines()[1:]] == ["at-cwd", "at-marker"], named
        assert f"warning: {said}" in listed.err
        assert said in run("doctor", *CODELIA, "--cwd", str(deep)).out
    for command in ("list", "doctor"):
        diagnostics = run(command, *CODELIA, "--cwd", str(deep), "--json").json["diagnostics"]
        assert messages(diagnostics, "root-outside") == [said]
    result = rpc(world, "skills.list", deep)["result"]
    assert messages(result["diagnostics"], "root-outside") == [said]
    assert [skill["name"] for skill in result["skills"]] == ["at-cwd", "at-marker"]
    prompt = run("prompt", "--full", *CODELIA, "--cwd", str(deep)).out
    assert "AT-MARKER" in prompt
    assert "ABOVE" not in prompt


@pytest.mark.behaviour("C-008", "N-018")
def test_a_root_that_can_be_used_is_used_however_it_is_written(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = world.project / "a/b"
    world.skill(f"a/{SKILLS}/at-root")
    world.skill(f"{SKILLS}/above")
    deep.mkdir(parents=True)
    (tmp_path / "link").symlink_to(world.project / "a")
    for named in (f"{world.project}/a", f" {world.project}/a/ ", "..", "./../../a", f"{tmp_path}/link"):
        monkeypatch.setenv("CODELIA_AGENTS_ROOT", named)
        listed = run("list", *CODELIA, "--cwd", str(deep))
        assert ("at-root" in listed.out, "above" in listed.out, listed.err) == (True, False, ""), named
    monkeypatch.setenv("CODELIA_AGENTS_ROOT", "  ")  # as if it were not set
    assert "above" in run("list", *CODELIA, "--cwd", str(deep)).out


@pytest.mark.behaviour("C-003", "C-028", "N-019")
@pytest.mark.parametrize(("where", "link"), [("", False), ("", True), ("code/deep", True)])
def test_the_home_folder_is_the_users_also_inside_of_a_project(
    world: World, run: Run, tmp_path: Path, where: str, link: bool
) -> None:
    (world.home / ".git").mkdir()
    world.skill(f"~/{SKILLS}/mine")
    world.skill(f"~/code/{SKILLS}/of-the-project")
    (world.home / "code/deep").mkdir()
    (tmp_path / "link").symlink_to(world.home)
    home = tmp_path / "link" if link else world.home
    listed = run("list", *CODELIA, "--cwd", str(world.home / where), "--home", str(home), "--json").json
    found = [(skill["name"], skill["scope"]) for skill in listed["skills"]]
    assert found == [("mine", "user"), *([("of-the-project", "repo")] if where else [])]


@pytest.mark.behaviour("C-020", "N-021")
def test_the_version_is_shown_as_it_is_written(world: World, run: Run) -> None:
    for name, version in (("a", "1.10"), ("b", '"2.0.0-rc.1"')):
        head = f"---\nname: {name}\ndescription: Does it.\nversion: {version}\nother: x\n---\n"
        world.skill(f"{SKILLS}/{name}", text=head)
    world.skill(f"{SKILLS}/c")
    for listed in (run("list", *CODELIA, "--json").json, rpc(world, "skills.list")["result"]):
        versions = {skill["name"]: skill["version"] for skill in listed["skills"]}
        assert (versions, listed["diagnostics"]) == ({"a": "1.10", "b": "2.0.0-rc.1", "c": None}, [])
    assert run("show", "a", *CODELIA, "--json").json["version"] == "1.10"
    shown = run("show", "b", *CODELIA).out
    assert [line.split() for line in shown.splitlines() if line.startswith("version")] == [["version", "2.0.0-rc.1"]]
    assert "\nversion" not in run("show", "c", *CODELIA).out
    with http(world) as client:
        assert client.get("/api/skills/a").json()["version"] == "1.10"
        page = client.get("/skills/b", headers={"Accept": "text/html"}).text
    assert '<bdi>version</bdi></dt><dd dir="auto">2.0.0-rc.1</dd>' in page
    assert "<bdi>other</bdi>" not in page


@pytest.mark.behaviour("N-022")
def test_a_skill_outside_of_only_is_not_preloaded(world: World, run: Run) -> None:
    for name in ("a", "b"):
        world.skill(f"{SKILLS}/{name}", body=f"BODY-{name}")
    said = "preload: the session is limited to a by `only`, and 'b' is not one of them"
    store = MemoryStore()
    with pytest.raises(BadArguments) as refused:
        world.discover("codelia").session(store=store, id="mine", only=["a"], preload=["a", "b"])
    assert (str(refused.value), refused.value.field, store.last_seq("mine")) == (said, "preload", -1)
    for command in ("prompt --full", "load a", "session tools", "rpc", "mcp", "serve"):
        done = run(*command.split(), "--only", "a", "--preload", "b", *CODELIA, "--store", "memory:")
        assert (done.code, done.out, done.err) == (2, "", f"metier: {said}\n"), command
    error = rpc(world, "session.create", only=["a"], preload=["b"])["error"]
    assert (error["code"], error["message"]) == (INVALID_PARAMS, said)
    with http(world) as client:
        answer = client.post("/api/sessions", json={"only": ["a"], "preload": ["b"]})
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, said)
    app = App(world.project, profile="codelia", home=world.home, store="memory:")
    app.defaults["preload"] = ["a", "b"]
    limited, whole = app.session(only=["a"]).system_prompt(), app.session().system_prompt()
    assert ("BODY-a" in limited, "BODY-b" in limited, "BODY-b" in whole) == (True, False, True)


@pytest.mark.behaviour("C-087", "N-023")
def test_every_command_that_drops_a_rule_says_so(world: World, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    world.skill(f"{SKILLS}/probe")
    folder = world.home / ".config/metier"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[permissions]\ndeny = [{ tool = "skill_load", skill_name = "Repo_Review" }]\n')
    (folder / "permissions.toml").write_text('[[allow]]\ntool = "skill_load"\nskill_name = "x--y"\n')
    flaw = "must consist of a-z, 0-9 and single hyphens between them"
    said = [
        f"a rule in permissions.deny was dropped: skill_name 'Repo_Review' {flaw}",
        f"a rule in permissions.allow was dropped: skill_name 'x--y' {flaw}",
    ]
    commands = (
        *("list", "search probe", "prompt", "load probe", "read probe SKILL.md", "run probe x.sh"),
        *("session invoke hello", "session end-turn", "session output none", "session compact", "session tools"),
        *("session commands", "session may-use Bash", 'session call skill_load {"name":"probe"}'),
        *("policy show", "policy list", "policy explain skill_load"),
    )
    for command in commands:
        done = run(*command.split(), *CODELIA)
        assert [text for text in said if done.err.count(text) == 1] == said, (command, done.err)
    listed = run("list", *CODELIA)
    assert f"warning: {folder}/config.toml: {said[0]}" in listed.err
    assert f"warning: {folder}/permissions.toml: {said[1]}" in listed.err
    assert run("load", "probe", *CODELIA, "-q").err == ""
    doctor = run("doctor", *CODELIA)
    assert all(text in doctor.out for text in said)
    for command in ("list", "doctor"):
        shown = run(command, *CODELIA, "--json").json["diagnostics"]
        assert sorted(messages(shown, "rule-dropped")) == sorted(said)
    assert sorted(messages(rpc(world, "skills.list")["result"]["diagnostics"], "rule-dropped")) == sorted(said)
    assert all(text in caplog.text for text in said), "the log of a server"
    with http(world) as client:
        shown = client.get("/api/skills").json()["diagnostics"]
        page = client.get("/skills", headers={"Accept": "text/html"}).text
    assert sorted(messages(shown, "rule-dropped")) == sorted(said)
    assert "Repo_Review" in page
    (folder / "permissions.toml").unlink()
    (folder / "config.toml").write_text('[permissions]\ndeny = [{ tool = "skill_load", skill_name = "other" }]\n')
    for command in ("list", "load probe", "policy explain skill_load"):
        assert run(*command.split(), *CODELIA).err == "", "a rule that holds"
    (folder / "config.toml").write_text("[permissions]\nallow = 3\n")  # wrong, and an error for those who need it
    assert (run("list", *CODELIA).code, run("load", "probe", *CODELIA).code) == (0, 2)
