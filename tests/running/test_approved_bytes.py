"""What was approved is what runs: all files of the skill, at this place, and nothing that came later."""

import json
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forking
import parts
from calling import Run, caller
from metier.errors import ConfigError, MetierError, PolicyDenied, ResourceError, SandboxUnavailable, SkillNotFound
from metier.files.digests import digest_of
from metier.policy.decide import Policy
from metier.policy.rules import Rule, skill_request
from metier.record.store import open_store
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay, verify
from metier.running.sandbox import Job, OnOutput, Outcome, Runner
from metier.running.sandbox.fake import FakeRunner
from metier.running.sandbox.runners import choose
from metier.running.sandbox.unsandboxed import UnsandboxedRunner
from metier.session.approvals import Answers, questions
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


class TreeRunner(UnsandboxedRunner):
    """Runs the files that the job has, from a folder of its own, whatever the skill's folder has by now."""

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        assert job.tree is not None
        with tempfile.TemporaryDirectory() as folder:
            for file in job.tree.files:
                path = Path(folder, file.path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.data)
                path.chmod(0o755 if file.executable else 0o644)
            return super().run(replace(job, skill_dir=folder, tree=None), on_output)


def runner(name: str) -> Runner:
    if name == "tree":
        return TreeRunner()
    try:
        return choose([name])
    except SandboxUnavailable as error:
        parts.missing("bwrap", str(error))


each_runner = pytest.mark.parametrize("name", ["tree", "none", "bubblewrap"])


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


@pytest.mark.system
@each_runner
def test_an_edit_after_the_decision_of_a_rule_runs_what_was_decided_on(world: World, name: str) -> None:
    folder = world.skill(OWN, files=FILES).parent
    real = runner(name)

    class Late(FakeRunner):
        def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
            (folder / "scripts/helper.sh").write_text("say() { echo edited; }\n")
            return real.run(job, on_output)

    session = opened(world, runner=Late(), policy={"allow": [{"tool": "skill_run"}]})
    assert session.call(*RUN).text.strip() == "approved"


EDITS: dict[str, Callable[[Path], object]] = {
    "the script": lambda folder: (folder / "scripts/main.sh").write_text("#!/bin/sh\nrm -rf /\n"),
    "an imported file": lambda folder: (folder / "scripts/helper.sh").write_text("say() { :; }\n"),
    "the last byte of a file beyond 4 MiB": lambda folder: (folder / "assets/large.bin").write_bytes(
        b"\0" * ((5 << 20) - 1) + b"\1"
    ),
    "the executable bit": lambda folder: (folder / "scripts/helper.sh").chmod(0o644),
    "a new file": lambda folder: (folder / "scripts/new.sh").write_text(""),
    "a file that is gone": lambda folder: (folder / "scripts/other.sh").unlink(),
    "a file that is a link now": lambda folder: (
        (folder / "scripts/helper.sh").unlink(),
        (folder / "scripts/helper.sh").symlink_to("other.sh"),
    ),
    "SKILL.md": lambda folder: (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text() + "More.\n"),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_of_any_file_is_asked_about_again_after_always(world: World, what: str) -> None:
    folder = world.skill(OWN, files=FILES).parent
    person = Person("always")
    session = opened(world, person)
    assert session.call(*RUN).ok
    assert session.call(*RUN).ok
    assert len(person.asked) == 1
    EDITS[what](folder)
    person.answer = "no"
    assert not session.call(*RUN).ok
    assert len(person.asked) == 2
    again = Person("no")
    assert not opened(world, again).call(*RUN).ok
    assert len(again.asked) == 1


def test_bytecode_and_repositories_change_nothing_and_do_not_run(world: World) -> None:
    folder = world.skill(OWN, files={**FILES, "scripts/made.pyc": b"\0", ".git/hooks/x.sh": "x"}).parent
    person = Person("always")
    session = opened(world, person)
    assert session.call(*RUN).ok
    (folder / "scripts/made.pyc").write_bytes(b"\1")
    (folder / ".git/hooks/x.sh").write_text("y")
    assert session.call(*RUN).ok
    assert len(person.asked) == 1
    refused = session.call("skill_run", {"name": "tell", "script": "scripts/made.pyc"})
    assert (refused.ok, "compiled Python" in refused.text) == (False, True)


def test_an_answer_that_was_remembered_for_a_script_alone_is_asked_for_once_more(world: World) -> None:
    world.skill(OWN, files=FILES)
    file = world.home / ".config/metier/permissions.toml"
    file.parent.mkdir(parents=True)
    digest = digest_of(MAIN.encode())
    file.write_text(f'[[allow]]\ntool = "skill_run"\nskill_name = "tell"\ndigest = "{digest}"\n')
    person = Person("always")
    session = opened(world, person)
    assert [session.call(*RUN).ok for _ in range(2)] == [True, True]
    assert len(person.asked) == 1


def test_always_is_for_one_script(world: World) -> None:
    world.skill(OWN, files=FILES)
    person = Person("always")
    session = opened(world, person)
    assert session.call(*RUN).ok
    person.answer = "no"
    assert not session.call("skill_run", {"name": "tell", "script": "scripts/other.sh"}).ok


def test_an_answer_ahead_is_no_answer_to_a_changed_skill(world: World) -> None:
    folder = world.skill(OWN, files=FILES).parent
    answers, fake = Answers(), FakeRunner(default=Outcome(0, "exit", 1))
    session = world.discover().session(approve=answers, runner=fake)
    session.call("skill_load", {"name": "tell"})
    ahead = questions(session, *RUN)
    with answers.given(ahead, True):
        assert session.call(*RUN).ok
    (folder / "scripts/helper.sh").write_text("say() { echo edited; }\n")
    with answers.given(ahead, True):
        assert not session.call(*RUN).ok
    (asked,) = questions(session, *RUN)
    assert asked not in ahead
    with answers.given([asked], True):
        assert session.call(*RUN).ok
    assert [job.tree.digest for job in fake.jobs if job.tree] == [ahead[0].digest, asked.digest]


def test_a_script_behind_links_is_found_in_the_tree_and_none_leaves_it(world: World, tmp_path: Path) -> None:
    folder = world.skill(OWN, files=FILES).parent
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


def test_a_script_that_nobody_can_review_is_refused(world: World) -> None:
    world.skill(OWN, files={"scripts/main.sh": b"#!/bin/sh\n" + b"#" * (4 << 20)})
    fake = FakeRunner(default=Outcome(0, "exit", 1))
    with pytest.raises(ResourceError, match="4 MiB"):
        opened(world, runner=fake).run("tell", "scripts/main.sh")
    assert fake.jobs == []


def test_a_folder_that_became_a_link_since_it_was_found_is_not_taken(world: World, tmp_path: Path) -> None:
    folder = world.skill(OWN, files=FILES).parent
    session = opened(world, Person())
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    with pytest.raises(MetierError, match="symbolic link"):
        session.run("tell", "scripts/main.sh")


# --- what the person and the record see ---


def test_a_request_says_which_skill_it_is_about_and_what_it_gets(world: World) -> None:
    folder = world.skill(REPO, files=FILES, overrides={"model": "large"}).parent
    person = Person()
    rules = {
        "allow": [{"tool": "run_network", "scope": "repo"}],
        "ask": [{"tool": "skill_load"}, {"tool": "skill_read"}],
    }
    session = world.discover().session(approve=person, policy=rules, runner=FakeRunner(default=Outcome(0, "exit", 1)))
    session.call("skill_load", {"name": "tell"})
    session.call("skill_read", {"name": "tell", "path": "scripts/main.sh"})
    session.call("skill_run", {**RUN[1], "arguments": ["a b", "c"]})
    place = (str(folder), "repo", "agents", True)
    assert [(one.folder, one.scope, one.source, one.foreign) for one in person.asked] == [place] * 3
    assert [one.tool for one in person.asked] == ["skill_load", "skill_read", "skill_run"]
    run = person.asked[-1]
    assert (run.arguments, run.command) == (("a b", "c"), "scripts/main.sh a b c")
    assert (tools(run), run.before) == (["run_network"], "")


def test_a_changed_script_is_shown_with_the_text_that_was_approved(world: World, tmp_path: Path) -> None:
    folder = world.skill(OWN, files=FILES).parent
    (folder / "scripts/linked.sh").symlink_to("main.sh")
    store = f"sqlite:///{tmp_path / 'store.db'}"
    linked = ("skill_run", {"name": "tell", "script": "scripts/linked.sh"})
    for call in (RUN, linked):
        assert opened(world, Person("always"), store=store).call(*call).ok
    (folder / "scripts/main.sh").write_text("#!/bin/sh\necho more\n")
    for call in (RUN, linked):
        person = Person("once")
        session = opened(world, person, store=store)
        assert questions(session, *call)[0].before == MAIN
        assert session.call(*call).ok
        assert [(one.before, one.detail) for one in person.asked] == [(MAIN, "#!/bin/sh\necho more\n")]
    answers = Answers()
    ahead = world.discover().session(approve=answers, store=store, runner=FakeRunner(default=Outcome(0, "exit", 1)))
    ahead.call("skill_load", {"name": "tell"})
    with answers.given([replace(one, before="") for one in questions(ahead, *RUN)], True):
        assert ahead.call(*RUN).ok, "what was approved before is no part of the question"
    elsewhere = Person("no")
    opened(world, elsewhere, store=MemoryStore()).call(*RUN)
    assert [one.before for one in elsewhere.asked] == [""]
    shutil.copytree(folder, world.project / REPO)
    clone = Person("no")
    opened(world, clone, store=store).call(*RUN)
    assert [(one.folder, one.before) for one in clone.asked] == [(str(world.project / REPO), "")]


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
    asked = frames(session, "policy_asked")
    assert [frame["digest"] for frame in asked] == [frame["tree"] for frame in started]


def test_a_session_with_such_runs_replays_without_its_files(world: World, tmp_path: Path) -> None:
    own = world.skill(OWN, files=FILES).parent
    world.skill(".agents/skills/cloned", files=FILES)
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    rules = {"allow": [{"tool": "skill_run", "skill_name": "cloned"}, {"tool": "run_network", "folder": str(own)}]}
    cloned = ("skill_run", {"name": "cloned", "script": "scripts/main.sh"})

    def edit() -> None:
        (own / "scripts/helper.sh").write_text("say() { :; }\n")

    person = Person("always", edit)
    session = opened(world, person, id="one", store=store, policy=rules)
    session.call("skill_load", {"name": "cloned"})
    for answer in ("always", "no", "once"):
        person.answer = answer
        session.call(*RUN)
    person.answer = "no"
    session.call(*cloned)
    person.answer = "always"
    session.call(*cloned)
    session.call("skill_run", {"name": "tell", "script": "scripts/none.sh"})
    nobody = opened(world, id="one", store=store, policy=rules)
    assert nobody.call(*cloned).ok
    (world.project / ".agents/skills/cloned/scripts/empty.sh").write_text("")
    assert not nobody.call(*cloned).ok
    assert not nobody.call("skill_run", {"name": "cloned", "script": "scripts/empty.sh"}).ok
    opened(world, id="one", store=store, policy=rules, runner=FakeRunner(problem="none")).call(*cloned)
    asked = [frame["answer"] for frame in frames(session, "policy_asked")]
    assert asked == ["always", "no", "once", "no", "always"]
    assert recorded(session) == [["run_network"]] * 2 + [[]] * 2
    shutil.rmtree(world.project)
    shutil.rmtree(world.home)
    again = replay(from_store(store, "one"))
    assert again.identical, again.differences[:2]
    assert again.not_compared == 0


@pytest.mark.system
@pytest.mark.parametrize("name", ["bubblewrap"])
def test_what_a_script_changes_in_the_project_is_recorded_and_replays(world: World, name: str) -> None:
    body = (
        "echo new > $PROJECT_DIR/made.txt; mkdir -p $PROJECT_DIR/tools/evil; echo x > $PROJECT_DIR/tools/evil/SKILL.md"
    )
    world.skill(OWN, files={"scripts/main.sh": f"#!/bin/sh\n{body}\n"})
    (world.project / "tools").mkdir()
    store = MemoryStore()
    skills = world.discover(roots=[world.project / "tools"])
    rules = {"allow": [{"tool": "skill_run"}, {"tool": "run_project_write", "path": "*.txt"}]}
    session = skills.session(store=store, policy=rules, runner=runner(name))
    result = session.run("tell", "scripts/main.sh")
    assert [(one.path, one.kind) for one in result.changes] == [("made.txt", "added")]
    assert "[added made.txt in the project]" in result.text
    assert any(note.startswith("not changed in the folder: tools") for note in result.notes)
    assert (world.project / "made.txt").read_text() == "new\n"
    (ended,) = frames(session, "tool_ended")
    assert ended["changes"] == [one.as_dict() for one in result.changes]
    again = replay(from_store(store, session.id))
    assert again.identical, again.differences
    assert again.outputs == [result.text]


def test_a_record_without_the_list_of_files_is_incomplete(world: World) -> None:
    world.skill(OWN, files=FILES)
    store = MemoryStore()
    session = opened(world, Person(), store=store)
    session.call(*RUN)
    (started,) = frames(session, "tool_started")
    record = from_store(store, session.id)

    def lost(digest: str) -> bytes:
        return record.artifact("sha256:" + "0" * 64 if digest == started["tree"] else digest)

    (wrong,) = verify(replace(record, artifact=lost))
    assert (wrong.index, wrong.expected) == (started["seq"], started["tree"])


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


def test_the_own_skill_of_that_name_is_covered_where_the_clone_is_not(world: World) -> None:
    world.skill(OWN, files=FILES)
    rule = {"tool": "skill_run", "skill_name": "tell"}
    assert verdict(world, "skill_run", {"allow": rule}) == "allow"
    world.skill(REPO, files=FILES)
    skills = world.discover()
    own, clone = (skills.at(path) for path in (world.home / OWN[2:], world.project / REPO))
    assert (own.foreign, clone.foreign) == (False, True)
    assert verdict(world, "skill_run", {"allow": rule}, own) == "allow"
    assert verdict(world, "skill_run", {"allow": rule}, clone) == "ask"


DIGEST = digest_of(b"files")


@pytest.mark.parametrize(
    ("rule", "covers"),
    [
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
    ],
)
@pytest.mark.parametrize("tool", ["skill_run", "run_network", "skill_load", "override"])
def test_a_rule_covers_a_foreign_skill_only_if_it_says_where_it_is_or_what(
    world: World, tool: str, rule: dict[str, str], covers: bool
) -> None:
    world.skill(REPO)
    bound = {key: value.replace("PROJECT", str(world.project)) for key, value in rule.items()}
    rules = {"allow": {"tool": tool, **bound}, "ask": {"tool": tool if tool == "skill_load" else "Bash"}}
    if "digest" in rule and tool in ("skill_load", "override"):
        with pytest.raises(ConfigError, match="has no digest"):
            verdict(world, tool, rules)
        return
    assert (verdict(world, tool, rules, digest=DIGEST) == "allow") is covers


def test_a_grant_that_is_bound_to_a_digest_is_for_these_files(world: World) -> None:
    folder = world.skill(REPO, files=FILES).parent
    person = Person()
    digest = questions(opened(world, person), *RUN)[0].digest
    rules = {"allow": [{"tool": "run_network", "skill_name": "tell", "digest": digest}]}
    session = opened(world, person, policy=rules)
    session.call(*RUN)
    (folder / "scripts/helper.sh").write_text("say() { :; }\n")
    session.call(*RUN)
    assert [tools(one) for one in person.asked] == [["run_network"], []]
    assert recorded(session) == [["run_network"], []]


@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_deny_and_ask_rules_by_name_cover_every_skill_of_that_name(world: World, kind: str) -> None:
    world.skill(REPO)
    assert verdict(world, "skill_read", {kind: {"tool": "skill_read", "skill_name": "tell"}}) == kind


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


def test_the_rule_that_a_refusal_names_would_allow_it_and_names_no_folder(world: World) -> None:
    world.skill(REPO, files=FILES)
    rules: dict[str, Any] = {"ask": [{"tool": "skill_load"}], "allow": []}
    for call in (("skill_load", {"name": "tell"}), RUN):
        fake = FakeRunner(default=Outcome(0, "exit", 1))
        session = world.discover().session(policy=rules, runner=fake)
        session.call("skill_load", {"name": "tell"})
        refused = session.call(*call)
        assert (refused.ok, str(world.project) in refused.text) == (False, False)
        (rule,) = re.findall(r"allow = \[(\{.*\})\]", refused.text)
        rules["allow"].append(tomllib.loads(f"rule = {rule}")["rule"])
        allowed = world.discover().session(policy=rules, runner=fake)
        allowed.call("skill_load", {"name": "tell"})
        assert allowed.call(*call).ok


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


@pytest.mark.parametrize("folder", ["", "skills/tell", "~/.agents/skills/tell", "/skills/tell/"])
def test_a_rule_with_a_folder_that_can_never_match_is_an_error(world: World, folder: str) -> None:
    world.skill(OWN)
    with pytest.raises(ConfigError, match="folder"):
        verdict(world, "skill_run", {"deny": {"tool": "skill_run", "folder": folder}})


def test_a_host_tool_can_be_denied_while_a_skill_of_a_place_is_active(world: World) -> None:
    world.skill(REPO)
    world.skill("~/.agents/skills/mine")
    session = world.discover().session(policy={"deny": [{"tool": "Bash", "scope": "repo"}]})
    session.load("mine")
    assert session.may_use("Bash")
    session.load("tell")
    assert not session.may_use("Bash")


# --- projects ---


def foreign(world: World, **given: Any) -> dict[str, bool]:
    return {skill.name: skill.foreign for skill in world.discover(**given)}


def test_what_is_foreign(world: World, tmp_path: Path) -> None:
    world.skill("~/.agents/skills/mine")
    world.skill(".agents/skills/repo")
    world.skill("extra/named")
    world.skill("custom/listed")
    away = tmp_path / "away"
    (away / "linked").mkdir(parents=True)
    (away / "linked/SKILL.md").write_text("---\nname: linked\ndescription: d\n---\n")
    settings = {"custom_directories": ["custom"], "custom_scope": "user"}
    expected = {"mine": False, "repo": True, "named": True, "listed": True, "linked": False}
    assert foreign(world, roots=[world.project / "extra", away], settings=settings) == expected
    (world.project / "more").symlink_to(away)
    assert foreign(world, roots=[world.project / "more"])["linked"]
    (tmp_path / "door").symlink_to(world.project / "extra")
    assert foreign(world, roots=[tmp_path / "door"])["named"]
    world.trust()
    assert not any(foreign(world, roots=[world.project / "extra"], settings=settings).values())


def test_a_project_cannot_pass_its_skills_off_as_the_users(world: World) -> None:
    world.skill("custom/tell", files=FILES)
    skills = world.discover(settings={"custom_directories": ["custom"], "custom_scope": "user"})
    assert skills["tell"].scope == "user"
    for rule in ({"scope": "user"}, {"skill_name": "tell", "scope": "user"}):
        assert verdict(world, "skill_run", {"allow": {"tool": "skill_run", **rule}}, skills["tell"]) == "ask"


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


def test_the_own_skills_are_not_foreign_where_the_home_is_the_project(world: World) -> None:
    world.skill("~/.agents/skills/mine")
    world.skill("~/.claude/skills/other")
    assert foreign(world, profile="claude-code", cwd=world.home) == {"other": False}


# --- processes and commands ---

PROCESS = """
import sys
from metier import Skills
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
asked = []
session = Skills.discover(sys.argv[1], home=sys.argv[2]).session(
    approve=lambda request: asked.append(request) or sys.argv[3], runner=FakeRunner(default=Outcome(0, "exit", 1))
)
session.call("skill_load", {"name": "tell"})
done = session.call("skill_run", {"name": "tell", "script": "scripts/main.sh"})
print(len(asked), done.ok)
"""


def in_process(world: World, answer: str) -> str:
    line = [sys.executable, "-c", PROCESS, str(world.project), str(world.home), answer]
    return forking.run(line, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.system
def test_always_in_one_process_holds_in_the_next_for_these_files(world: World) -> None:
    folder = world.skill(REPO, files=FILES).parent
    assert in_process(world, "always") == "1 True"
    assert in_process(world, "no") == "0 True"
    (folder / "scripts/helper.sh").write_text("say() { :; }\n")
    assert in_process(world, "no") == "1 False"


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


def test_policy_explain_knows_the_place_and_the_content(world: World, run: Run) -> None:
    folder = world.skill(REPO, files=FILES).parent
    user = world.home / ".config/metier"
    user.mkdir(parents=True)
    (user / "config.toml").write_text('[permissions]\nallow = [{ tool = "skill_run", skill_name = "tell" }]\n')
    explain = ("policy", "explain", "skill_run", "--skill", "tell", "--path", "scripts/main.sh", "--json")
    assert run(*explain).json["verdict"] == "ask"
    person = Person("always")
    assert opened(world, person).call(*RUN).ok
    (asked,) = person.asked
    shown = run(*explain).json
    assert (shown["verdict"], shown["rule"]["folder"]) == ("allow", str(folder))
    assert shown["rule"]["digest"] == asked.digest
    assert f"allow skill_run tell: only in {folder}\n" in run("policy", "list").out
    (row,) = [one for one in run("policy", "list", "--json").json["rules"] if "id" in one]
    assert (row["folder"], row["path"]) == (str(folder), "scripts/main.sh")
    assert run("policy", "revoke", row["id"][:8]).code == 0
    assert run(*explain).json["verdict"] == "ask"
    world.trust()
    assert run(*explain).json["verdict"] == "allow"
    (folder / "scripts/helper.sh").write_text("say() { :; }\n")
    assert run(*explain).json["verdict"] == "allow"


def test_policy_explain_of_a_session_counts_rules_about_the_place_of_active_skills(world: World, run: Run) -> None:
    world.skill(REPO)
    world.skill("~/.agents/skills/mine")
    user = world.home / ".config/metier"
    user.mkdir(parents=True)
    (user / "config.toml").write_text('[permissions]\ndeny = [{ tool = "Bash", scope = "repo" }]\n')
    assert run("load", "mine", "--session", "one").code == 0
    assert run("policy", "explain", "Bash", "--session", "one").code == 0
    assert run("load", "tell", "--session", "one").code == 0
    refused = run("policy", "explain", "Bash", "--session", "one")
    assert (refused.code, "the skill tell is active" in refused.out) == (3, True)
