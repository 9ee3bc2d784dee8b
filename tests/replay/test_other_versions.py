"""A record of another version: its chain is checked, and nothing runs, imports or opens it."""

import json
import subprocess
from pathlib import Path

import pytest

import forking
from metier import replay
from metier.app import App
from metier.errors import BadArguments, StoreError
from metier.record.chain import link
from metier.record.events import VERSION
from metier.record.state import SNAPSHOT
from metier.record.store import Frame, Store, open_store
from metier.record.store.memory import MemoryStore
from metier.record.store.seal import Seal
from metier.record.store.values import encode
from metier.record.writer import SNAPSHOT_EVENTS
from metier.values.skill import JsonObject
from worlds import World

OTHER = pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])


def of_version(store: Store, version: int) -> list[Frame]:
    """The frames of a session as another Metier would have chained them."""
    frames: list[Frame] = []
    chain = ""
    for frame in store.read("s", "s"):
        changed = {**frame, "version": version} if frame["type"] == "session_started" else dict(frame)
        chain = changed["chain"] = link(chain, changed)
        frames.append(changed)
    return frames


@pytest.fixture
def recorded(world: World) -> MemoryStore:
    """A session with a snapshot."""
    world.skill(".agents/skills/one", body="# One\n")
    store = MemoryStore()
    session = world.discover().session(id="s", store=store)
    session.load("one")
    for _ in range(SNAPSHOT_EVENTS):
        session.end_turn()
    assert store.load_state("s", SNAPSHOT) is not None
    return store


def exported(store: Store, version: int, file: Path) -> str:
    """Write an export as another Metier would have sealed it, and return its path."""
    seal = Seal()
    artifacts = [line for line in store.export_lines("s") if line.startswith('{"artifact"')]
    snapshot = store.load_state("s", SNAPSHOT)
    assert snapshot is not None
    value = {**snapshot.value, "version": version, "unknown": "to this Metier"}
    document: JsonObject = {"state": SNAPSHOT, "session_id": "s", "version": snapshot.version, "value": value}
    lines = [*artifacts, *map(encode, of_version(store, version)), encode(document)]
    file.write_text("\n".join([*map(seal.add, lines), seal.end("s")]) + "\n")
    return str(file)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return forking.run([*forking.METIER, *arguments], capture_output=True, text=True, check=False)


def check_refusal(done: "subprocess.CompletedProcess[str]", version: int) -> None:
    """One line for a person, and a stable word for a program."""
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["reason"]) == ("STORE_UNAVAILABLE", "version")
    assert f"the record of session 's' has version {version}, not {VERSION}" in error["message"]
    assert "`metier replay --verify` checks it here" in error["message"]


@pytest.mark.system
@OTHER
def test_its_chain_is_verified_and_it_is_not_run(recorded: MemoryStore, version: int, tmp_path: Path) -> None:
    file = exported(recorded, version, tmp_path / "other.jsonl")
    done = run("replay", "--verify", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"the record is valid; it has version {version} and cannot be run again\n")
    check_refusal(run("replay", file, "--json"), version)
    check_refusal(run("replay", "--drift", file, "--json"), version)
    text = Path(file).read_text()
    Path(file).write_text(text.replace('"operation":"end_turn"', '"operation":"end_turns"', 1))
    broken = run("replay", "--verify", file)
    assert broken.returncode == 1
    assert "broken-chain" in broken.stdout


@pytest.mark.system
@OTHER
def test_it_is_not_imported(recorded: MemoryStore, version: int, tmp_path: Path) -> None:
    file, url = exported(recorded, version, tmp_path / "other.jsonl"), str(tmp_path / "new.db")
    check_refusal(run("session", "store", "import", file, "--store", url, "--json"), version)
    with open_store(url) as store:
        assert (store.stats().events, store.stats().artifacts) == (0, 0)


@pytest.mark.system
@OTHER
@pytest.mark.parametrize("with_snapshot", [False, True])
def test_no_session_goes_on_in_it(
    recorded: MemoryStore, world: World, version: int, with_snapshot: bool, tmp_path: Path
) -> None:
    url = str(tmp_path / "other.db")
    snapshot = recorded.load_state("s", SNAPSHOT)
    assert snapshot is not None
    with open_store(url) as store:
        store.restore(of_version(recorded, version), [recorded.get_artifact(one) for one in recorded.artifacts("s")])
        if with_snapshot:
            store.save_state("s", SNAPSHOT, {**snapshot.value, "version": version})
        before = store.read()
        for required in (True, False):
            with pytest.raises(StoreError, match=f"has version {version}, not {VERSION}") as caught:
                world.discover().session(id="s", store=store, store_required=required)
            assert caught.value.reason == "version"
        with pytest.raises(StoreError, match=f"has version {version}, not {VERSION}"):
            App(world.project, home=world.home, store=store).session("s")
        assert replay.verify(replay.from_store(store, "s")) == []
        assert store.read() == before
    place = ("--store", url, "--cwd", str(world.project), "--home", str(world.home))
    check_refusal(run("load", "one", "--session", "s", "--json", *place), version)
    assert run("load", "one", *place).returncode == 0, "other sessions of the store go on"


@OTHER
def test_a_state_of_another_version_is_not_taken(recorded: MemoryStore, world: World, version: int) -> None:
    state = world.discover().session(id="s", store=recorded).state()
    assert state["version"] == VERSION
    with pytest.raises(BadArguments, match=f"state: it has version {version}, and this Metier reads version {VERSION}"):
        world.discover().session(state={**state, "version": version})
