"""Search for users and models: what comes first and why, what is not found, and in which languages."""

import json

import pytest

from metier import Hit, Skills
from metier.search.finder import TAIL, THRESHOLD
from worlds import World

SKILLS = ".agents/skills"
FIGURES: dict[str, str] = {
    "release-notes": "Drafts release notes and a changelog from a Git history.",
    "release-train": "Plans trains of releases.",
    "release": "Ships a version.",
    "csv-profile": "Profiles a CSV file before anyone trusts it: types, missing values, outliers.",
    "pdf-forms": "Fills in PDF forms and flattens them.",
    "k8s-deploy": "Deploys to k8s with HelmCharts, and reads snake_case_values from files.",
    "table-tools": "处理表格，提取文本和数据。",
    "form-filler-ja": "日本語のフォームに入力する。",
    "meeting-minutes": "Writes minutes of a meeting from a transcript. NOT for podcasts.",
}


@pytest.fixture
def shelf(world: World) -> Skills:
    for name, description in FIGURES.items():
        world.skill(f"{SKILLS}/{name}", description=description, body=f"# {name}\n\nFollow the steps.\n")
    return world.discover()


def found(skills: Skills, query: str, scope: str | None = None) -> list[str]:
    return [hit.skill.name for hit in skills.search(query, scope=scope).results]


def first(skills: Skills, query: str) -> Hit:
    return skills.search(query).results[0]


# --- the rules above all words ---


def test_a_name_comes_first_then_names_that_begin_so_then_words(shelf: Skills) -> None:
    hits = shelf.search("release").results
    assert [(hit.skill.name, hit.score, hit.reason) for hit in hits[:3]] == [
        ("release", 900, "exact_name"),
        ("release-notes", 700, "prefix"),
        ("release-train", 700, "prefix"),
    ]
    assert all(hit.reason == "token_overlap" and hit.score < 200 for hit in hits[3:])


@pytest.mark.parametrize(
    "place", [f"{SKILLS}/pdf-forms/SKILL.md", f"./{SKILLS}/pdf-forms", "{project}/.agents/skills/pdf-forms/SKILL.md"]
)
def test_a_path_comes_before_everything_else(world: World, shelf: Skills, place: str) -> None:
    hit = first(shelf, place.format(project=world.project))
    assert (hit.skill.name, hit.score, hit.reason) == ("pdf-forms", 1000, "exact_path")


def test_a_skill_that_lacks_all_words_but_the_name_still_comes_first(world: World, shelf: Skills) -> None:
    for at in range(30):
        world.skill(f"{SKILLS}/better-{at}", description="minutes minutes minutes of a meeting", body="minutes\n" * 50)
    world.skill(f"{SKILLS}/minutes", description="Cooks eggs.")
    shelf.refresh()
    assert found(shelf, "minutes")[0] == "minutes"


def test_equal_rules_put_the_projects_skills_before_the_users_and_go_by_path(world: World) -> None:
    for where in ("~/.agents/skills/note-a", f"{SKILLS}/note-z", f"{SKILLS}/note-b"):
        world.skill(where)
    assert found(world.discover(), "note") == ["note-b", "note-z", "note-a"]


# --- words ---


WORDS = {
    "release-notes": ("draft a changelog from the git history", "Release Notes"),
    "csv-profile": ("which values are missing in this csv file?", "CSV-Profile"),
    "pdf-forms": ("filling forms",),
    "k8s-deploy": ("helm charts", "HelmCharts", "snake case values", "snake_case_values", "deploy on K8S"),
    "table-tools": ("提取表格", "请从表格中提取数据"),
    "form-filler-ja": ("フォームに入力", "日本語"),
}


def test_words_in_any_form_and_script_find_their_skill(shelf: Skills) -> None:
    for expected, queries in WORDS.items():
        for query in queries:
            hit = first(shelf, query)
            assert (hit.skill.name, hit.reason) == (expected, "token_overlap"), query
            assert THRESHOLD <= hit.score <= 200, query


TYPING_ERRORS = {
    "release-notes": ("relese notes", "release-ntoes", "releasenotes", "draft a chagelog from the git histroy"),
    "csv-profile": ("csv-profle", "cvs-profile", "csvprofile"),
    "pdf-forms": ("pdf-froms",),
    "k8s-deploy": ("k8s-deplyo",),
    "meeting-minutes": ("meeting minuets",),
}


def test_typing_errors_in_a_name_are_forgiven(shelf: Skills) -> None:
    for expected, queries in TYPING_ERRORS.items():
        assert {query: found(shelf, query)[0] for query in queries} == dict.fromkeys(queries, expected)


def test_what_a_skill_says_it_is_not_for_does_not_find_it(shelf: Skills) -> None:
    assert found(shelf, "podcasts") == []


def test_what_only_the_body_says_is_found_and_never_shown(world: World) -> None:
    world.skill(f"{SKILLS}/animals", description="About animals.", body="An okapi among zebras. SECRET-MARKER.\n" * 5)
    world.skill(f"{SKILLS}/plants", description="About plants.")
    skills = world.discover()
    result = skills.search("okapi zebras")
    assert [hit.skill.name for hit in result.results] == ["animals"]
    shown = [result.text, json.dumps(result.as_dict()), skills.prompt("okapi zebras").text]
    shown += [skills.session().call("skill_search", {"query": "okapi zebras"}).text, skills.session().system_prompt()]
    assert all("SECRET-MARKER" not in text and "animals" in text for text in shown)


def test_the_words_that_matched_are_told_when_asked_for(shelf: Skills) -> None:
    result = shelf.search("draft a changelog quickly")
    assert result.results[0].matched == ()
    explained = shelf.explain(result)
    assert explained.results[0].matched == ("draft", "changelog")
    assert [(hit.skill, hit.score) for hit in explained.results] == [(hit.skill, hit.score) for hit in result.results]


def test_what_is_far_behind_the_first_is_left_out(world: World) -> None:
    world.skill(f"{SKILLS}/first", description="Resizes images, crops images, converts images.")
    world.skill(f"{SKILLS}/last", description="Counts words.", body="There may be images somewhere in a text.\n" * 2)
    hits = world.discover().search("resize and crop images").results
    assert [hit.skill.name for hit in hits] == ["first"]
    assert TAIL < 1


# --- weak matches ---

VAGUE = "could you have a look whether the trains to the seaside are late again this evening, please?"


def test_a_vague_request_gets_the_nearest_skills_and_a_model_reads_that_they_are_weak(shelf: Skills) -> None:
    hits = shelf.search(VAGUE).results
    assert [(hit.skill.name, hit.fit) for hit in hits] == [("release-train", "weak")]
    assert all(hit.score < THRESHOLD for hit in hits)
    lines = shelf.session().call("skill_search", {"query": VAGUE}).text.splitlines()
    assert lines == [
        "Weak matches; load one only if its description fits:",
        "- release-train: Plans trains of releases.",
    ]


def test_a_word_among_function_words_is_less_than_a_word_that_was_chosen(world: World) -> None:
    world.skill(f"{SKILLS}/still-life", description="Paints a still life.")
    skills = world.discover()
    assert [hit.fit for hit in skills.search("still").results] == ["strong"]
    assert [hit.fit for hit in skills.search("life").results] == ["strong"]
    assert [hit.fit for hit in skills.search("are you still there?").results] == ["weak"]


def test_strong_matches_come_first_without_a_word_and_weak_ones_below_a_line(world: World, shelf: Skills) -> None:
    world.skill(f"{SKILLS}/letters", description="Drafts letters.")
    shelf.refresh()
    query = "draft a changelog with breaking changes and letters from the git history of releases"
    assert [hit.fit for hit in shelf.search(query).results] == ["strong", "weak"]
    lines = shelf.session().call("skill_search", {"query": query}).text.splitlines()
    assert lines[0].startswith("- release-notes: ")
    assert lines[1:] == ["Weak matches; load one only if its description fits:", "- letters: Drafts letters."]
    assert "Weak" not in shelf.session().call("skill_search", {"query": "changelog of the git history"}).text


# --- nothing ---


@pytest.mark.parametrize("query", ["", " ", "\t\n\u3000", "   "])
def test_an_empty_query_finds_nothing(shelf: Skills, query: str) -> None:
    result = shelf.search(query)
    assert (result.count, result.truncated, result.results) == (0, False, ())


NOTHING = (
    *("hello", "thank you so much, that was great", "what time is it in Tokyo right now?", "tell me a joke", "你好"),
    *("how tall is Mount Everest?", "asdf qwer zxcv", "why is the sky blue?", "xyzzy-plugh", "the", "?"),
)


@pytest.mark.parametrize("query", NOTHING)
def test_what_no_skill_is_for_finds_nothing(shelf: Skills, query: str) -> None:
    assert found(shelf, query) == []
    assert shelf.search(query).text == f"No skill matches {query!r}."


HOSTILE = ['"', "a AND (b", "name:release", "[* TO *]", "release~9", "\\", "*", "+", "../../etc/passwd", "/", "."]


@pytest.mark.parametrize("query", [*HOSTILE, "\x00\x1b[31m", "\ud800", "release " * 30_000, "x" * 200_000, "-" * 5000])
def test_no_query_raises_whatever_it_says(shelf: Skills, query: str) -> None:
    assert shelf.search(query).count <= 8
    result = shelf.session().call("skill_search", {"query": query})
    assert result.ok or result.code == "INVALID_PARAM"  # a lone surrogate is not text


# --- who sees what ---


@pytest.fixture
def guarded(world: World) -> Skills:
    for name in ("open", "off", "manual", "hidden", "denied"):
        hidden = True if name == "hidden" else None
        world.skill(f"{SKILLS}/zebra-{name}", description="Counts zebras in a herd.", disable_model_invocation=hidden)
    skills = world.discover()
    skills.set_mode("zebra-off", "off")
    skills.set_mode("zebra-manual", "manual")
    return skills


@pytest.mark.parametrize(
    "query", ["count zebras", "zebra", "zebra-off", "zebra-manual", "zebra-hidden", "zebra-denied"]
)
def test_the_model_finds_only_what_it_may_load(guarded: Skills, query: str) -> None:
    session = guarded.session(policy={"deny": [{"tool": "skill_load", "skill_name": "zebra-denied"}]})
    rows = session.call("skill_search", {"query": query, "limit": 20}).data["results"]
    assert {row["skill"]["name"] for row in rows} <= {"zebra-open"}
    assert any(row["fit"] == "strong" for row in rows) is (query in ("count zebras", "zebra"))


def test_a_user_finds_what_is_hidden_from_the_model_but_not_what_is_off(guarded: Skills) -> None:
    assert set(found(guarded, "count zebras")) == {"zebra-open", "zebra-manual", "zebra-hidden", "zebra-denied"}


def test_hidden_skills_do_not_use_up_the_places_of_visible_ones(world: World) -> None:
    for at in range(40):
        world.skill(f"{SKILLS}/hidden-{at}", description="zebra zebra zebra", disable_model_invocation=True)
    world.skill(f"{SKILLS}/shown", description="May count a zebra, too.")
    result = world.discover().session().search("zebra", limit=1, by="model")
    assert [hit.skill.name for hit in result.results] == ["shown"]
    assert result.truncated is False


def test_a_scope_limits_the_search(world: World) -> None:
    world.skill(f"{SKILLS}/of-project", description="Counts zebras.")
    world.skill("~/.agents/skills/of-user", description="Counts zebras.")
    skills = world.discover()
    assert found(skills, "zebras", scope="user") == ["of-user"]
    assert found(skills, "zebras", scope="repo") == ["of-project"]
    assert found(skills, "of", scope="repo") == ["of-project"]
    assert found(skills, "zebras", scope="elsewhere") == []


def test_a_limit_cuts_and_says_so(shelf: Skills) -> None:
    result = shelf.search("release", limit=2)
    assert (result.count, result.truncated, len(result.results)) == (2, True, 2)
    whole = shelf.search("release", limit=3)
    assert whole.count == 3


# --- again and again ---


def everything(skills: Skills) -> list[list[tuple[str, float, str]]]:
    queries = ["release", "draft a changelog", "提取表格", "csv-profle", "deploy k8s", "weather"]
    return [[(hit.skill.path, hit.score, hit.reason) for hit in skills.search(query).results] for query in queries]


def test_the_same_query_has_the_same_answer_in_every_process_and_after_a_rebuild(world: World, shelf: Skills) -> None:
    answers = everything(shelf)
    assert everything(shelf) == everything(world.discover()) == answers
    assert everything(world.discover(settings={"cache": False})) == answers
