"""The chat as a person uses it: cards, questions, completion, and what is still there after a reload."""

import pytest
from playwright.sync_api import Page, expect

from surfaces.web.browser import SKILLS, Site, Watch, answered, say, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

FIXTURE = "skills-system-validation"


@pytest.mark.behaviour("K-064", "K-084")
def test_a_message_that_calls_the_conformance_skill_shows_the_cards_of_both_tools(site: Site, page: Page) -> None:
    page.goto(site.url)
    say(page, f"/{FIXTURE} read references/REFERENCE.md")
    answered(page)
    expect(page.locator('[data-card="load"]')).to_contain_text(FIXTURE)
    expect(page.locator('[data-card="read"]')).to_contain_text("references/REFERENCE.md")
    expect(page.locator("[data-card] .badge.bad")).to_have_count(0)
    shown = page.locator("[data-items]").inner_html()
    page.reload()
    assert "".join(page.locator("[data-items]").inner_html().split()) == "".join(shown.split())


@pytest.mark.behaviour("K-065", "K-066")
def test_the_card_of_a_load_names_the_skill_and_folds_its_body_which_can_be_opened_and_copied(
    site: Site, page: Page
) -> None:
    page.goto(site.url)
    say(page, f"/{FIXTURE}")
    answered(page)
    load = page.locator('[data-card="load"]')
    expect(load.locator("h2")).to_contain_text(FIXTURE)
    expect(load.locator(".badge")).to_have_text(["complete"])
    body = load.locator("pre")
    expect(body).to_be_hidden()
    load.locator("summary").click()
    expect(body).to_contain_text("METIER-VALIDATION-BODY-7Q2K")
    load.locator("[data-copy]").click()
    expect(page.locator("[data-toast]")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == body.text_content()


@pytest.mark.behaviour("K-065", "K-067")
def test_cards_say_what_was_truncated(world: World, page: Page) -> None:
    world.skill(f"{SKILLS}/long", body="# Long\n\n" + "word " * 400, files={"references/long.md": "line\n" * 400})
    with serving(world, settings={"load.max_bytes": 300, "resources.max_bytes": 100}) as site:
        page.goto(site.url)
        say(page, "/long read references/long.md")
        answered(page)
        expect(page.locator('[data-card="load"] .badge')).to_have_text(["truncated"])
        expect(page.locator('[data-card="read"] h2')).to_contain_text("references/long.md")
        expect(page.locator('[data-card="read"] .badge')).to_have_text(["truncated"])


@pytest.mark.behaviour("K-067", "K-068")
def test_the_content_of_a_resource_is_folded_at_first_only_when_it_is_large(world: World, page: Page) -> None:
    world.skill(f"{SKILLS}/papers", files={"references/small.md": "a small one", "references/large.md": "line\n" * 900})
    with serving(world) as site:
        page.goto(site.url)
        say(page, "/papers read references/small.md")
        answered(page)
        expect(page.locator('[data-card="read"] pre')).to_be_visible()
        say(page, "read references/large.md")
        answered(page)
        large = page.locator('[data-card="read"]').nth(1)
        expect(large.locator("h2")).to_contain_text("references/large.md")
        expect(large.locator("pre")).to_be_hidden()
        large.locator("summary").click()
        expect(large.locator("pre")).to_be_visible()


def test_a_slash_offers_skills_as_one_types_and_the_keyboard_chooses(site: Site, page: Page) -> None:
    page.goto(site.url)
    page.locator("[data-message]").press_sequentially("/")
    expect(page.get_by_role("option")).not_to_have_count(0)
    page.keyboard.type("csv")
    expect(page.get_by_role("option").first).to_contain_text("/csv-profile")
    page.keyboard.press("Enter")
    expect(page.locator("[data-message]")).to_have_value("/csv-profile ")
    expect(page.locator("[data-completions]")).to_be_hidden()


def test_a_quick_typist_chooses_from_the_narrowed_list_before_the_server_answers(site: Site, page: Page) -> None:
    page.goto(site.url)
    page.locator("[data-message]").press_sequentially("/")
    expect(page.get_by_role("option")).not_to_have_count(0)
    page.route("**/api/commands*", lambda route: None)  # the server no longer answers
    page.keyboard.type("rel")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("[data-message]")).to_have_value("/release-notes ")


def test_a_command_typed_whole_is_sent_by_the_first_enter(site: Site, page: Page) -> None:
    page.goto(site.url)
    page.locator("[data-message]").press_sequentially("/csv-profile")
    expect(page.get_by_role("option").first).to_contain_text("/csv-profile")
    page.keyboard.press("Enter")
    expect(page.locator(".item.user")).to_contain_text("/csv-profile")


def test_a_search_shows_its_hits_and_the_skill_becomes_a_chip(site: Site, page: Page) -> None:
    page.goto(site.url)
    say(page, "find duplicate rows in this csv")
    answered(page)
    search = page.locator('[data-card="search"]')
    expect(search.locator("q")).to_have_text("find duplicate rows in this csv")
    expect(search.locator(".hits")).to_contain_text("csv-profile")
    expect(page.locator("[data-chips]")).to_contain_text("csv-profile")
    expect(page.locator("[data-chats] a[aria-current]")).to_contain_text("find duplicate rows")


def test_a_script_is_asked_for_with_its_digest_and_shows_its_output_and_code(world: World, page: Page) -> None:
    script = "#!/bin/sh\necho to-stdout\necho to-stderr >&2\nexit 3\n"
    world.skill(f"{SKILLS}/runner", files={"scripts/go.sh": script})
    settings = {"permissions": {"allow": [{"tool": "run_unsandboxed"}]}}
    with serving(world, settings=settings) as site:
        page.goto(site.url)
        say(page, "/runner run scripts/go.sh")
        ask = page.locator(".ask.waiting")
        expect(ask).to_contain_text("runner")
        expect(ask).to_contain_text("sha256:")
        expect(ask.get_by_role("heading")).to_have_text("Run scripts/go.sh of the skill runner?")
        expect(page.locator("[data-message]")).to_be_focused()
        ask.get_by_role("button", name="Allow once").click()
        answered(page)
        run = page.locator('[data-card="run"]')
        expect(run.locator(".terminal")).to_contain_text("to-stdout")
        expect(run.locator(".stderr")).to_contain_text("to-stderr")
        expect(run.locator(".badge")).to_have_text(["exit code 3"])
        expect(page.locator(".ask h2")).to_contain_text("Allowed once")


def test_a_refused_script_names_the_rule(world: World, page: Page) -> None:
    world.skill(f"{SKILLS}/runner", files={"scripts/go.sh": "#!/bin/sh\necho hi\n"})
    with serving(world) as site:
        page.goto(site.url)
        say(page, "/runner run scripts/go.sh")
        page.locator(".ask.waiting").get_by_role("button", name="No").click()
        answered(page)
        expect(page.locator('[data-card="run"] .badge').first).to_have_text("refused")
        expect(page.locator('[data-card="run"] .rule')).to_contain_text("Refused by a rule")
        expect(page.locator(".ask h2")).to_contain_text("Not allowed")


def test_a_turn_that_waits_is_there_after_a_reload_and_can_be_stopped(world: World, page: Page) -> None:
    world.skill(f"{SKILLS}/runner", files={"scripts/go.sh": "#!/bin/sh\necho hi\n"})
    with serving(world) as site:
        page.goto(site.url)
        say(page, "/runner run scripts/go.sh")
        expect(page.locator(".ask.waiting")).to_be_visible()
        page.reload()
        expect(page.locator(".ask.waiting")).to_be_visible()
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
    page.fill("#base-url", "http://127.0.0.1:9/v1")
    page.fill("#api-key", "a-secret-key")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[data-model-error]")).to_contain_text("is a server on this machine")
    page.get_by_label("It is my model server").check()
    page.get_by_role("button", name="Save").click()
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
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[data-offline]")).to_be_visible()
    retry.click()
    answered(page)
    expect(page.locator(".answer")).to_contain_text("offline guide")
    watch.heard.clear()  # the address had to be confirmed


def test_a_wrong_choice_of_a_model_is_explained_in_the_dialog(site: Site, page: Page, watch: Watch) -> None:
    page.goto(site.url)
    page.locator(".chat-head [data-model-open]").click()
    page.select_option("#provider", "openai")
    page.fill("#model-name", "x")
    page.fill("#base-url", "http://10.0.0.1/v1")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[data-model-error]")).to_contain_text("https")
    watch.heard.clear()
    page.keyboard.press("Escape")
    expect(page.locator("[data-model]")).to_be_hidden()


def test_a_removed_chat_is_gone_from_the_list_and_its_address_says_so(site: Site, page: Page, watch: Watch) -> None:
    page.goto(site.url)
    say(page, "/csv-profile")
    answered(page)
    address = page.url
    page.locator("[data-chat-menu] summary").click()
    page.locator("[data-chat-remove]").click()
    page.wait_for_url(f"{site.url}/?removed=*")
    expect(page.locator("[data-chats]")).to_contain_text("Your chats")
    page.goto(address)
    expect(page.locator("h1")).to_have_text("Chat not found")
    watch.heard.clear()
