"""rip: a compact catalog, activation step by step, and every step a frame."""

import hashlib
import json
import re
from typing import Any

import pytest

from hosts.asking import left, listening, metier
from metier.running.sandbox import Outcome, WrittenFile
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from recording import Counter
from worlds import World

BODY = "# Steps\n\nBODY-MARKER\nRun scripts/x.sh, see references/a.md.\n"
FILES = {"references/a.md": "REFERENCE-MARKER", "assets/b.json": "{}", "scripts/x.sh": "#!/bin/sh\n:\n"}


def open_session(world: World, **given: Any) -> Session:
    """A session with a clock and ids of its own, so that its frames are always the same."""
    counter = Counter()
    return world.discover("rip").session(id="session", clock=counter.clock, ids=counter.ids, **given)


def frames(session: Session, kind: str) -> list[dict[str, Any]]:
    return [frame for frame in session.events if frame["type"] == kind]


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.mark.behaviour("R-015", "R-017")
def test_the_baseline_lists_names_and_descriptions_and_no_more_and_all_while_the_budget_holds(world: World) -> None:
    world.skill(".rip/skills/one", description="First <b>", compatibility="COMPAT-MARKER", body=BODY, license="MIT")
    world.skill("~/.rip/skills/deep/two", description="Second", allowed_tools="TOOLS-MARKER", metadata={"k": "META"})
    text = open_session(world).prompt().text
    assert re.findall(r"<skill>.*?</skill>", text) == [
        "<skill><name>one</name><description>First &lt;b&gt;</description></skill>",
        "<skill><name>two</name><description>Second</description></skill>",
    ]
    for hidden in ("MARKER", "META", "MIT", str(world.project), str(world.home)):
        assert hidden not in text
    for number in range(38):
        world.skill(f".rip/skills/skill-{number:02}", description=f"Does {number}. " + "More about it. " * 20)
    session = open_session(world)
    whole, squeezed, cut = session.prompt(), session.prompt(budget=4000), session.prompt(budget=800)
    assert (whole.shown, whole.total, whole.truncated) == (40, 40, False)
    assert (len(squeezed.text) <= 4000, squeezed.shown, squeezed.truncated) == (True, 40, False)
    assert (len(cut.text) <= 800, cut.total, cut.truncated) == (True, 40, True)
    assert f"{40 - cut.shown} of 40 skills are not shown; you can still load them by name." in cut.text


@pytest.mark.behaviour("R-004")
def test_after_discovery_no_root_is_walked_again(world: World) -> None:
    for number in range(3):
        world.skill(f".rip/skills/skill-{number}", body=BODY, files=FILES)
    session = open_session(world)
    roots = {str(world.project / ".rip/skills"), str(world.home / ".rip/skills")}
    session.call("skill_search", {"query": "first"})  # the first search reads the skills and their references once
    with listening() as heard:
        session.system_prompt("BASE", message="do something")
        session.tools()
        session.load("skill-1")
        session.call("skill_search", {"query": "skill"})
        session.invoke("/skill:skill-2 go")
    walked = [path for event, path in heard if event in ("os.scandir", "os.listdir") and path in roots]
    assert walked == []
    assert len([path for event, path in heard if event == "os.scandir"]) <= 2 * 4, "only the folders of what was loaded"


@pytest.mark.behaviour("R-018", "R-020", "R-043", "N-081")
def test_activation_returns_body_and_digest_and_other_files_come_by_calls_of_their_own(world: World) -> None:
    path = world.skill(".rip/skills/one", body=BODY, files=FILES)
    session = open_session(world)
    called = session.call("skill_load", {"name": "one"})
    assert called.text == BODY, "what the model reads"
    ways = (
        called.as_dict(),
        open_session(world).load("one").as_dict(),
        metier(world, "load", "one", "--profile", "rip"),
    )
    for result in ways:
        expected = (BODY, sha256(path.read_bytes()), sorted(FILES))
        assert (result["text"], result["digest"], result["files"]) == expected
    for number, file in enumerate(("references/a.md", "assets/b.json"), 1):
        resource = session.call("skill_read", {"name": "one", "path": file})
        assert resource.text == resource.data["text"] == FILES[file]
        read = frames(session, "skill_resource_read")
        assert (len(read), read[-1]["name"], read[-1]["path"]) == (number, "one", file)
        assert read[-1]["digest"] == sha256(FILES[file].encode())


@pytest.mark.behaviour("R-019", "R-022")
def test_activation_reads_no_other_file_and_runs_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metier.files.beneath._has_openat2", lambda: False)  # so that each open is heard
    mark = world.project / "ran"
    world.skill(".rip/skills/one", body=BODY + f"!`touch {mark}`\n", files={**FILES, "scripts/x.sh": f"touch {mark}"})
    session = open_session(world)
    with listening() as heard:
        session.load("one")
    assert not {"a.md", "b.json", "x.sh"} & {path for event, path in heard if event == "open"}
    assert frames(session, "skill_resource_read") == []
    assert left(heard) == []
    assert not mark.exists()


@pytest.mark.behaviour("R-021", "R-045")
def test_a_model_reads_what_a_script_printed_how_it_ended_and_what_it_wrote(world: World) -> None:
    world.skill(".rip/skills/one", body=BODY, files=FILES)
    wrote = (WrittenFile("out.txt", 5, sha256(b"12345"), b"12345"),)
    late = Outcome(137, "timeout", 3, b"", b"", files=wrote)
    outcomes = [
        (Outcome(0, "exit", 3, b"", b""), "[no output]"),
        (Outcome(0, "exit", 3, b"ran\n", b""), "ran"),
        (Outcome(3, "exit", 3, b"ran\n", b"bad\n"), "ran\n[stderr]\nbad\n[exit code 3]"),
        (late, "[exit code 137, ended by its timeout]\n[wrote out.txt, 5 bytes]"),
    ]
    for outcome, text in outcomes:
        session = open_session(world, policy={"allow": [{"tool": "skill_run"}]}, runner=FakeRunner(default=outcome))
        session.call("skill_load", {"name": "one"})
        assert session.call("skill_run", {"name": "one", "script": "scripts/x.sh"}).text == text


EFFECTIVE: list[tuple[dict[str, Any], str | None, list[str] | None]] = [
    ({"tools": ["a", "b", "c"]}, "b d", ["b"]),
    ({"tools": ["a", "b", "c"]}, None, ["a", "b", "c"]),
    ({"tools": ["a", "b", "c"]}, "d e", []),
    ({"tools": []}, "a", []),
    ({"tools": ["a", "b"], "deny": [{"tool": "b"}]}, "a b", ["a"]),
    ({"deny": [{"tool": "Read"}]}, "Bash Read", ["Bash"]),
    ({"tools": ["Bash"]}, "Bash(git add *) Read", ["Bash(git add *)"]),
    ({}, None, None),
]


@pytest.mark.behaviour("R-023", "R-024", "R-025")
def test_the_effective_tools_are_those_that_policy_and_hint_both_allow(world: World) -> None:
    for policy, hint, effective in EFFECTIVE:
        world.skill(".rip/skills/one", body=BODY, allowed_tools=hint)
        session = open_session(world, policy=policy)
        session.call("skill_load", {"name": "one"})
        (invoked,) = frames(session, "skill_invoked")
        assert invoked.get("effective_allowed_tools") == effective, (policy, hint)


@pytest.mark.behaviour("R-023", "R-026")
@pytest.mark.parametrize("ends", ["end_turn", "next message"])
def test_a_host_that_asks_before_it_uses_its_own_tools_is_told_of_the_window(world: World, ends: str) -> None:
    """Tools of the host are run by the host. That a window refuses the calls that Metier runs is shown elsewhere."""
    world.skill(".rip/skills/one", body=BODY, allowed_tools="Read Grep Denied")
    session = open_session(world, policy={"tools": ["Read", "Grep", "Bash", "Denied"], "deny": [{"tool": "Denied"}]})

    def usable() -> list[str]:
        return [tool for tool in ("Read", "Grep", "Bash", "Denied", "Other") if session.may_use(tool)]

    assert usable() == ["Read", "Grep", "Bash"]
    session.invoke("/skill:one go")
    assert usable() == ["Read", "Grep"]
    session.end_turn() if ends == "end_turn" else session.invoke("something else")
    assert usable() == ["Read", "Grep", "Bash"]


GREEDY: dict[str, Any] = {
    "allowed_tools": "Denied Other Bash skill_run",
    "permissions": {"allow": [{"tool": "skill_run"}, {"tool": "skill_load"}, {"tool": "run_network"}]},
    "policy": "full-auto",
    "profile": "full-auto",
    "overrides": {"tools": {"defaults": {"Bash": "allow"}}, "permissions": {"profile": "full-auto"}},
    "tools": ["Denied", "Other"],
    "model": "large",
}


@pytest.mark.behaviour("R-027", "R-030")
def test_no_key_of_a_skill_widens_what_policy_allows_unless_policy_says_so(world: World) -> None:
    files = {"scripts/x.sh": "#!/bin/sh\n", "assets/a.txt": "ASSET"}
    world.skill(".rip/skills/one", body=BODY, files=files, **GREEDY)
    world.skill(".rip/skills/secret", body="SECRET", files=files)
    deny = [{"tool": "skill_load", "skill_name": "secret"}, {"tool": "skill_read", "path": "assets/*"}]
    runner = FakeRunner(default=Outcome(0, "exit", 3, b"ran\n", b""))

    def tried(**policy: Any) -> tuple[list[str], list[bool], dict[str, Any]]:
        """What a model is told that tries, whether its scripts had the network, and what the skill changed."""
        session = open_session(world, policy={"deny": deny, "tools": ["Bash"], **policy}, runner=runner)
        session.call("skill_load", {"name": "one"})
        ran = len(runner.jobs)
        said = [
            session.call("skill_load", {"name": "secret", "parent": "one"}).text,
            session.call("skill_read", {"name": "one", "path": "assets/a.txt"}).text,
            session.call("skill_run", {"name": "one", "script": "scripts/x.sh"}).text,
        ]
        assert not any(session.may_use(tool) for tool in ("Denied", "Other"))
        return said, [job.network for job in runner.jobs[ran:]], dict(session.overrides)

    said, ran, changed = tried()
    assert said[0] == "there is no skill 'secret'; available: one"
    assert "policy refuses skill_read for one" in said[1]
    assert "policy refuses skill_run for one" in said[2]
    assert (ran, changed) == ([], {})
    said, ran, changed = tried(allow=[{"tool": "skill_run"}, {"tool": "override", "path": "model"}])
    assert said[0].startswith("there is no skill 'secret'")
    assert "policy refuses skill_read for one" in said[1]
    assert said[2].startswith("ran")
    assert (ran, changed) == ([False], {"model": "large"})


@pytest.mark.behaviour("R-028")
def test_full_auto_is_in_force_only_when_it_is_chosen_by_name(world: World) -> None:
    world.skill(".rip/skills/one", model="large")
    for policy, chosen in ((None, False), ({"profile": "default"}, False), ({"profile": "full-auto"}, True)):
        session = open_session(world, policy=policy)
        assert (session.policy.name == "full-auto") is chosen
        assert [frame["policy"] for frame in frames(session, "policy_chosen")] == (["full-auto"] if chosen else [])
        session.load("one")
        assert session.overrides == ({"model": "large"} if chosen else {})


@pytest.mark.behaviour("R-031", "R-032")
def test_the_command_loads_the_skill_with_the_users_words_and_is_recorded(world: World) -> None:
    path = world.skill(".rip/skills/one", body=BODY)
    for message, words in (("v1 to v2", "v1 to v2"), ("", ""), ("\n two\nlines ", "two\nlines")):
        session = open_session(world)
        called = session.invoke(f"/skill:one {message}")
        assert called.skill == session.skills["one"]
        assert called.loaded is not None
        assert called.loaded.text == (f"{BODY.rstrip()}\n\nARGUMENTS: {words}\n" if words else BODY)
        (loaded,), (invoked,) = frames(session, "skill_loaded"), frames(session, "skill_invoked")
        assert (loaded["name"], loaded["path"]) == ("one", str(path))
        assert (invoked["name"], invoked["mode"], invoked.get("args", "")) == ("one", "manual", words)


@pytest.mark.behaviour("R-033", "N-070")
def test_the_same_command_on_the_same_files_gives_the_same_bytes_in_every_process(world: World) -> None:
    body = BODY + "For $ARGUMENTS: awk '{print $1, $2}' $file\n"
    given: dict[str, Any] = {"argument-hint": "[file]", "arguments": ["file"]}
    world.skill(".rip/skills/one", body=body, files=FILES, **given)
    message = "/skill:one {baseDir} $ARGUMENTS $1"

    def once() -> tuple[str, str]:
        session = open_session(world)
        session.system_prompt("BASE")
        called = session.invoke(message)
        assert called.loaded is not None
        return called.loaded.text, json.dumps(session.events)

    first = once()
    assert first == once()
    arguments = "{baseDir} $ARGUMENTS $1"
    filled = body.rstrip().replace("$ARGUMENTS", arguments)
    assert first[0] == f"{filled}\n\nARGUMENTS: {arguments}\n"
    assert metier(world, "session", "invoke", message, "--profile", "rip")["loaded"]["text"] == first[0]


PROPOSED: dict[str, Any] = {
    "overrides": {"tools": {"defaults": {"Bash": {"timeout": 5}}, "aliases": {"sh": "Bash"}}, "context": ["src/**"]},
    "model": "large",
}


ANY, TOOLS = {"tool": "override"}, ["tools.aliases", "tools.defaults"]
DECIDED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"allow": [{**ANY, "path": "model"}]}, ["model"]),
    ({"allow": [{**ANY, "path": "tools.*"}]}, TOOLS),
    ({"allow": [ANY], "deny": [{**ANY, "path": "context"}]}, ["model", *TOOLS]),
    ({"allow": [{**ANY, "skill_name": "other"}]}, []),
]


@pytest.mark.behaviour("R-034", "R-035", "N-087")
def test_what_a_skill_proposes_is_decided_by_policy_and_recorded_either_way(world: World) -> None:
    world.skill(".rip/skills/one", body=BODY, **PROPOSED)
    for policy, granted in DECIDED:
        session = open_session(world, policy=policy)
        session.call("skill_load", {"name": "one"})
        proposed = {frame["key"]: frame for frame in frames(session, "skill_override_proposed")}
        assert sorted(proposed) == ["context", "model", *TOOLS]
        assert (
            sorted(key for key, frame in proposed.items() if frame["granted"]) == sorted(session.overrides) == granted
        )
        assert all(frame["rule"] and frame["name"] == "one" for frame in proposed.values())
        assert proposed["tools.aliases"]["value"] == {"sh": "Bash"}
