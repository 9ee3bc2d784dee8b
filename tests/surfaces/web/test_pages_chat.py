"""The chat as a person uses it: cards, questions, completion, and what is still there after a reload."""

import pytest
from playwright.sync_api import Page, expect

from surfaces.web.browser import SKILLS, Site, Watch, answered, say, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser


@pytest.mark.behaviour("K-065", "K-066", "K-067", "K-068")
def test_cards_fold_what_is_large_say_what_was_truncated_and_can_be_copied(world: World, page: Page) -> None:
    files = {"references/small.md": "a small one", "references/large.md": "line\n" * 900}
    world.skill(f"{SKILLS}/papers", body="# Papers\n", files=files)
    world.skill(f"{SKILLS}/long", body="# Long\n\n" + "word " * 1_500)
    with serving(world, settings={"load.max_bytes": 4_000, "resources.max_bytes": 4_000}) as site:
        page.goto(site.url)
        say(page, "/papers read references/small.md")
        answered(page)
        load = page.locator('[data-card="load"]')
        expect(load.locator("h2")).to_contain_text("papers")
        expect(load.locator(".badge")).to_have_text(["complete"])
        body = load.locator("pre")
        expect(body).to_be_hidden()
        load.locator("summary").click()
        expect(body).to_contain_text("# Papers")
        load.locator("[data-copy]").click()
        expect(page.locator("[data-toast]")).to_have_text("Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == body.text_content()
        small, large = (page.locator('[data-card="read"]').nth(number) for number in range(2))
        expect(small.locator("pre")).to_be_visible()
        expect(small.locator(".badge")).to_have_text(["complete"])
        say(page, "read references/large.md")
        answered(page)
        expect(large.locator("h2")).to_contain_text("references/large.md")
        expect(large.locator(".badge")).to_have_text(["truncated"])
        expect(large.locator("pre")).to_be_hidden()
        large.locator("summary").click()
        expect(large.locator("pre")).to_be_visible()
        say(page, "/long")
        answered(page)
        expect(load.nth(1).locator(".badge")).to_have_text(["truncated"])


def test_a_slash_offers_skills_and_the_keyboard_chooses_also_before_the_server_answers(site: Site, page: Page) -> None:
    page.goto(site.url)
    message, option = page.locator("[data-message]"), page.get_by_role("option")
    message.press_sequentially("/")
    expect(option).not_to_have_count(0)
    page.keyboard.type("csv")
    expect(option.first).to_contain_text("/csv-profile")
    page.keyboard.press("Enter")
    expect(message).to_have_value("/csv-profile ")
    expect(page.locator("[data-completions]")).to_be_hidden()
    message.fill("")
    message.press_sequentially("/csv-profile")
    expect(option.first).to_contain_text("/csv-profile")
    page.keyboard.press("Enter")
    expect(page.locator(".item.user")).to_contain_text("/csv-profile")
    answered(page)
    message.press_sequentially("/")
    expect(option).not_to_have_count(0)
    page.route("**/api/commands*", lambda route: None)  # the server no longer answers
    page.keyboard.type("rel")
    expect(option).to_have_count(1)
    page.keyboard.press("Enter")
    expect(message).to_have_value("/release-notes ")


def test_a_script_is_refused_stopped_or_shows_its_output_and_code(world: World, page: Page) -> None:
    script = "#!/bin/sh\necho to-stdout\necho to-stderr >&2\nexit 3\n"
    world.skill(f"{SKILLS}/runner", files={"scripts/go.sh": script})
    settings = {"permissions": {"allow": [{"tool": "run_unsandboxed"}]}}
    with serving(world, settings=settings) as site:
        page.goto(site.url)
        ask, run = page.locator(".ask.waiting"), page.locator('[data-card="run"]')
        say(page, "/runner run scripts/go.sh")
        ask.get_by_role("button", name="No").click()
        answered(page)
        expect(run.locator(".badge").first).to_have_text("refused")
        expect(run.locator(".rule")).to_contain_text("Refused by a rule")
        say(page, "run scripts/go.sh")
        expect(ask).to_contain_text("sha256:")
        expect(page.locator("[data-message]")).to_be_focused()
        ask.get_by_role("button", name="Allow once").click()
        answered(page)
        expect(run.nth(1).locator(".terminal")).to_contain_text("to-stdout")
        expect(run.nth(1).locator(".stderr")).to_contain_text("to-stderr")
        expect(run.nth(1).locator(".badge")).to_have_text(["exit code 3"])
        say(page, "run scripts/go.sh")
        expect(ask).to_be_visible()
        page.reload()
        expect(ask).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".notice")).to_have_text("Stopped.")
        expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_a_model_that_cannot_be_reached_says_so_and_another_try_goes_to_the_next_model(
    site: Site, page: Page, watch: Watch
) -> None:
    page.goto(site.url)
    expect(page.locator("[data-offline]")).to_contain_text("offline guide")
    page.locator(".chat-head [data-model-open]").click()
    page.select_option("#provider", "openai")
    page.fill("#model-name", "some-model")
    page.fill("#api-key", "a-secret-key")
    save = page.get_by_role("button", name="Save")
    for address, told in (("http://10.0.0.1/v1", "https"), ("http://127.0.0.1:9/v1", "is a server on this machine")):
        page.fill("#base-url", address)
        save.click()
        expect(page.locator("[data-model-error]")).to_contain_text(told)
    page.get_by_label("It is my model server").check()
    save.click()
    expect(page.locator("[data-model-label]")).to_have_text("some-model")
    expect(page.locator("[data-offline]")).to_be_hidden()
    say(page, "hello")
    retry = page.get_by_role("button", name="Try again")
    retry.wait_for(timeout=30_000)
    assert "a-secret-key" not in page.content()
    assert page.input_value("#api-key") == ""
    page.reload()
    assert "a-secret-key" not in page.content()
    page.locator(".chat-head [data-model-open]").click()
    page.select_option("#provider", "offline")
    save.click()
    expect(page.locator("[data-offline]")).to_be_visible()
    retry.click()
    answered(page)
    expect(page.locator(".answer")).to_contain_text("offline guide")
    watch.heard.clear()  # the address had to be confirmed
