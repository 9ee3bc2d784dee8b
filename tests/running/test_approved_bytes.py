"""What was approved is what runs: all files of the skill, at this place, and nothing that came later."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import parts
from calling import caller
from metier.errors import ConfigError, MetierError, PolicyDenied, ResourceError, SandboxUnavailable, SkillNotFound
from metier.files.digests import digest_of
from metier.policy.decide import Policy
from metier.policy.rules import Rule, skill_request
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, verify
from metier.running.sandbox import Outcome, Runner
from metier.running.sandbox.fake import FakeRunner
from metier.running.sandbox.runners import choose
from metier.session.approvals import questions
from metier.session.session import Session
from metier.values.grants import recorded_tools
from metier.values.results import Request
from metier.values.skill import Skill
from people import Person, frames
from worlds import World

OWN, REPO = "~/.agents/skills/tell", ".agents/skills/tell"
MAIN = '#!/bin/sh\n. "$(dirname "$0")/helper.sh"\nsay\n'
FILES: dict[str, str | bytes] = {
    "scripts/main.sh": MAIN,
    "scripts/helper.sh": "say() { echo approved; }\n",
    "scripts/other.sh": "#!/bin/sh\necho other\n",
    "assets/large.bin": b"\0" * (5 << 20),
}
RUN = ("skill_run", {"name": "tell", "script": "scripts/main.sh"})


def runner(name: str) -> Runner:
    try:
        return choose([name])
    except SandboxUnavailable as error:
        parts.missing("bwrap", str(error))


each_runner = pytest.mark.parametrize("name", ["none", "bubblewrap"])


def opened(world: World, approve: Person | None = None, **given: Any) -> Session:
    given.setdefault("runner", FakeRunner(default=Outcome(0, "exit", 1, b"ran\n")))
    session = world.discover().session(approve=approve, **given)
    if session.call("skill_load", {"name": "tell"}).ok and approve is not None:
        approve.asked.clear()
    return session


def tools(request: Request) -> list[str]:
    """What of the grants in a request rules name."""
    return [tool for grant in request.grants for tool in grant.tools]


def recorded(session: Session) -> list[list[str]]:
    """The same of the scripts that started."""
    return [recorded_tools(frame.get("grants")) for frame in frames(session, "tool_started")]


# --- the bytes ---


@pytest.mark.system
@each_runner
def test_an_edit_while_the_question_is_open_runs_what_was_approved(world: World, name: str) -> None:
    folder = world.skill(OWN, files=FILES).parent

    def edit() -> None:
        (folder / "scripts/helper.sh").write_text("say() { echo edited; }\n")
        (folder / "scripts/main.sh").write_text("#!/bin/sh\necho edited\n")

    person = Person(meanwhile=edit)
    session = opened(world, person, runner=runner(name))
    assert session.call(*RUN).text.strip() == "approved"
    assert session.call(*RUN).text.strip() == "edited"
    first, second = person.asked
    assert first.digest != second.digest
    assert (first.detail, second.detail) == (MAIN, "#!/bin/sh\necho edited\n")


def test_an_edit_of_any_file_is_asked_about_again_after_always(world: World) -> None:
    files = {**FILES, "scripts/made.pyc": b"\0", ".git/hooks/x.sh": "x"}
    folder = world.skill(OWN, files=files).parent
    scripts, manual, large = folder / "scripts", folder / "SKILL.md", folder / "assets/large.bin"
    edits: dict[str, Callable[[], object]] = {
        "the script": lambda: (scripts / "main.sh").write_text("#!/bin/sh\nrm -rf /\n"),
        "an imported file": lambda: (scripts / "helper.sh").write_text("say() { :; }\n"),
        "the last byte of a file beyond 4 MiB": lambda: large.write_bytes(b"\0" * ((5 << 20) - 1) + b"\1"),
        "the executable bit": lambda: (scripts / "helper.sh").chmod(0o640),
        "a new file": lambda: (scripts / "new.sh").write_text(""),
        "a file that is gone": lambda: (scripts / "other.sh").unlink(),
        "a file that is a link now": lambda: (
            (scripts / "new.sh").unlink() or (scripts / "new.sh").symlink_to("main.sh")
        ),
        "SKILL.md": lambda: manual.write_text(manual.read_text() + "More.\n"),
    }
    (scripts / "helper.sh").chmod(0o755)
    for what, edit in edits.items():
        person = Person("always")
        session = opened(world, person)
        for _ in range(2):
            assert session.call(*RUN).ok
            (scripts / "made.pyc").write_bytes(what.encode())
            (folder / ".git/hooks/x.sh").write_text(what)
        assert len(person.asked) == 1, "bytecode and repositories are no part of it"
        edit()
        person.answer = "no"
        again = Person("no")
        assert not session.call(*RUN).ok, what
        assert not opened(world, again).call(*RUN).ok, what
        assert (len(person.asked), len(again.asked)) == (2, 1)
    refused = opened(world).call("skill_run", {"name": "tell", "script": "scripts/made.pyc"})
    assert (refused.ok, "compiled Python" in refused.text) == (False, True)


def test_a_script_behind_links_is_found_in_the_tree_and_none_leaves_it(world: World, tmp_path: Path) -> None:
    folder = world.skill(OWN, files={**FILES, "scripts/huge.sh": b"#!/bin/sh\n" + b"#" * (4 << 20)}).parent
    (tmp_path / "outside.sh").write_text("#!/bin/sh\necho outside\n")
    (folder / "scripts/linked.sh").symlink_to("main.sh")
    (folder / "scripts/away.sh").symlink_to(tmp_path / "outside.sh")
    (folder / "scripts/round.sh").symlink_to("round.sh")
    (folder / "scripts/more").symlink_to("../scripts")
    person = Person()
    session = opened(world, person)
    for path in ("scripts/linked.sh", "scripts/more/main.sh", "scripts/more/linked.sh"):
        assert session.run("tell", path).exit_code == 0
    assert {request.detail for request in person.asked} == {MAIN}
    for path, reason in (("scripts/away.sh", "link"), ("scripts/round.sh", "loop"), ("scripts/none.sh", "not-found")):
        with pytest.raises(ResourceError) as refused:
            session.run("tell", path)
        assert refused.value.reason == reason
    with pytest.raises(ResourceError, match="4 MiB"):
        session.run("tell", "scripts/huge.sh")  # which nobody can review
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    with pytest.raises(MetierError, match="symbolic link"):
        session.run("tell", "scripts/main.sh")


# --- what the person and the record see ---


def test_a_changed_script_is_shown_with_the_text_that_was_approved(world: World) -> None:
    folder = world.skill(OWN, files=FILES).parent
    store = MemoryStore()
    assert opened(world, Person("always"), store=store).call(*RUN).ok
    (folder / "scripts/main.sh").write_text("#!/bin/sh\necho more\n")
    person = Person("once")
    session = opened(world, person, store=store)
    assert questions(session, *RUN)[0].before == MAIN
    assert session.call(*RUN).ok
    assert [(one.before, one.detail) for one in person.asked] == [(MAIN, "#!/bin/sh\necho more\n")]
    shutil.copytree(folder, world.project / REPO)
    clone = Person("no")
    opened(world, clone, store=store).call(*RUN)
    assert [(one.folder, one.before, one.foreign) for one in clone.asked] == [(str(world.project / REPO), "", True)]


def test_the_record_has_the_list_of_the_files_that_ran(world: World) -> None:
    folder = world.skill(OWN, files=FILES).parent
    store = MemoryStore()
    session = opened(world, Person(), store=store)
    session.call(*RUN)
    (folder / "scripts/helper.sh").write_text("say() { :; }\n")
    session.call(*RUN)
    started = frames(session, "tool_started")
    assert [frame["digest"] for frame in started] == [digest_of(MAIN.encode())] * 2
    before, after = (json.loads(store.get_artifact(frame["tree"])) for frame in started)
    changed = [path for (path, *one), (_, *other) in zip(before, after, strict=True) if one != other]
    assert changed == ["scripts/helper.sh"]
    assert ["assets/large.bin", digest_of(b"\0" * (5 << 20)), False] in before
    assert [frame["digest"] for frame in frames(session, "policy_asked")] == [frame["tree"] for frame in started]
    record, first = from_store(store, session.id), started[0]

    def lost(digest: str) -> bytes:
        return record.artifact("sha256:" + "0" * 64 if digest == first["tree"] else digest)

    (wrong,) = verify(replace(record, artifact=lost))
    assert (wrong.index, wrong.expected) == (first["seq"], first["tree"])


# --- the place ---


def verdict(
    world: World, tool: str, rules: Mapping[str, Mapping[str, str]], skill: Skill | None = None, digest: str = ""
) -> str:
    found = skill or world.discover()["tell"]
    policy = Policy.from_settings({key: [rule] for key, rule in rules.items()}, world.discover().profile)
    return policy.decide(skill_request(tool, found, digest=digest)).verdict


def test_a_rule_by_name_does_not_cover_the_skill_of_a_clone_until_its_project_is_trusted(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.skill(REPO, files=FILES)
    rules = {"allow": [{"tool": tool, "skill_name": "tell"} for tool in ("skill_run", "run_network", "override")]}
    person = Person("no")
    session = opened(world, person, policy=rules)
    assert not session.call(*RUN).ok
    assert [(one.foreign, tools(one)) for one in person.asked] == [(True, [])]
    assert not opened(world, policy=rules).call(*RUN).ok
    run = caller(world, capsys, monkeypatch)
    assert run("--home", str(world.home), "trust").code == 0
    trusted = opened(world, Person("no"), policy=rules)
    assert trusted.call(*RUN).ok
    assert recorded(trusted) == [["run_network"]]
    assert run("--home", str(world.home), "trust", "--remove").code == 0
    assert not opened(world, Person("no"), policy=rules).call(*RUN).ok


DIGEST = digest_of(b"files")


RULES: list[tuple[dict[str, str], bool]] = [
    ({}, True),
    ({"path": "*"}, True),
    ({"skill_name": "tell"}, False),
    ({"skill_name": "tell", "path": "*"}, False),
    ({"skill_name": "t*"}, False),
    ({"skill_name": "tell", "scope": "repo"}, True),
    ({"skill_name": "tell", "scope": "user"}, False),
    ({"skill_name": "tell", "source": "agents"}, True),
    ({"skill_name": "tell", "source": "claude"}, False),
    ({"skill_name": "tell", "digest": DIGEST}, True),
    ({"skill_name": "tell", "digest": digest_of(b"other")}, False),
    ({"skill_name": "tell", "folder": "PROJECT/.agents/skills/tell"}, True),
    ({"skill_name": "tell", "folder": "PROJECT/.agents/skills/*"}, True),
    ({"skill_name": "tell", "folder": "PROJECT/.agents/skills"}, False),
    ({"skill_name": "tell", "folder": "PROJECT/.agents/skills/tel"}, False),
    ({"folder": "PROJECT/*", "digest": digest_of(b"other")}, False),
    ({"folder": "PROJECT/*", "scope": "user"}, False),
    ({"skill_name": "else", "folder": "PROJECT/*"}, False),
]


@pytest.mark.parametrize("tool", ["skill_run", "run_network", "skill_load", "override"])
def test_a_rule_covers_a_foreign_skill_only_if_it_says_where_it_is_or_what(world: World, tool: str) -> None:
    world.skill(REPO)
    skill = world.discover()["tell"]
    wrong: list[dict[str, str]] = []
    for rule, covers in RULES:
        bound = {key: value.replace("PROJECT", str(world.project)) for key, value in rule.items()}
        rules = {"allow": {"tool": tool, **bound}, "ask": {"tool": tool if tool == "skill_load" else "Bash"}}
        if "digest" in rule and tool in ("skill_load", "override"):
            with pytest.raises(ConfigError, match="has no digest"):
                verdict(world, tool, rules)
        elif (verdict(world, tool, rules, skill, DIGEST) == "allow") is not covers:
            wrong.append(rule)
    assert wrong == []
    for kind in ("deny", "ask"):
        assert verdict(world, tool, {kind: {"tool": tool, "skill_name": "tell"}}, skill) in (kind, "deny")
    for folder in ("", "skills/tell", "~/.agents/skills/tell", "/skills/tell/"):
        with pytest.raises(ConfigError, match="folder"):
            verdict(world, tool, {"deny": {"tool": tool, "folder": folder}}, skill)


def test_always_is_bound_to_the_place_and_the_content(world: World) -> None:
    folder = world.skill(REPO, files=FILES).parent
    rules = {"ask": [{"tool": "skill_load"}]}
    person = Person("always")
    session = world.discover().session(approve=person, policy=rules, runner=FakeRunner(default=Outcome(0, "exit", 1)))
    session.call("skill_load", {"name": "tell"})
    session.call(*RUN)
    load, run = session.policy.remembered.current().allow
    assert load == Rule("skill_load", "tell", folder=str(folder))
    given = (("reads", str(world.project)),)
    assert run == Rule(
        "skill_run", "tell", "scripts/main.sh", digest=person.asked[-1].digest, folder=str(folder), given=given
    )
    copied = world.project.parent / "clone"
    shutil.copytree(world.project, copied)
    stranger = Person("no")
    other = world.discover(cwd=copied).session(approve=stranger, policy=rules, runner=FakeRunner())
    assert not other.call("skill_load", {"name": "tell"}).ok
    with pytest.raises(PolicyDenied):
        other.run("tell", "scripts/main.sh")
    assert [one.tool for one in stranger.asked] == ["skill_load", "skill_load"]


def test_a_folder_whose_name_is_a_glob_covers_no_other(world: World) -> None:
    files = {"scripts/*.sh": "#!/bin/sh\n", "scripts/a.sh": "#!/bin/sh\n"}
    world.skill("~/.agents/skills/g/t*ll", "tell", files=files, strict_name=False)
    skill = world.discover()["tell"]
    policy = Policy(on_remember=lambda _: None)
    request = skill_request("skill_run", skill, "scripts/*.sh", digest=DIGEST)
    policy.remember(request)
    assert policy.decide(request).verdict == "allow"
    assert policy.decide(replace(request, folder=request.folder.replace("*", "a"))).verdict == "ask"
    assert policy.decide(replace(request, path="scripts/a.sh")).verdict == "ask"


def test_a_linked_skill_file_does_not_lend_its_place(world: World) -> None:
    """A clone links its SKILL.md to the user's and brings its own scripts."""
    own = world.skill(OWN, files=FILES)
    clone = world.project / REPO
    (clone / "scripts").mkdir(parents=True)
    (clone / "SKILL.md").symlink_to(own)
    (clone / "scripts/main.sh").write_text("#!/bin/sh\necho cloned\n")
    skills = world.discover(settings={"discovery.file_links": "follow"})
    with pytest.raises(SkillNotFound):
        skills.at(clone)  # a link that leaves an untrusted project is not followed
    world.trust()
    skills = world.discover(settings={"discovery.file_links": "follow"})
    skill = skills.at(clone)
    assert (skill.real_path, skill.folder) == (str(own), str(clone))
    rule = {"tool": "skill_run", "folder": str(own.parent)}
    assert verdict(world, "skill_run", {"allow": rule}, skill) == "ask"


# --- projects ---


def foreign(world: World, **given: Any) -> dict[str, bool]:
    return {skill.name: skill.foreign for skill in world.discover(**given)}


def test_what_is_foreign(world: World, tmp_path: Path) -> None:
    world.skill("~/.agents/skills/mine")
    world.skill(".agents/skills/repo")
    world.skill("extra/named")
    world.skill("custom/listed")
    world.skill("~/.claude/skills/other")
    away = tmp_path / "away"
    (away / "linked").mkdir(parents=True)
    (away / "linked/SKILL.md").write_text("---\nname: linked\ndescription: d\n---\n")
    settings = {"custom_directories": ["custom"], "custom_scope": "user"}
    expected = {"mine": False, "repo": True, "named": True, "listed": True, "linked": False}
    assert foreign(world, roots=[world.project / "extra", away], settings=settings) == expected
    assert foreign(world, profile="claude-code", cwd=world.home) == {"other": False}, "the home is the project"
    listed = world.discover(settings=settings)["listed"]
    for bound in ({"scope": "user"}, {"skill_name": "listed", "scope": "user"}):
        assert listed.scope == "user"
        assert verdict(world, "skill_run", {"allow": {"tool": "skill_run", **bound}}, listed) == "ask"
    (world.project / "more").symlink_to(away)
    assert foreign(world, roots=[world.project / "more"])["linked"]
    (tmp_path / "door").symlink_to(world.project / "extra")
    assert foreign(world, roots=[tmp_path / "door"])["named"]
    world.trust()
    assert not any(foreign(world, roots=[world.project / "extra"], settings=settings).values())


# --- processes and commands ---


def test_a_project_inside_a_trusted_folder_is_not_trusted_with_it(world: World) -> None:
    """A host's markers decide what its project is, but a repository in it is one of its own."""
    world.trust()
    world.skill("clone/.agents/skills/tell")
    clone = world.project / "clone"
    settings = {"project.markers": [".marker"]}
    (world.project / ".marker").touch()
    assert foreign(world, cwd=clone, settings=settings) == {"tell": False}
    (clone / ".git").mkdir()
    skills = world.discover(cwd=clone, settings=settings)
    assert skills.settings.place.project == str(world.project)
    assert skills["tell"].foreign
