"""The HTTP API as a client sees it: its answers and its refusals."""

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from metier import ConfigError
from metier.app import App
from metier.running.sandbox import Job, Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.running.sandbox.runners import BoundedRunner
from metier.surfaces.web.api import build, endpoints
from metier.surfaces.web.guard import Gate
from metier.surfaces.web.hide_paths import PathHider
from patience import PATIENCE
from worlds import World

HOST = "http://localhost"


def opened(world: World, **given: Any) -> App:
    options: dict[str, Any] = {"store": "memory:", "surface": "http", **given}
    return App(world.project, home=world.home, **options)


def asking(app: App, gate: Gate | None = None, **given: Any) -> TestClient:
    options: dict[str, Any] = {"watch": False, **given}
    return TestClient(build(app, gate, **options), base_url=HOST, raise_server_exceptions=False)


@pytest.fixture
def client(world: World) -> Iterator[TestClient]:
    world.skill(".agents/skills/notes", files={"references/a.md": "the reference"})
    with asking(opened(world)) as made:
        yield made


def begin(client: TestClient) -> str:
    return client.post("/api/sessions").json()["session_id"]


def test_the_catalog_one_skill_and_a_search_are_there(client: TestClient) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    assert [skill["name"] for skill in client.get("/api/skills").json()["skills"]] == ["notes"]
    assert client.get("/api/skills/notes").json()["name"] == "notes"
    assert client.get("/api/search", params={"q": "notes"}).json()["results"][0]["reason"] == "exact_name"


REFUSED: list[tuple[str, str, dict[str, Any], int]] = [
    ("GET", "/api/skills/nope", {}, 404),
    ("GET", "/api/search", {}, 400),
    ("GET", "/api/search?q=a&limit=²", {}, 400),
    ("GET", "/api/search?q=a&limit=--1", {}, 400),
    ("GET", "/nowhere", {}, 404),
    ("DELETE", "/rpc", {}, 405),
    ("POST", "/api/sessions/nope/call", {"json": {"tool": "skill_load"}}, 404),
    ("POST", "/api/sessions/nope/call", {"json": {"tool": 7}}, 400),
    ("POST", "/api/sessions/nope/run", {"json": {"name": "a", "script": "b", "arguments": [1]}}, 400),
    ("POST", "/api/sessions/nope/destroy", {"json": {}}, 404),
    ("POST", "/api/sessions", {"content": b"{"}, 400),
    ("POST", "/api/sessions", {"content": b"[]"}, 400),
    ("POST", "/api/sessions", {"json": {"cwd": "/nowhere/at/all"}}, 422),
    ("GET", "/api/skills", {"headers": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}}, 403),
    ("POST", "/rpc", {"content": b"x" * (5 << 20)}, 413),
]


def test_what_cannot_be_answered_gets_its_status_and_one_shape(client: TestClient) -> None:
    for method, path, given, status in REFUSED:
        answer = client.request(method, path, **given)
        assert (answer.status_code, answer.json()["error"].keys()) == (status, {"code", "message"}), path


def test_an_address_that_others_can_reach_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        Gate.for_address("0.0.0.0")
    with pytest.raises(ConfigError, match="too short"):
        Gate.for_address("0.0.0.0", "short")


def test_the_document_describes_every_operation(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {(o.method.lower(), o.path) for o in endpoints()} == {(m, path) for path in paths for m in paths[path]}


def test_without_the_extra_mcp_says_how_to_install_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("mcp.", "metier.surfaces.mcp", "metier.sources.mcp")
    for module in [name for name in sys.modules if name == "mcp" or name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with asking(opened(world)) as client:
        answer = client.post("/mcp", json={})
        assert (answer.status_code, "pip install 'metier[mcp]'" in answer.text) == (501, True)
        assert client.get("/api/skills").status_code == 200


def test_more_scripts_at_once_than_allowed_are_refused_on_every_way_in(world: World) -> None:
    world.skill(".agents/skills/job", files={"scripts/wait.sh": "#!/bin/sh\n"})
    going, gone = threading.Event(), threading.Event()

    def wait(job: Job) -> Outcome:
        going.set()
        assert gone.wait(PATIENCE)
        return Outcome(exit_code=0, ended="exit", duration_ms=1)

    app = opened(world, settings={"permissions": {"allow": [{"tool": "skill_run"}]}})
    app.runner = BoundedRunner(FakeRunner(default=wait), 1)
    run = {"name": "job", "script": "scripts/wait.sh"}
    with asking(app) as client:
        first, second = (f"/api/sessions/{begin(client)}" for _ in range(2))
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(client.post(f"{first}/run", json=run).status_code))
        thread.start()
        assert going.wait(PATIENCE)
        client.post(f"{second}/load", json={"name": "job"})
        for operation, given in {"run": run, "call": {"tool": "skill_run", "args": run}}.items():
            refused = client.post(f"{second}/{operation}", json=given)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "BUSY")
        params = {"session_id": second.rpartition("/")[2], **run}
        said = client.post("/rpc", json={"jsonrpc": "2.0", "id": 1, "method": "session.run", "params": params})
        assert "try again later" in said.json()["error"]["message"]
        gone.set()
        thread.join()
        assert codes == [200]
        assert client.post(f"{second}/run", json=run).status_code == 200


@pytest.mark.behaviour("K-057")
def test_where_the_profile_hides_them_no_answer_or_page_has_an_absolute_path(world: World) -> None:
    world.skill(".skills/pdf", files={"references/a.md": "the reference"})
    world.skill(".skills/broken", name="Not_This")
    world.skill("~/.skills/mine")
    app = opened(world, profile="remcochat", settings={"enabled": True})
    with asking(app) as client:
        session = begin(client)
        at = f"/api/sessions/{session}"
        rpc: dict[str, dict[str, object]] = {
            "skills.list": {},
            "context.inspect": {"include_skills": True},
            "session.load": {"path": f"{world.project}/x"},
        }
        posts: list[tuple[str, object]] = [
            (f"{at}/load", {"name": "pdf"}),
            (f"{at}/load", {"path": str(world.project / "nowhere/SKILL.md")}),
            (f"{at}/read", {"name": "pdf", "path": "references/a.md"}),
            (f"{at}/call", {"tool": "skills.activate", "args": {"name": "pdf"}}),
            (f"{at}/system_prompt", {}),
            (f"{at}/state", {}),
            ("/api/sessions", {"cwd": str(world.project / "nowhere")}),
            *(
                ("/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": given})
                for method, given in rpc.items()
            ),
        ]
        pages = ["/skills", "/skills/pdf", "/skills?kind=broken", "/prompt", "/usage", "/activity"]
        gets = ["/api/skills", "/api/skills/pdf", "/api/skills/Not_This", "/api/search?q=pdf", f"{at}/events"]
        answers = [client.post(path, json=body) for path, body in posts]
        answers += [client.get(path) for path in (*gets, *pages, f"/activity/{session}")]
        for answer in answers:
            assert answer.text.strip("{}[] ")
            assert str(world.project) not in answer.text, answer.url
            assert str(world.home) not in answer.text, answer.url
        assert client.get("/api/skills/pdf").json()["path"] == ".skills/pdf/SKILL.md"
        key = re.search(r'name="key" value="([0-9a-f]+)"', client.get("/skills?q=pdf").text)
        assert key
        client.post("/skills/mode", content=f"key={key[1]}&mode=off")
        assert not app.skills()["pdf"].enabled, "the switch needs no path"


@pytest.mark.behaviour("N-112")
def test_a_hidden_path_is_told_from_where_a_reader_can_place_it(world: World, tmp_path: Path) -> None:
    folders = [tmp_path / "more", tmp_path / "a/skills", tmp_path / "b/skills", tmp_path / "c/b/skills"]
    for folder in (*folders, world.project / "sub/.skills", tmp_path / "other/.git"):
        folder.mkdir(parents=True)
    app = opened(world, profile="remcochat", settings={"enabled": True}, roots=folders)
    app.skills()
    app.skills(world.project / "sub")
    app.skills(tmp_path / "other")
    hide = PathHider(app)
    told = {
        f"{world.project}/.skills/pdf/SKILL.md": ".skills/pdf/SKILL.md",
        f"{world.project}/sub/.skills/pdf/SKILL.md": "sub/.skills/pdf/SKILL.md",
        f"in {world.project}": "in .",
        f"{tmp_path}/other/.skills/pdf": "…/other/.skills/pdf",
        f"{world.home}/x, {world.home}": "~/x, ~",
        f"{world.home}/.agents/skills/pdf": "~/.agents/skills/pdf",
        f"{world.home}/.remcochat/skills/pdf": "~/.remcochat/skills/pdf",
        f"{tmp_path}/more/pdf": "…/more/pdf",
        f"{tmp_path}/a/skills/pdf": "…/a/skills/pdf",
        f"{tmp_path}/c/b/skills/pdf": "…/c/b/skills/pdf",
        f'{{"body": "# Head\\n{world.home}/x\\t{world.project}/y"}}': '{"body": "# Head\\n~/x\\ty"}',
        f"{world.home}stead": f"{world.home}stead",
        f"a{world.home}/x": f"a{world.home}/x",
        "no path, 1/2": "no path, 1/2",
    }
    assert [hide(given) for given in told] == list(told.values())
    assert hide({f"{world.home}/a": [f"{world.home}/b", 1, None]}) == {"~/a": ["~/b", 1, None]}
