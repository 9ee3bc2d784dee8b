"""The choice of the chat: where several skills bear a name, a person sees what tells them apart and picks one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from surfaces.web.browser import SKILLS, Site, answered, say, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

ATTACK = "Second <img src=x onerror=window.ran=1>."


@pytest.fixture
def twins(world: World) -> list[Path]:
    return [
        world.skill(f"{SKILLS}/twin", description="First draft.", body="FIRST BODY"),
        world.skill(f"~/{SKILLS}/twin", description=ATTACK, body="SECOND BODY"),
    ]


@pytest.fixture
def choosing(world: World, twins: list[Path]) -> Iterator[Site]:
    with serving(world, profile="codelia") as site:
        yield site


@pytest.mark.behaviour("N-007")
def test_a_person_picks_one_of_two_skills_of_a_name_and_that_one_is_loaded(
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
            zip(twins, ("repo", "user"), ("First draft.", ATTACK), strict=True)
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


@pytest.mark.behaviour("N-002", "N-007")
def test_none_may_be_picked_and_a_search_tells_two_hits_of_one_name_apart(
    choosing: Site, page: Page, twins: list[Path]
) -> None:
    page.goto(choosing.url)
    say(page, "use $twin")
    page.get_by_role("button", name="None of them").click()
    expect(page.locator(".choice.none")).to_have_text("None of the skills named twin was used")
    expect(page.locator(".item.user .calls")).to_have_count(0)
    page.goto(choosing.url)
    say(page, "the draft, or the second")
    hits = page.locator('[data-card="search"] .hits .where')
    expect(hits).to_have_text([f"repo {twins[0]}", f"user {twins[1]}"])
