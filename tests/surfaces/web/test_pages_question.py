"""The cards of the chat that wait for a person: a question, with keys that answer it, and skills of one name."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from asked import BEFORE, IN_DIFF, REQUEST, ask_about_it, missing, regranted
from metier import Question
from metier.running.grants.folder import FolderGrant
from surfaces.web.browser import SKILLS, Site, answered, say, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

ATTACK = "<script>window.ran=1</script><img src=x onerror=window.ran=1>'\"</textarea></title>\x1b[2J\u202e"
SCRIPT = "#!/bin/sh\necho to-stdout\n"
SETTINGS = {"permissions": {"allow": [{"tool": "run_unsandboxed"}]}}


@pytest.fixture
def asking(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    world.skill(f"{SKILLS}/runner", files={"scripts/go.sh": SCRIPT})
    monkeypatch.setattr(Question, "of", Question.of)  # it is there again after the test
    with serving(world, settings=SETTINGS) as site:
        yield site


def asked(page: Page, site: Site) -> Locator:
    """A question that waits, on the page of its chat."""
    page.goto(site.url)
    say(page, "/runner run scripts/go.sh")
    card = page.locator(".ask.waiting")
    expect(card).to_be_visible()
    return card


@pytest.mark.parametrize("before", ["", BEFORE], ids=["script", "diff"])
def test_every_fact_is_seen_on_the_card_also_after_a_reload(asking: Site, page: Page, before: str) -> None:
    ask_about_it(before=before)
    card = asked(page, asking)
    for _ in range(2):
        assert missing(card.inner_text(), bool(before)) == [], "without a click"
        expect(page.locator(".ask.waiting pre").first).to_be_visible()
        page.reload()
    chat = page.url.rsplit("/", 1)[1]
    items = page.request.get(f"{asking.url}/api/chats/{chat}").json()["items"]
    assert [missing(one["question"]["text"], bool(before)) for one in items if one["type"] == "ask"] == [[]]
    if before:
        expect(card.locator(".removed")).to_have_text(IN_DIFF[0])
        expect(card.locator(".added")).to_have_text(IN_DIFF[1])
        card.locator("summary", has_text="The whole text").click()
        expect(card.locator("details pre")).to_contain_text("echo to-stdout")  # the text of the script that would run


def test_a_key_answers_the_only_question_which_shows_the_script(asking: Site, page: Page) -> None:
    file = asking.world.home / ".config/metier/permissions.toml"
    for key, state, rules in (("n", "Not allowed", 0), ("y", "Allowed once", 0), ("a", "Always allowed", 1)):
        card = asked(page, asking)
        expect(card.get_by_role("heading")).to_have_text("Run scripts/go.sh of the skill runner?")
        expect(card.locator("pre")).to_have_text(SCRIPT.removesuffix("\n"))
        expect(card).to_contain_text("It has no network.")
        if key == "n":  # any place outside of the message
            page.evaluate("document.activeElement.blur()")
        else:
            page.keyboard.press("Escape")
            expect(page.locator(".ask.waiting")).to_be_focused()
        page.keyboard.press(key)
        answered(page)
        expect(page.locator(".ask h2")).to_contain_text(state)
        expect(page.locator(".terminal")).to_have_count(0 if key == "n" else 1)
        assert (file.read_text().count("[[allow]]") if file.exists() else 0) == rules


def test_typing_a_message_answers_nothing(asking: Site, page: Page) -> None:
    asked(page, asking)
    expect(page.locator("[data-message]")).to_be_focused()
    page.keyboard.type("any yarn")
    expect(page.locator("[data-message]")).to_have_value("any yarn")
    page.locator(".chat-head [data-model-open]").click()
    page.select_option("#provider", "openai")
    page.locator("#model-name").press_sequentially("yan")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Save").focus()
    page.keyboard.press("y")
    page.keyboard.press("Escape")
    for keys in ("Control+y", "Alt+n", "Meta+a", "x", "Enter"):
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press(keys)
    expect(page.locator(".ask.waiting")).to_be_visible()
    page.get_by_role("button", name="No").click()
    answered(page)
    expect(page.locator(".ask.no")).to_have_count(1)


def test_hostile_names_arguments_and_scripts_are_text(asking: Site, page: Page) -> None:
    hostile = replace(
        regranted(REQUEST, FolderGrant(path=ATTACK, cwd=ATTACK)),
        skill_name=ATTACK,
        path=f"scripts/{ATTACK}",
        detail=f"{ATTACK}\n" * 1_000 + "x" * 5_000,
        arguments=(ATTACK, "x" * 9_000),
        folder=f"/srv/{ATTACK}",
        digest=ATTACK,
        scope=ATTACK,
    )
    for before in ("", f"{ATTACK}\nold\n"):
        ask_about_it(hostile, before)
        card = asked(page, asking)
        shown = card.inner_text()
        for words in ("<script>window.ran=1</script>", r"\x1b[2J\u202e", "Not shown: "):
            assert words in shown
        assert page.evaluate("window.ran") is None
        assert card.locator("script, img, [onerror], [style]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        card.get_by_text("All of it, ").click()
        expect(card.locator("dd details pre")).to_contain_text("x" * 9_000)
    ask_about_it(replace(REQUEST, detail=f"#!/bin/sh\n:{' ' * 3_000}evil\n"))
    pre = asked(page, asking).locator("pre").first
    assert pre.evaluate("one => one.scrollWidth <= one.clientWidth"), "wrapped, and not hidden at the side"


SECOND = "Second <img src=x onerror=window.ran=1>."


@pytest.fixture
def twins(world: World) -> list[Path]:
    return [
        world.skill(f"{SKILLS}/twin", description="First draft.", body="FIRST BODY"),
        world.skill(f"~/{SKILLS}/twin", description=SECOND, body="SECOND BODY"),
    ]


@pytest.fixture
def choosing(world: World, twins: list[Path]) -> Iterator[Site]:
    with serving(world, profile="codelia") as site:
        yield site


@pytest.mark.behaviour("N-002", "N-007")
def test_a_person_picks_one_of_two_skills_of_a_name_and_a_search_tells_them_apart(
    choosing: Site, page: Page, twins: list[Path]
) -> None:
    page.goto(choosing.url)
    say(page, "use $twin")
    card = page.locator(".choice.waiting")
    options = card.locator("[data-pick]")
    for _ in range(2):  # also after a reload
        expect(card.get_by_role("heading")).to_have_text("2 skills are named twin. Which one do you mean?")
        expect(options).to_have_count(3)
        for number, (path, scope, about) in enumerate(
            zip(twins, ("repo", "user"), ("First draft.", SECOND), strict=True)
        ):
            for words in (scope, str(path), about):
                expect(options.nth(number)).to_contain_text(words)
        page.reload()
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("[data-message]").focus()
    page.keyboard.press("Escape")
    expect(card).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(options.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    answered(page)
    expect(page.locator(".choice.chosen")).to_contain_text(str(twins[1]))
    expect(page.locator(".item.user .calls")).to_have_text("calls twin")
    body = page.locator('[data-card="load"] pre')
    page.locator('[data-card="load"] summary').click()
    expect(body).to_contain_text("SECOND BODY")
    expect(body).not_to_contain_text("FIRST BODY")
    expect(page.locator(".ask")).to_have_count(0)
    shown = page.locator("[data-items]").inner_text()
    page.reload()
    page.locator('[data-card="load"] summary').click()
    assert page.locator("[data-items]").inner_text() == shown
    page.goto(choosing.url)
    say(page, "the draft, or the second")
    hits = page.locator('[data-card="search"] .hits .where')
    expect(hits).to_have_text([f"repo {twins[0]}", f"user {twins[1]}"])
