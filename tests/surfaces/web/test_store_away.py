"""A full disk or a stopped database: the server refuses what it cannot record, says so, and goes on when it is back."""

import json
import os
from pathlib import Path

import pytest
from processes import JsonObject, Process, serve
from starlette.testclient import TestClient

from metier.app import App
from metier.record import chain
from metier.record.store import open_store
from metier.surfaces.web.api import build
from store_trouble import PASSWORD, TroubledStore
from watching import wait_for
from worlds import World

pytest_plugins = ["store_fixtures"]

RULES = """[permissions]
allow = [{tool = "skill_run"}, {tool = "run_project_write", path = "marks"}, {tool = "run_unsandboxed"}]
"""


def prepare(world: World) -> None:
    for name in ("alpha", "beta"):
        files = {"scripts/mark.sh": "#!/bin/sh\necho ran >>marks\n"}
        world.skill(f".agents/skills/{name}", body=f"BODY-{name}", files=files)
    world.configure_user(RULES)


def tried(server: Process, session: str, operation: str, **given: object) -> tuple[int, JsonObject]:
    answer = server.client.post(f"/api/sessions/{session}/{operation}", json=given)
    return answer.status_code, answer.json()


def is_well(server: Process) -> bool:
    return server.stranger.get("/healthz").json()["status"] == "ok"


@pytest.mark.system
def test_nothing_is_acknowledged_while_the_store_is_away(world: World, troubled: TroubledStore) -> None:
    prepare(world)
    script = {"name": "alpha", "script": "scripts/mark.sh"}
    with serve(world, store=troubled.url) as server:
        session = server.begin()
        assert tried(server, session, "load", name="alpha")[0] == 200
        assert is_well(server)

        troubled.leave()
        begun = server.client.post("/api/sessions")
        refused = [
            tried(server, session, "load", name="beta"),
            tried(server, session, "call", tool="skill_load", args={"name": "beta"}),
            tried(server, session, "run", **script),
            tried(server, session, "call", tool="skill_run", args=script),
            (begun.status_code, begun.json()),
        ]
        for status, answer in refused:
            assert (status, answer["error"]["code"]) == (503, "STORE_UNAVAILABLE"), answer
            assert troubled.told in answer["error"]["message"]
        asked = {"name": "beta", "session_id": session}
        message = {"jsonrpc": "2.0", "id": 1, "method": "session.load", "params": asked}
        rpc = server.client.post("/rpc", json=message).json()["error"]
        assert (rpc["data"]["type"], rpc["data"]["reason"]) == ("StoreError", troubled.reason)
        assert not (world.project / "marks").exists(), "no script was started"

        wait_for(lambda: not is_well(server), "a server that says that its store is away")
        health = server.stranger.get("/healthz")
        assert health.status_code == 503
        assert (health.json()["status"], health.json()["reason"]) == ("store-unavailable", troubled.reason)
        assert server.client.get("/api/skills").status_code == 200, "what needs no store is answered"
        assert PASSWORD not in health.text + json.dumps([refused, rpc])

        troubled.come_back()
        wait_for(lambda: is_well(server), "a server that says that its store is back")
        state = server.client.post(f"/api/sessions/{session}/state").json()
        assert state["activated_skill_names"] == ["alpha"], "what was refused did not happen"
        status, loaded = tried(server, session, "load", name="beta")
        assert (status, loaded["already_loaded"], "BODY-beta" in loaded["text"]) == (200, False, True)
    assert PASSWORD not in (world.home / "serve.log").read_text()
    with open_store(troubled.url) as store:
        frames = store.read(session, session)
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    assert not list(chain.breaks(frames))
    assert [frame["operation"] for frame in frames if frame["type"] == "session_called"] == ["load", "load"]


@pytest.mark.system
def test_where_the_setting_says_so_a_server_goes_on_without_its_store(world: World, troubled: TroubledStore) -> None:
    prepare(world)
    with serve(world, store=troubled.url, env={"METIER_STORE_REQUIRED": "false"}) as server:
        session = server.begin()
        troubled.leave()
        assert tried(server, session, "load", name="alpha")[0] == 200
        wait_for(lambda: not is_well(server), "a server that says that its store is away")
        assert server.stranger.get("/healthz").status_code == 200, "a balancer need not leave it out"
        troubled.come_back()
        wait_for(lambda: is_well(server), "a server that says that its store is back")
        assert tried(server, session, "load", name="beta")[0] == 200
        state = server.client.post(f"/api/sessions/{session}/state").json()
        assert state["activated_skill_names"] == ["alpha", "beta"]


@pytest.mark.parametrize(("how", "told"), [("deleted", "was deleted"), ("replaced", "another file is in its place")])
def test_a_store_file_that_is_gone_takes_no_more_events(world: World, tmp_path: Path, how: str, told: str) -> None:
    prepare(world)
    file, backup = tmp_path / "store.db", tmp_path / "backup.db"
    app = App(world.project, home=world.home, store=f"sqlite://{file}", surface="http")
    with TestClient(build(app, watch=False), base_url="http://localhost") as client:
        session = client.post("/api/sessions").json()["session_id"]
        assert client.post(f"/api/sessions/{session}/load", json={"name": "alpha"}).status_code == 200
        if how == "deleted":
            file.unlink()
        else:
            with open_store(str(backup)) as other:
                other.put_artifact(b"from a backup")
            os.replace(backup, file)
        there = file.read_bytes() if file.exists() else None
        refused = client.post(f"/api/sessions/{session}/load", json={"name": "beta"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "STORE_UNAVAILABLE")
        for words in (told, "restart"):
            assert words in refused.json()["error"]["message"]
        health = client.get("/healthz")
        assert (health.status_code, health.json()["reason"]) == (503, "lost")
    app.close()
    assert (file.read_bytes() if file.exists() else None) == there
