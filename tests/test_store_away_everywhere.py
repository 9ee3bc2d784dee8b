"""A full disk or a stopped database refuses a load and a script on every surface, and each goes on when it is back."""

import pytest

import forking
from every_surface import opened
from metier.record.store import open_store
from store_trouble import PASSWORD, TroubledStore
from worlds import World

pytest_plugins = ["store_fixtures"]

pytestmark = pytest.mark.system

RULES = """[permissions]
allow = [{tool = "skill_run"}, {tool = "run_project_write", path = "marks"}, {tool = "run_unsandboxed"}]
"""
SCRIPT = "#!/bin/sh\necho ran >>marks\n"


@pytest.mark.parametrize("surface", ["python", "cli", "rpc", "mcp"])
def test_what_cannot_be_recorded_is_refused(world: World, troubled: TroubledStore, surface: str) -> None:
    for name in ("one", "two"):
        world.skill(f".agents/skills/{name}", body=f"BODY-{name}", files={"scripts/mark.sh": SCRIPT})
    config = world.home / ".config/metier"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(RULES)
    script = {"name": "one", "script": "scripts/mark.sh"}
    with opened(surface, world, troubled.url) as session:
        assert "BODY-one" in session("load", {"name": "one"})
        troubled.leave()
        for said in (session("load", {"name": "two"}), session("run", script)):
            assert troubled.told in said
            assert "BODY" not in said
            assert PASSWORD not in said
            assert "\n" not in said
        assert not (world.project / "marks").exists()
        troubled.come_back()
        assert "BODY-two" in session("load", {"name": "two"})
        session("run", script)
        assert (world.project / "marks").read_text() == "ran\n"
    with open_store(troubled.url) as store:
        (kept,) = store.sessions()
        asked = [frame["operation"] for frame in store.read(kept.id, types=["session_called"])]
    assert asked == ["load", "load", "run"]
    command = [*forking.METIER, "replay", kept.id, "--store", troubled.url, "--home", str(world.home)]
    done = forking.run(command, cwd=world.project, capture_output=True, text=True)
    assert (done.returncode, "identical" in done.stdout) == (0, True), done.stdout + done.stderr
