"""The chat with a model server: growing answers, hostile answers, and the page on a phone."""

import re
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from surfaces.chat.openai_server import ModelServer, calls, chunk, held, raw, text
from surfaces.web.browser import EXAMPLES, Site, Watch, answered, new_page, say, serving
from surfaces.web.test_pages_axe import findings
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

FIXTURE = "skills-system-validation"
STREAM = re.compile("/chat/.*/stream")


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


@pytest.mark.behaviour("K-064", "K-084")
def test_a_model_with_tools_that_is_sent_the_conformance_skill_leaves_both_cards(
    talking: Site, model: ModelServer, page: Page
) -> None:
    wrong = [("skill_load", {"name": "<b>nope</b>"}), ("made_up", {"x": 1}), ("skill_read", {"name": 3})]
    model.plays(
        calls(("skill_read", {"name": FIXTURE, "path": "references/REFERENCE.md"})),
        text("The marker is **there**."),
        calls(*wrong),
        text("I see."),
    )
    page.goto(talking.url)
    expect(page.locator("[data-offline]")).to_be_hidden()
    say(page, f"/{FIXTURE} take the first steps")
    answered(page)
    expect(page.locator('[data-card="load"]')).to_contain_text(FIXTURE)
    expect(page.locator('[data-card="read"]')).to_contain_text("references/REFERENCE.md")
    expect(page.locator('[data-card="read"] pre')).to_contain_text("METIER-VALIDATION")
    expect(page.locator(".answer strong")).to_have_text("there")
    say(page, "hello")  # what a model asks for in vain is a card that says why
    expect(page.locator(".steps > summary")).to_contain_text("3 failed")
    answered(page)
    page.locator(".steps > summary").click()
    failed = page.locator("[data-card]", has=page.locator(".badge.bad"))
    expect(failed).to_have_count(3)
    expect(failed.nth(0)).to_contain_text("<b>nope</b>")
    expect(failed.nth(1)).to_contain_text("made_up")


def test_an_answer_is_formatted_as_it_grows_in_every_page_of_the_chat(
    talking: Site, model: ModelServer, page: Page
) -> None:
    gate = threading.Event()
    model.plays(
        text("First."), held(gate, "# Title\n\n**bold** <img src=x onerror=window.ran=1> and "), text("Queued.")
    )
    page.goto(talking.url)
    say(page, "hello")
    expect(page.locator(".answer .prose")).to_have_text("First.")
    answered(page)
    second = page.context.new_page()
    second.goto(page.url)
    say(page, "go on")
    for one in (page, second):
        growing = one.locator("[data-grows]")
        expect(growing.locator("h3")).to_have_text("Title")
        expect(growing.locator("strong")).to_have_text("bold")
        expect(one.locator("[data-thinking-words]")).to_have_text("Writing")
        expect(one.locator("[data-items]")).to_have_attribute("aria-busy", "true")
        expect(one.get_by_role("button", name="Stop")).to_be_visible()
    page.locator("[data-message]").press_sequentially("half a thought")
    say(second, "from the other page")  # waits for its turn
    expect(second.locator("[data-queue] li")).to_contain_text("from the other page")
    page.reload()
    expect(page.locator("[data-message]")).to_have_value("half a thought")
    expect(page.locator("[data-grows] strong")).to_have_text("bold")
    gate.set()
    for one in (page, second):
        expect(one.locator(".answer").last.locator(".prose")).to_have_text("Queued.")
        answered(one)
        expect(one.locator(".user").last).to_contain_text("from the other page")
        expect(one.locator(".answer").nth(1).locator(".prose")).to_contain_text("the end")
        expect(one.locator("[data-queue] li")).to_have_count(0)
        assert one.locator(".answer img").count() == 0
        assert one.evaluate("window.ran") is None


def test_a_stopped_or_refused_answer_can_be_tried_again(talking: Site, model: ModelServer, page: Page) -> None:
    refused = raw(chunk({"role": "assistant", "refusal": "I cannot help with that."}), chunk({}, "stop"))
    model.plays(held(threading.Event(), "the beginning"), refused, text("a third try"))
    page.goto(talking.url)
    say(page, "hello")
    expect(page.locator("[data-grows]")).to_contain_text("the beginning")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".notice")).to_have_text("Stopped.")
    expect(page.locator(".answer")).to_contain_text("Cut off here.")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".notice").last).to_have_text("The model refused to answer: I cannot help with that.")
    expect(page.locator(".answer summary")).to_have_text("Earlier attempt")
    answered(page)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".answer .prose").last).to_have_text("a third try")


def test_an_edited_message_folds_the_earlier_version_in_every_page(
    talking: Site, model: ModelServer, page: Page
) -> None:
    model.plays(text("One."), text("Two."))
    page.goto(talking.url)
    say(page, "helo")
    answered(page)
    second = page.context.new_page()
    second.goto(page.url)
    page.locator(".user").hover()
    page.get_by_role("button", name="Edit").click()
    expect(page.locator("[data-message]")).to_have_value("helo")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Add files").click()
    chooser.value.set_files({"name": "long.txt", "mimeType": "", "buffer": b"The first line.\n" * 2_000})
    expect(page.locator(".added-file + p")).to_have_text("The model reads the first 20,000 of 32,000 characters.")
    page.wait_for_selector('main[data-status="idle"]')
    say(page, "hello")
    for one in (page, second):
        expect(one.locator("[data-items] > .user .added-file")).to_be_visible()
        expect(one.locator(".answer").last.locator(".prose")).to_have_text("Two.")
        answered(one)
        expect(one.locator(".aside .prose")).to_be_hidden()
        one.locator(".aside > summary").click()
        expect(one.locator(".aside .prose")).to_have_text("One.")
    shown = page.locator("[data-items]").inner_text()
    page.reload()
    page.locator(".aside > summary").click()
    assert page.locator("[data-items]").inner_text() == shown
    assert "The first line." in model.messages()[-1]["content"]


def test_thoughts_are_folded_calls_of_a_step_are_one_line_and_the_answer_names_its_sources(
    talking: Site, model: ModelServer, chromium: Browser, watch: Watch, axe: str
) -> None:
    said = (
        "Use it:\n\n```python\ndef f(x):\n    return x\n```\n\n- [x] done\n\n| a | b |\n|---|---|\n| "
        + "long " * 60
        + "| 2 |\n\nSee https://example.com/x and $a_1*b*c$."
    )
    for width, theme in ((1280, "light"), (390, "dark")):
        wanted = [
            ("skill_load", {"name": FIXTURE}),
            ("skill_read", {"name": FIXTURE, "path": "references/REFERENCE.md"}),
        ]
        thought = raw(
            chunk({"role": "assistant", "reasoning_content": "Which skill fits? **Hm.**"}),
            chunk({"content": said}),
            chunk({}, "stop"),
            "data: [DONE]\n\n",
        )
        model.plays(calls(*wanted), thought)
        with new_page(chromium, watch, width, "dark" if theme == "dark" else "light") as page:
            page.goto(talking.url)
            say(page, "hello")
            answered(page)
            step = page.locator(".step")
            expect(step.locator(".steps > summary .words")).to_contain_text(
                f"Loaded {FIXTURE} · Read references/REFERENCE.md"
            )
            expect(step.locator("[data-card]").first).to_be_hidden()
            step.locator(".steps > summary").click()
            expect(step.locator("[data-card]").first).to_be_visible()
            thoughts = page.locator(".reasoning")
            expect(thoughts.locator("strong")).to_be_hidden()
            thoughts.locator("summary").click()
            expect(thoughts.locator("strong")).to_have_text("Hm.")
            answer = page.locator(".answer")
            expect(answer.locator(".hl-k").first).to_have_text("def")
            expect(answer.locator(".task")).to_have_text("☑ done")
            expect(answer.locator("code.math")).to_have_text("a_1*b*c")
            expect(answer.get_by_role("link", name="https://example.com/x")).to_have_attribute("target", "_blank")
            expect(answer.locator(".sources a").last).to_have_attribute(
                "href", f"/skills/{FIXTURE}?file=references%2FREFERENCE.md"
            )
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            answer.get_by_role("button", name="Copy code").click()
            expect(page.locator("[data-toast]")).to_have_text("Copied.")
            assert page.evaluate("navigator.clipboard.readText()") == "def f(x):\n    return x\n"
            answer.get_by_role("button", name="Copy", exact=True).click()
            page.wait_for_function("navigator.clipboard.readText().then(text => text.startsWith('Use it:'))")
            expect(page.locator("h1")).to_be_visible()
            assert findings(page, axe) == []
            shown = page.locator("[data-items]").inner_html().replace(' data-touched=""', "").replace(' open=""', "")
            page.reload()
            again = page.locator("[data-items]").inner_html()
            assert "".join(again.split()) == "".join(shown.split())
    assert watch.heard == []


def test_on_a_phone_the_chats_open_over_the_page_and_nothing_is_too_wide_or_lost(
    talking: Site, model: ModelServer, page: Page, watch: Watch
) -> None:
    model.plays(text("a line " * 40 + "w" * 500 + "\n\n| a | b |\n|---|---|\n| " + "x" * 300 + " | y |"))
    page.set_viewport_size({"width": 390, "height": 860})
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
    page.route(STREAM, lambda route: route.abort())  # the connection is lost
    page.reload()
    expect(page.locator("[data-lost]")).to_be_visible()
    page.unroute(STREAM)
    expect(page.locator("[data-lost]")).to_be_hidden()
    page.locator("[data-message]").fill("x" * 200_001)
    expect(page.locator("[data-too-long]")).to_contain_text("200,001 characters")
    page.locator("[data-message]").press("Enter")
    assert len(page.locator("[data-message]").input_value()) == 200_001
    expect(page.locator(".user")).to_have_count(1)
    watch.heard.clear()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_wheel_and_links_to_items_never_move_the_head_and_the_composer_off_the_screen(
    talking: Site, model: ModelServer, page: Page, width: int, height: int
) -> None:
    model.plays(text("\n\n".join(f"Paragraph {number} of a long answer." for number in range(60))))
    page.set_viewport_size({"width": width, "height": height})
    page.goto(talking.url)
    for number, message in enumerate(("one", "two", "three"), 1):
        say(page, message)
        expect(page.locator(".answer")).to_have_count(number)
        answered(page)
    page.locator("[data-scroller]").hover()
    for amount, reached in ((-100_000, ".item >> nth=0"), (100_000, ".after"), (100_000, ".after")):
        page.mouse.wheel(0, amount)
        expect(page.locator(reached)).to_be_in_viewport()
        assert_all_in_view(page, height)
    for item in page.locator("[data-items] > .item").all():
        address = f"#{item.get_attribute('id')}"
        page.evaluate("address => { location.hash = address }", address)
        expect(item).to_be_in_viewport()
        assert_all_in_view(page, height)
    first = page.locator("[data-items] > .item").first
    page.goto(f"{page.url.partition('#')[0]}#{first.get_attribute('id')}")
    page.reload()
    expect(first).to_be_in_viewport()
    assert_all_in_view(page, height)


def assert_all_in_view(page: Page, height: int) -> None:
    """Only the messages scroll: the document is as high as the window, and stays where it is."""
    root = "document.scrollingElement"
    assert page.evaluate(f"[{root}.scrollHeight, innerHeight, {root}.scrollTop]") == [height, height, 0]
    for part in (".rail", ".chat-head", "[data-composer]"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
