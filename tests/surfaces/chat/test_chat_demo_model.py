"""The offline guide, which answers while no model is set up, through the same loop and with the same cards."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from surfaces.chat.serving import Chatting, JsonItem, app_of, serving
from surfaces.chat.turns import printing
from worlds import World

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"
VALIDATION = "skills-system-validation"


def put(world: World, folder: str, *names: str) -> None:
    for name in names:
        shutil.copytree(EXAMPLES / name, world.project / folder / name)


@pytest.fixture
def chatting(world: World) -> Iterator[Chatting]:
    put(world, ".agents/skills", "csv-profile", "release-notes", VALIDATION)
    app = app_of(world)
    app.runner = printing(b"printed\n")
    with serving(app) as made:
        yield made


def cards(items: list[JsonItem]) -> list[tuple[str, str, str]]:
    return [(item["role"], item["state"], item["skill"] or "") for item in items if item["type"] == "tool"]


def test_it_says_what_it_is_finds_the_skill_loads_it_and_names_its_files(chatting: Chatting) -> None:
    shown = chatting.say(chatting.chat(), "tell me what is in this csv file")
    assert cards(shown) == [("search", "done", ""), ("load", "done", "csv-profile")]
    assert shown[1]["hits"][0]["name"] == "csv-profile"
    for words in ("not a language model", "I loaded csv-profile", "`references/pitfalls.md`"):
        assert words in shown[-1]["text"]
    about = chatting.http.get("/api/model").json()
    assert (about["provider"], about["offline"], about["has_key"]) == ("offline", True, False)


def test_it_reads_the_file_and_runs_the_script_that_one_asks_for(chatting: Chatting) -> None:
    chat = chatting.chat()
    chatting.say(chat, "profile a csv file")
    read = chatting.say(chat, "please read references/pitfalls.md")
    assert cards(read) == [("read", "done", "csv-profile")]
    with chatting.saying(chat, "run scripts/profile_csv.py sales.csv 'two words'") as ran:
        ask = chatting.waiting(chat)
        chatting.http.post(f"/api/chats/{chat}/answers/{ask['id']}", json={"answer": "once"})
    assert cards(ran) == [("run", "done", "csv-profile")]
    assert ran[1]["args"]["arguments"] == ["sales.csv", "two words"]
    assert "printed" in ran[-1]["text"]
    assert "not a language model" not in ran[-1]["text"]


def test_where_scripts_cannot_run_it_says_so_and_suggests_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metier.running.scripts.default_runner", lambda _: None)
    monkeypatch.setenv("PATH", str(world.home))
    put(world, ".agents/skills", VALIDATION)
    with serving(app_of(world)) as chatting:
        said = chatting.say(chatting.chat(), f"/{VALIDATION} run scripts/echo.sh hello")[-1]["text"]
    assert "I cannot run scripts here." in said
    assert "`run " not in said


def test_a_refusal_and_what_no_skill_fits_are_told(chatting: Chatting, world: World) -> None:
    chat = chatting.chat()
    chatting.say(chat, f"/{VALIDATION}")
    shown = chatting.say(chat, "read ../../x")
    assert cards(shown) == [("read", "refused", VALIDATION)], "and not tried in another way"
    assert shown[-1]["text"].startswith("That did not work:")
    shown = chatting.say(chatting.chat(), "zzqx vvkp")
    assert cards(shown) == [("search", "done", "")]
    assert "No skill matches that." in shown[-1]["text"]
    shutil.rmtree(world.project / ".agents")
    with serving(app_of(world)) as empty:
        assert "There are no skills here" in empty.say(empty.chat(), "hello")[-1]["text"]


@pytest.mark.behaviour("K-084")
@pytest.mark.parametrize(
    ("profile", "folder", "tools"),
    [
        ("remcochat", ".skills", ["skills.activate", "skills.readResource"]),
        (None, ".agents/skills", ["skill_load", "skill_read"]),
        ("omp", ".omp/skills", ["read", "read"]),
    ],
)
def test_a_command_gives_the_cards_of_both_tools(
    world: World, profile: str | None, folder: str, tools: list[str]
) -> None:
    put(world, folder, VALIDATION)
    with serving(app_of(world, profile=profile)) as chatting:
        command = f"/skill:{VALIDATION}" if profile == "omp" else f"/{VALIDATION}"
        shown = chatting.say(chatting.chat(), f"{command} read references/REFERENCE.md")
        found = [item for item in shown if item["type"] == "tool"]
        assert [card["tool"] for card in found] == tools
        assert [card["state"] for card in found] == ["done", "done"]
        assert (found[0]["skill"], found[0]["truncated"]) == (VALIDATION, False)
        assert "METIER-VALIDATION-BODY-" in found[0]["text"]
        assert (found[1]["path"], found[1]["truncated"]) == ("references/REFERENCE.md", False)
        assert "METIER-VALIDATION-REFERENCE-" in found[1]["text"]
        assert shown[0]["skill"] == VALIDATION


def test_it_puts_a_skill_aside(chatting: Chatting) -> None:
    chat = chatting.chat()
    chatting.say(chat, "profile a csv file")
    assert chatting.say(chat, "/unload csv-profile")[-1]["text"].startswith("I put csv-profile aside.")
