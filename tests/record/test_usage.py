"""What the record says about the use of skills: every figure, and what it does not know."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

import pytest

from metier import BadArguments, MetierError, PolicyDenied, SkillNotFound, SkillUsage, StoreError, Usage, replay, usage
from metier.record import usage as counting
from metier.record.store import Store
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.options import SessionOptions
from metier.session.session import Session
from worlds import World

SKILLS = ".agents/skills"
RULES = {"allow": [{"tool": "skill_run", "skill_name": "used"}], "deny": [{"tool": "skill_load", "skill_name": "no"}]}


@pytest.fixture
def library(world: World) -> World:
    files = {"references/a.md": "A reference.\n", "scripts/say.sh": "#!/bin/sh\n"}
    world.skill(f"{SKILLS}/used", description="Measures timber.", body="# Measure twice\n", files=files)
    world.skill(f"{SKILLS}/idle", description="Boils eggs.", files=files)
    world.skill(f"{SKILLS}/no", description="Is denied.")
    world.skill(f"{SKILLS}/hidden", description="For people.", disable_model_invocation=True)
    world.trust()  # rules by name do not cover the skills of other projects
    return world


def opened(world: World, kept: Store, **given: Unpack[SessionOptions]) -> Session:
    runner = FakeRunner(default=Outcome(0, "exit", 5, b"12 boards\n", b""))
    options: SessionOptions = {"policy": RULES, "runner": runner, "store": kept, **given}
    return world.discover().session(**options)


def of(found: Usage, name: str) -> SkillUsage:
    (one,) = [skill for skill in found.skills if skill.name == name]
    return one


def entry(prompt: str, name: str) -> str:
    (line,) = [line for line in prompt.split("\n") if f"<name>{name}</name>" in line]
    return line


def test_every_step_from_the_offer_to_the_run_is_counted_with_its_characters(library: World) -> None:
    store = MemoryStore()
    session = opened(library, store)
    prompt = session.system_prompt("Be kind.")
    assert session.system_prompt("Be kind.", message="something else") == prompt
    found = session.call("skill_search", {"query": "measure timber"}).text
    load = session.call("skill_load", {"name": "used"})
    again = session.call("skill_load", {"name": "used"})
    ref = load.data["ref"]
    whole = session.call("skill_output", {"ref": ref})
    read = session.call("skill_read", {"name": "used", "path": "references/a.md"})
    outside = session.call("skill_read", {"name": "used", "path": "../../x"})
    ran = session.call("skill_run", {"name": "used", "script": "scripts/say.sh"})
    other = session.load("idle")
    refused = session.call("skill_run", {"name": "idle", "script": "scripts/say.sh"})
    with pytest.raises(PolicyDenied) as denied:
        session.load("no")
    unknown = session.call("skill_load", {"name": "nowhere"})
    counted = usage(store)
    used, idle = of(counted, "used"), of(counted, "idle")
    assert (used.sessions, used.offered, used.found) == (1, 1, 1)
    assert (used.loaded, used.read, used.ran, used.refused) == (2, 1, 1, 1)
    assert (idle.loaded, idle.read, idle.ran, idle.refused) == (1, 0, 0, 1)
    assert (of(counted, "no").offered, of(counted, "no").loaded, of(counted, "no").refused) == (0, 0, 1)
    assert "nowhere" not in [one.name for one in counted.skills], "a model can ask for any text"
    its_own = (entry(prompt, "used"), load.text, again.text, whole.text, read.text, ran.text)
    assert used.characters == sum(map(len, its_own))
    listed = prompt.removeprefix("Be kind.\n\n")
    rest = (found, outside.text, refused.text, str(denied.value), unknown.text)
    texts = (load.text, again.text, whole.text, read.text, ran.text, other.text, *rest)
    assert counted.characters == len(listed) + sum(map(len, texts))
    assert used.share == round(used.characters / counted.characters, 4)
    assert used.tokens == used.characters // 4
    started = next(frame for frame in reversed(session.events) if frame["type"] == "tool_started")
    assert used.last_used_ms == started["timestamp_ms"]
    assert of(counted, "no").last_used_ms is None


def test_what_was_offered_and_never_loaded_is_named(library: World) -> None:
    store = MemoryStore()
    sessions = [opened(library, store) for _ in range(3)]
    for session in sessions:
        session.prompt()
        session.call("skill_load", {"name": "used"})
    sessions[0].load("hidden")
    opened(library, store).load("hidden")
    counted = usage(store)
    assert counted.never_loaded == ("idle",)
    assert (of(counted, "idle").offered, of(counted, "hidden").offered) == (3, 0)
    assert counted.sessions == 4


def test_a_list_that_grows_counts_once_and_each_skill_where_it_was_longest(library: World) -> None:
    store = MemoryStore()
    library.skill(f"{SKILLS}/used", description="Measures timber. " * 40)
    session = opened(library, store)
    short, long = session.prompt(budget=700), session.prompt()
    counted = usage(store)
    assert "<name>used</name>" in short.text
    assert len(store.read(types=("skills_offered",))) == 2
    assert len(short.text) < len(long.text)
    assert counted.characters == len(long.text)
    assert of(counted, "used").characters == len(entry(long.text, "used"))
    assert of(counted, "used").offered == 1


def test_preloaded_skills_and_those_of_every_prompt_count_as_instructions(library: World) -> None:
    store = MemoryStore()
    library.skill(".cursor/skills/always", description="Applies.", body="# Always\n", alwaysApply=True)
    settings = {"catalog": {"honours": ["alwaysApply"]}}
    skills = library.discover(roots=[library.project / ".cursor/skills"], settings=settings)
    session = skills.session(store=store, preload=["used"])
    session.system_prompt()
    counted = usage(store)
    used, always = of(counted, "used"), of(counted, "always")
    assert used.loaded == 1
    assert used.characters > len(session.preloaded[0].text)
    assert always.characters > len("# Always")
    assert (always.offered, always.loaded) == (1, 0)


def test_a_message_is_no_text_of_metier_and_no_load_where_the_host_only_names_the_skill(library: World) -> None:
    store = MemoryStore()
    library.skill(".codelia/skills/used")
    session = library.discover("codelia").session(store=store)
    assert session.invoke("a message that calls no skill").skill is None
    assert session.invoke("use $used now").skill is not None
    counted = usage(store)
    assert counted.characters == 0
    assert counted.skills == ()


def test_a_refusal_counts_only_for_skills_that_there_are(library: World) -> None:
    store = MemoryStore()
    session = opened(library, store, policy={"deny": [{"tool": "skill_read"}]})
    for url in ("skill://used/references/a.md", "skill://used/scripts/say.sh", "skill://made-up/a.md", "skill://"):
        with pytest.raises(MetierError):
            session.read(url)
    with pytest.raises(SkillNotFound):
        session.load(path=str(library.home / "SKILL.md"))
    with pytest.raises(PolicyDenied):
        opened(library, store).load(path=library.discover()["no"].path)
    assert [(one.name, one.refused) for one in usage(store, sort="name").skills] == [("no", 1), ("used", 2)]


def test_sessions_are_chosen_by_id_and_by_time_and_skills_by_name(library: World) -> None:
    store = MemoryStore()
    old = int((datetime.now(UTC) - timedelta(days=10)).timestamp() * 1000)
    opened(library, store, id="early", clock=lambda: old).load("idle")
    opened(library, store, id="late").load("used")
    names = {since: [one.name for one in usage(store, since=since).skills] for since in ("9d", "11d", "220h", "4w")}
    assert names == {"9d": ["used"], "11d": ["used", "idle"], "220h": ["used"], "4w": ["used", "idle"]}
    day = datetime.now(UTC) - timedelta(days=1)
    for since in (day, timedelta(days=1), day.isoformat(), day.date().isoformat(), "30m"):
        assert [one.name for one in usage(store, since=since).skills] == ["used"]
    assert [one.name for one in usage(store, session="early").skills] == ["idle"]
    only = usage(store, skill="used")
    assert ([one.name for one in only.skills], only.sessions) == (["used"], 2)
    assert only.skills[0].share < 1
    with pytest.raises(StoreError, match="there is no session 'nowhere'"):
        usage(store, session="nowhere")
    for wrong in ("soon", "", "7", "-1d", "9" * 30 + "w", "d"):
        with pytest.raises(BadArguments, match="30m, 12h, 7d or 4w"):
            usage(store, since=wrong)


def test_skills_are_sorted_by_what_is_asked(library: World) -> None:
    store = MemoryStore()
    for step in ("used", "used", "idle"):
        session = opened(library, store)
        if step == "used":
            session.prompt()
        session.load(step)
    orders: Any = {sort: [one.name for one in usage(store, sort=sort).skills] for sort in ("loaded", "last", "name")}
    assert orders["loaded"][0] == "used"
    assert orders["last"][0] == "idle"
    assert orders["name"] == sorted(orders["name"])
    assert [one.offered for one in usage(store, sort="offered").skills] == [2, 2]
    sizes = [one.characters for one in usage(store).skills]
    assert sizes == sorted(sizes, reverse=True)
    sort: Any = "nonsense"
    with pytest.raises(BadArguments, match="sort must be one of context, loaded"):
        usage(store, sort=sort)


def test_a_redacted_record_has_counts_and_no_characters(library: World) -> None:
    store = MemoryStore()
    shown, used = (opened(library, store, policy={**RULES, "redact": True}) for _ in range(2))
    shown.prompt()
    used.call("skill_load", {"name": "used"})
    with pytest.raises(PolicyDenied):
        used.load("no")
    counted = usage(store)
    assert [(one.name, one.loaded, one.characters) for one in counted.skills] == [("used", 1, 0)]
    assert counted.sessions_without_texts == 2


def test_a_long_session_is_read_in_pages(library: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    session = opened(library, store)
    session.prompt()
    for _ in range(4):
        session.call("skill_search", {"query": "timber"})
        session.call("skill_load", {"name": "used"})
    whole = usage(store).as_dict()
    monkeypatch.setattr(counting, "_PAGE", 2)
    assert usage(store).as_dict() == whole


def test_offers_are_recorded_once_and_change_no_replay(library: World) -> None:
    store = MemoryStore()
    session = opened(library, store, id="talk")
    before = store.last_seq("talk")
    for message in (None, "measure", "boil"):
        session.system_prompt("Be kind.", message=message)
        session.prompt(message)
    assert store.last_seq("talk") == before, "a prompt is no step of the session"
    again = opened(library, store, id="talk")
    again.prompt()
    (offer,) = store.read("talk", types=("skills_offered",))
    assert (offer["stream_kind"], offer["place"], offer["count"], offer["total"]) == ("offers", "prompt", 2, 2)
    assert offer["characters"] == len(session.prompt().text)
    rows = json.loads(store.get_artifact(offer["digest"]))
    assert [name for name, *_ in rows] == ["idle", "used"]
    session.load("used")
    outcome = replay.replay(replay.from_store(store, "talk"))
    assert outcome.identical
    assert replay.verify(replay.from_store(store, "talk")) == []
    with pytest.raises(StoreError, match="reserved"):
        opened(library, store, id="talk/offers")


def test_a_prompt_does_not_depend_on_the_store(library: World, caplog: pytest.LogCaptureFixture) -> None:
    session = opened(library, MemoryStore(), id="x" * 255)  # the id of its second stream would be too long
    assert "<name>used</name>" in session.prompt().text
    assert "what the model was offered is not recorded" in caplog.text
