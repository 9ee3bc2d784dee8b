"""One scenario through every surface: whoever drives a session, the same happens, and the record says the same."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from every_surface import OF_A_MODEL, Step, call, opened
from metier.record.store import Frame, open_store
from metier.replay import from_store, replay
from parts import needs, no_sandbox
from worlds import World

pytestmark = pytest.mark.system

RULES = """
[permissions]
allow = [{tool = "skill_run", skill_name = "probe"}]
deny = [{tool = "skill_load", skill_name = "secret"}, {tool = "skill_run", skill_name = "notes"}]
"""
SKILLS = ".agents/skills"
EDITED = "probe's description, edited"
THEN, LATER = 1_700_000_000, 1_700_000_100


def read(name: str, path: str | None = None, **given: Any) -> Step:
    return "read", {"name": name, "path": path, "by": "model", "raw": True, **given}


SCENARIO: tuple[Step, ...] = (
    ("catalog", {}),
    call("skill_search", query="probe the system"),
    call("skill_search", query="notes about meetings", limit=1),
    call("skill_search", query="zebra crossing"),
    call("skill_search", query="probe", scope="repo"),
    call("skill_search"),
    call("skill_load", name="probe"),
    call("skill_load", name="probe"),
    call("skill_load", name="probe", arguments="with arguments"),
    call("skill_load", name="notes", parent="probe"),
    call("skill_load", name="probe", parent="notes"),
    call("skill_unload", name="notes"),
    call("skill_unload", name="notes"),
    call("skill_load", name="no-such"),
    call("skill_load", name="secret"),
    call("skill_load", name="hidden"),
    call("skill_load", name=3),
    call("skill_load", nonsense="x"),
    call("no_such_tool"),
    call("skill_read", name="probe", path="references/a.md"),
    call("skill_read", name="probe", path="no-such.md"),
    call("skill_read", name="probe", path="../notes/SKILL.md"),
    call("skill_read", name="probe", path="/etc/passwd"),
    call("skill_read", name="probe", path="link.md"),
    call("skill_read", name="probe", path="bin.dat"),
    call("skill_read", name="hidden", path="SKILL.md"),
    read("skill://probe/references/a.md"),
    read("skill://probe/bin.dat"),
    read("skill://probe/SKILL.md"),
    read("skill://probe/references/../../notes/SKILL.md"),
    read("skill://probe/link.md"),
    read("skill://secret/SKILL.md"),
    read("skill://probe/no-such.md"),
    call("skill_run", name="probe", script="scripts/hello.sh", arguments=["a b", "c"]),
    call("skill_run", name="probe", script="scripts/fails.sh"),
    call("skill_run", name="probe", script="scripts/no-such.sh"),
    call("skill_run", name="notes", script="scripts/hello.sh"),
    call("skill_run", name="probe", script="../notes/scripts/hello.sh"),
    ("invoke", {"message": "/notes about today"}),
    ("invoke", {"message": "/probe"}),
    ("compact", {"budget": 100_000}),
    ("compact", {"budget": 200}),
    ("edit", {}),
    call("skill_search", query="edited"),
    call("skill_load", name="probe"),
    call("skill_load", name="probe"),
    ("compact", {"budget": 100_000}),
)

DIRECT: tuple[Step, ...] = (
    ("search", {"query": "probe the system"}),
    ("search", {"query": "probe", "by": "model", "limit": 1}),
    ("load", {"name": "probe", "arguments": "x y"}),
    ("load", {"name": "probe", "arguments": "x y", "by": "model"}),
    ("load", {"name": "hidden", "by": "model"}),
    ("load", {"name": "hidden"}),
    ("load", {"name": "secret"}),
    ("read", {"name": "probe", "path": "references/a.md"}),
    ("read", {"name": "probe", "path": "bin.dat"}),
    ("read", {"name": "probe", "path": "bin.dat", "raw": True}),
    ("read", {"name": "probe", "path": "../x"}),
    ("run", {"name": "probe", "script": "scripts/hello.sh", "arguments": ["one"]}),
    ("run", {"name": "notes", "script": "scripts/hello.sh", "by": "model"}),
    ("output", {"ref": "skill-000000000000"}),
    ("edit", {}),
    ("load", {"name": "probe"}),
    ("invoke", {"message": "nothing is called here"}),
    ("compact", {"budget": 300}),
)


@pytest.fixture
def library(world: World) -> World:
    return stocked(world, SKILLS)


def stocked(world: World, root: str) -> World:
    """Skills of every sort that the scenario needs, with times that do not change from one surface to the next."""
    for name in ("probe", "notes"):
        scripts = {"scripts/hello.sh": '#!/bin/sh\necho "hello $*"\n', "scripts/fails.sh": "#!/bin/sh\nexit 3\n"}
        files = {"references/a.md": f"a reference of {name}\n", "bin.dat": b"\0\1\xff", **scripts}
        folder = world.skill(f"{root}/{name}", body=f"# {name}\n$ARGUMENTS\n", files=files)
        for script in scripts:
            (folder.parent if folder.is_file() else folder).joinpath(script).chmod(0o755)
    world.skill(f"{root}/secret", body="# denied by policy\n")
    world.skill(f"{root}/hidden", body="# not for models\n", disable_model_invocation=True)
    (world.project / root / "probe/link.md").symlink_to("/etc/hostname")
    world.trust()  # rules by name do not cover the skills of other projects
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(RULES)
    return world


def edit(world: World, root: str, description: str, when: int) -> None:
    file = world.project / root / "probe/SKILL.md"
    file.write_text(f"---\nname: probe\ndescription: {description}\n---\n# probe\n$ARGUMENTS\n{description}\n")
    os.utime(file, (when, when))


def reset(world: World, root: str) -> None:
    edit(world, root, "Probes the system.", THEN)
    for folder, _, files in os.walk(world.project / root):
        for name in files:
            if not os.path.islink(os.path.join(folder, name)):
                os.utime(os.path.join(folder, name), (THEN, THEN))


Told = dict[str, list[str]]
"""What each surface answered, step by step."""


def drive(
    name: str, world: World, folder: Path, steps: Sequence[Step], profile: str = "standard", root: str = SKILLS
) -> tuple[list[Frame], list[str]]:
    """The frames that a surface leaves behind, and what it answered. A replay of them must give the same bytes."""
    reset(world, root)
    store = str(folder / f"{name}.db")
    answers: list[str] = []
    with opened(name, world, store, profile) as surface:
        for kind, given in steps:
            if kind == "edit":
                edit(world, root, EDITED, LATER)
                answers.append(surface("refresh", {}))
            else:
                answers.append(surface(kind, given))
    with open_store(store) as kept:
        (session,) = {frame["session_id"] for frame in kept.read()}
        outcome = replay(from_store(kept, session))
        assert outcome.identical, outcome.differences[:2]
        return kept.read(session, session), answers  # what a surface shows its model has a stream of its own


ASIDE = (
    "id",
    "session_id",
    "stream_id",
    "timestamp_ms",
    "surface",
    "asks",
    "duration_ms",
    "op",
    "life",
    "chain",
    "process",
)
"""What differs between surfaces and runs: ids, times, hashes, and who drives the session."""


def comparable(frames: list[Frame]) -> list[dict[str, Any]]:
    return [{key: value for key, value in frame.items() if key not in ASIDE} for frame in frames]


def check_parity(
    driven: Callable[[str], tuple[list[Frame], list[str]]], names: Sequence[str]
) -> tuple[list[Frame], Told]:
    """The frames of the first surface, which all others must have, and what each surface answered."""
    records = {name: driven(name) for name in names}
    expected = comparable(records[names[0]][0])
    for name, (frames, _) in records.items():
        (started,) = [frame for frame in frames if frame["type"] == "session_started"]
        assert (started["surface"], started["asks"]) == (name, name == "tui")
        for number, (one, other) in enumerate(zip(expected, comparable(frames), strict=False)):
            assert one == other, f"frame {number} of {name}"
        assert len(frames) == len(expected), name
    return records[names[0]][0], {name: answers for name, (_, answers) in records.items()}


@pytest.mark.behaviour("R-046")
def test_one_scenario_leaves_the_same_events_on_every_surface(library: World, tmp_path: Path) -> None:
    assert len(SCENARIO) >= 40
    frames, _ = check_parity(lambda name: drive(name, library, tmp_path, SCENARIO), OF_A_MODEL)
    kinds = [frame["type"] for frame in frames]
    ran = "tool_failed" if no_sandbox() else "tool_ended"  # without a sandbox, a refusal is the same everywhere, too
    for kind in ("skills_searched", "skill_loaded", "skill_resource_read", "skill_resource_refused", ran):
        assert kind in kinds
    assert kinds.count("skill_catalog_updated") == 2
    reasons = {frame["reason"] for frame in frames if frame["type"] == "skill_resource_refused"}
    assert {"link", "not-found", "binary"} <= reasons
    codes = {frame.get("code") for frame in frames if frame["type"] == "session_returned"}
    assert {"ACCESS_DENIED", "NOT_FOUND", "INVALID_PARAM", "SkillNotFound", "PathEscape"} <= codes


@pytest.mark.behaviour("R-046")
def test_what_a_host_does_itself_leaves_the_same_events_wherever_it_can_do_it(library: World, tmp_path: Path) -> None:
    frames, _ = check_parity(lambda name: drive(name, library, tmp_path, DIRECT), ["python", "cli", "rpc", "http"])
    assert {"manual", "auto"} <= {frame["mode"] for frame in frames if frame["type"] == "skill_invoked"}


# --- rip: the host that promises this ---

RIP = ".rip/skills"
COMMAND = "/skill:awkward data.csv now"
FILLED = "awk '{print $1, $2}' on data.csv now\n\nARGUMENTS: data.csv now"
RUN = call("skill_run", name="probe", script="scripts/hello.sh", arguments=["a b"])
NARROWED = """\
policy refuses skill_run for probe (the skill narrow is active until the next turn, and its allowed-tools do not list \
it); it can run after the user's next message, before that skill is loaded again"""
RIP_SCENARIO: tuple[Step, ...] = (
    ("catalog", {}),
    call("skill_load", name="probe"),
    call("skill_load", name="probe"),
    RUN,
    call("skill_load", name="narrow"),
    RUN,
    ("end_turn", {}),
    RUN,
    ("invoke", {"message": "/skill:narrow"}),
    RUN,
    ("invoke", {"message": COMMAND}),
    RUN,
    ("invoke", {"message": COMMAND}),
    call("skill_load", name="proposing"),
    call("skill_load", name="secret"),
    call("skill_load", name="broken"),
    call("skill_load", name="greedy"),
    call("skill_run", name="greedy", script="scripts/hello.sh"),
    call("skill_read", name="probe", path="references/a.md"),
)


@pytest.fixture
def rip(world: World) -> World:
    """The same skills for rip, and what it has frames for: windows, proposals, collisions and what is left out."""
    stocked(world, RIP)
    world.skill(f"{RIP}/awkward", body="awk '{print $1, $2}' on $ARGUMENTS\n", **{"argument-hint": "[file] [when]"})
    world.skill(f"{RIP}/narrow", body="# Narrow\n", allowed_tools="Read Grep")
    world.skill(
        f"{RIP}/proposing", body="# Proposing\n", model="large", overrides={"tools": {"aliases": {"sh": "Bash"}}}
    )
    widening: dict[str, Any] = {
        "allowed_tools": "skill_run Bash",
        "policy": "full-auto",
        "permissions": {"allow": ["*"]},
    }
    world.skill(f"{RIP}/greedy", files={"scripts/hello.sh": "#!/bin/sh\necho greedy\n"}, **widening)
    world.skill(f"{RIP}/broken", description=None)
    world.skill("~/.rip/skills/notes", body="# The other notes\n")
    world.discover("rip").disable("hidden")
    return world


@pytest.mark.behaviour("R-026", "R-027", "R-031", "R-033", "R-035", "R-041", "R-046", "N-070", "N-073", "N-090")
def test_one_scenario_of_rip_gives_the_same_texts_and_events_on_every_surface(rip: World, tmp_path: Path) -> None:
    frames, told = check_parity(lambda name: drive(name, rip, tmp_path, RIP_SCENARIO, "rip", RIP), OF_A_MODEL)
    for name, answers in told.items():
        runs = [answers[number].rstrip() for number, step in enumerate(RIP_SCENARIO) if step is RUN]
        shown = "no sandbox works on this machine" if no_sandbox() else "hello a b"
        for text, start in zip(runs, (shown, NARROWED, shown, NARROWED, shown), strict=True):
            assert text == start if not no_sandbox() else text.startswith(start), name
        commands = [
            answers[number].rstrip() for number, (_, given) in enumerate(RIP_SCENARIO) if COMMAND in given.values()
        ]
        assert commands == [FILLED, FILLED], name
        assert answers[-2].startswith("policy refuses skill_run for greedy (it must be confirmed"), name
    kinds = [frame["type"] for frame in frames]
    assert kinds.count("skill_loaded") == kinds.count("skill_invoked") == 8
    codes = [frame["exit_code"] for frame in frames if frame["type"] == "tool_ended"]
    assert codes == ([] if no_sandbox() else [0, 0, 0])
    assert {(one["key"], one["granted"]) for one in frames if one["type"] == "skill_override_proposed"} == {
        ("model", False),
        ("tools.aliases", False),
    }
    warned = {(frame["kind"], frame["name"]) for frame in frames if frame["type"] == "skill_warning"}
    assert warned == {("collision", "notes"), ("invalid", "broken"), ("excluded", "hidden")}


@pytest.mark.behaviour("R-041", "R-046", "N-076")
@needs("tmux")
def test_what_a_person_chooses_in_the_picker_is_loaded_as_on_every_surface(rip: World, tmp_path: Path) -> None:
    paths = [str(rip.project / RIP / name / "SKILL.md") for name in ("probe", "secret", "proposing")]
    steps = [("load", {"path": path}) for path in paths]
    frames, told = check_parity(lambda name: drive(name, rip, tmp_path, steps, "rip", RIP), ["python", "cli", "tui"])
    kinds = [frame["type"] for frame in frames]
    assert kinds.count("skill_loaded") == kinds.count("skill_invoked") == 2
    assert {frame["mode"] for frame in frames if frame["type"] == "skill_invoked"} == {"manual"}
    for name, (probe, secret, proposing) in told.items():
        assert (probe.splitlines()[0], proposing.strip()) == ("# probe", "# Proposing"), name
        assert "policy refuses skill_load for secret" in secret, name
