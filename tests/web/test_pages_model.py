"""The chat with a model server: growing answers, hostile answers, and the page on a phone."""

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from chat.openai_server import ModelServer, calls, held, text
from web.browser import EXAMPLES, SKILLS, Site, Watch, answered, new_page, say, serving
from worlds import World

pytest_plugins = ["web.page_fixtures"]

FIXTURE = "skills-system-validation"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(text("hello")) as made:
        yield made


@pytest.fixture
def talking(world: World, model: ModelServer) -> Iterator[Site]:
    """A server whose configuration names the model server."""
    settings = {"model": {"provider": "openai", "name": "scripted", "base_url": model.url}}
    with serving(world, roots=[str(EXAMPLES)], settings=settings) as made:
        yield made


@pytest.mark.behaviour("K-084")
def test_a_model_with_tools_that_is_sent_the_conformance_skill_leaves_both_cards(
    talking: Site, model: ModelServer, page: Page
) -> None:
    model.plays(
        calls(("skill_read", {"name": FIXTURE, "path": "references/REFERENCE.md"})), text("The marker is **there**.")
    )
    page.goto(talking.url)
    expect(page.locator("[data-offline]")).to_be_hidden()
    say(page, f"/{FIXTURE} take the first steps")
    answered(page)
    expect(page.locator('[data-card="load"]')).to_contain_text(FIXTURE)
    expect(page.locator('[data-card="read"]')).to_contain_text("references/REFERENCE.md")
    expect(page.locator('[data-card="read"] pre')).to_contain_text("METIER-VALIDATION")
    expect(page.locator(".answer strong")).to_have_text("there")


def test_an_answer_grows_as_plain_text_and_is_formatted_when_it_is_whole(
    talking: Site, model: ModelServer, page: Page
) -> None:
    gate = threading.Event()
    model.plays(held(gate, "**bold** <img src=x onerror=window.ran=1> and "))
    page.goto(talking.url)
    say(page, "hello")
    growing = page.locator("[data-grows]")
    expect(growing).to_contain_text("**bold** <img src=x")
    expect(page.locator("[data-items]")).to_have_attribute("aria-busy", "true")
    page.reload()
    expect(growing).to_contain_text("**bold** <img src=x")
    gate.set()
    answered(page)
    expect(page.locator(".answer .prose strong")).to_have_text("bold")
    expect(page.locator(".answer .prose")).to_contain_text("the end")
    expect(page.locator("[data-items]")).to_have_attribute("aria-busy", "false")
    assert page.locator(".answer img").count() == 0
    assert page.evaluate("window.ran") is None


def test_a_stopped_answer_keeps_what_there_is_and_can_be_tried_again(
    talking: Site, model: ModelServer, page: Page
) -> None:
    gate = threading.Event()
    model.plays(held(gate, "the beginning"), text("a second try"))
    page.goto(talking.url)
    say(page, "hello")
    expect(page.locator("[data-grows]")).to_contain_text("the beginning")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".notice")).to_have_text("Stopped.")
    expect(page.locator(".answer")).to_contain_text("Cut off here.")
    gate.set()
    say(page, "go on")
    answered(page)
    expect(page.locator(".answer").last).to_contain_text("a second try")
    page.locator(".answer").last.get_by_role("button", name="Try again").click()
    expect(page.locator(".answer summary")).to_have_text("Earlier attempt")


def test_what_a_model_asks_for_in_vain_is_a_card_that_says_why(talking: Site, model: ModelServer, page: Page) -> None:
    wrong = [("skill_load", {"name": "<b>nope</b>"}), ("made_up", {"x": 1}), ("skill_read", {"name": 3})]
    model.plays(calls(*wrong), text("I see."))
    page.goto(talking.url)
    say(page, "hello")
    answered(page)
    cards = page.locator("[data-card]")
    expect(cards).to_have_count(3)
    expect(cards.nth(0)).to_contain_text("<b>nope</b>")
    expect(cards.nth(1)).to_contain_text("made_up")
    for number in range(3):
        expect(cards.nth(number).locator(".badge.bad")).to_be_visible()


def test_the_output_of_a_script_is_there_while_it_runs(world: World, model: ModelServer, page: Page) -> None:
    script = "#!/bin/sh\necho first line\nn=0\nwhile [ $n -lt 200 ]; do n=$((n+1)); sleep 0.05; done\necho last line\n"
    world.skill(f"{SKILLS}/slow", files={"scripts/slow.sh": script})
    model.plays(calls(("skill_run", {"name": "slow", "script": "scripts/slow.sh"})), text("Done."))
    settings = {
        "model": {"provider": "openai", "name": "scripted", "base_url": model.url},
        "permissions": {"allow": [{"tool": "skill_run"}, {"tool": "run_unsandboxed"}]},
    }
    with serving(world, settings=settings) as site:
        page.goto(site.url)
        say(page, "/slow")
        run = page.locator('[data-card="run"]')
        expect(run.locator(".terminal")).to_contain_text("first line")
        expect(run.locator(".badge")).to_contain_text(["Running"])
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_on_a_phone_the_chats_open_over_the_page_and_nothing_is_too_wide(
    talking: Site, model: ModelServer, chromium: Browser, watch: Watch
) -> None:
    model.plays(text("a line " * 40 + "w" * 500 + "\n\n| a | b |\n|---|---|\n| " + "x" * 300 + " | y |"))
    with new_page(chromium, watch, 390, "dark") as page:
        page.goto(talking.url)
        say(page, "hello")
        answered(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        expect(page.locator("#chats")).to_be_hidden()
        page.get_by_role("button", name="Chats").click()
        expect(page.locator("#chats")).to_be_visible()
        page.locator("[data-chats] a").first.click()
        expect(page.locator("#chats")).to_be_hidden()
        expect(page.locator(".answer")).to_contain_text("a line")
    assert watch.heard == []


def test_a_second_page_of_a_running_chat_is_told_so_and_follows_it(
    talking: Site, model: ModelServer, page: Page, watch: Watch
) -> None:
    gate = threading.Event()
    model.plays(held(gate, "slowly "))
    page.goto(talking.url)
    say(page, "hello")
    expect(page.locator("[data-grows]")).to_contain_text("slowly")
    second = page.context.new_page()
    second.goto(page.url)
    second.evaluate("document.querySelector('main').dataset.status = 'idle'")  # as before the turn started
    say(second, "me too")
    expect(second.locator("[data-toast]")).to_contain_text("A turn is running", ignore_case=True)
    expect(second.locator("[data-message]")).to_have_value("me too")
    gate.set()
    for one in (page, second):
        answered(one)
        expect(one.locator(".answer .prose")).to_contain_text("slowly the end")
    watch.heard.clear()
