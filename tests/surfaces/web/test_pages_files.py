"""Files in the chat: a person adds one, a script reads it in its current folder, and what it made can be saved."""

import contextlib
import json
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

import parts
from metier.surfaces.web.guard import Gate
from patience import PATIENCE
from surfaces.web.browser import SKILLS, TOKEN, Site, answered, say, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

ODD = 'ra"port <b>&.csv'
MAKER = f"""
import sys
data = open(sys.argv[1]).read()
print(len(data.splitlines()), "lines")
open({ODD!r}, "w").write(data.upper())
"""


def ask(site: Site, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(site.url + path, body, {"authorization": f"Bearer {TOKEN}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, {key.lower(): value for key, value in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {key.lower(): value for key, value in error.headers.items()}, error.read()


def test_a_file_added_to_a_chat_is_profiled_and_what_a_script_made_is_saved(world: World, page: Page) -> None:
    parts.require("bwrap")
    table = "name,age\nada,36\ngrace,\n"
    world.skill(f"{SKILLS}/maker", description="makes", files={"scripts/make.py": MAKER})
    with serving(world, Gate(), roots=[str(Path(__file__).resolve().parents[3] / "examples/skills")]) as site:
        page.goto(site.url)
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Add files").click()
        chooser.value.set_files({"name": "people.csv", "mimeType": "text/csv", "buffer": table.encode()})
        expect(page.locator(".added-file")).to_contain_text("people.csv")
        say(page, "/csv-profile run scripts/profile_csv.py people.csv")
        question = page.locator(".ask.waiting")
        expect(question).to_contain_text("people.csv")
        expect(question).to_contain_text(f"reads the folder {world.project}")
        question.locator('[data-answer="once"]').click()
        answered(page)
        expect(page.locator('[data-card="run"] .terminal')).to_contain_text("2 rows, 2 columns")
        say(page, "/maker run scripts/make.py")
        page.locator('.ask.waiting [data-answer="once"]').click()
        answered(page)
        link = page.locator('[data-card="run"] .made a[download]').last
        expect(link).to_contain_text(ODD)
        with page.expect_download() as saved:
            link.click()
        assert saved.value.suggested_filename.startswith("ra")
        assert Path(saved.value.path()).read_text() == table.upper()
        assert not list(Path(world.project).rglob("*.csv")), "nothing of it is in the folder of the user"
        page.reload()
        expect(page.locator(".added-file")).to_contain_text("people.csv")
        expect(page.locator('[data-card="run"] .made a[download]')).to_have_count(1)
        page.locator("[data-preview-file]").click()
        expect(page.locator("td").first).to_have_text("ADA")
        page.go_back()
        address = link.get_attribute("href")
        assert address
        status, headers, data = ask(site, "GET", address)
        assert (status, headers["content-type"], headers["x-content-type-options"]) == (
            200,
            "application/octet-stream",
            "nosniff",
        )
        assert headers["content-disposition"].startswith("attachment; ")
        assert data.decode() == table.upper()


def test_only_names_of_files_are_taken_and_only_files_that_a_script_made_can_be_fetched(world: World) -> None:
    with serving(world) as site:
        chat = json.loads(ask(site, "POST", "/api/chats")[2])["id"]
        for name in ("../evil", "a/b", "..", "", "a\nb", "a\\b", "x" * 300):
            status, _, answer = ask(site, "POST", f"/api/chats/{chat}/files?name={quote(name, safe='')}", b"x")
            assert (status, "name" in json.loads(answer)["error"]["message"]) == (422, True), name
        status, _, answer = ask(site, "POST", f"/api/chats/{chat}/files?name=a.html", b"<script>alert(1)</script>")
        assert status == 201, answer
        digest = json.loads(answer)["digest"]
        assert ask(site, "GET", f"/api/sessions/{chat}/files/{digest}")[0] == 404
        assert ask(site, "GET", f"/api/sessions/{chat}/files/..%2f..%2fetc")[0] == 404
        assert ask(site, "POST", "/api/chats/none/files?name=a", b"x")[0] == 404
        with contextlib.suppress(urllib.error.URLError):  # it may hang up before it has read all of it
            assert ask(site, "POST", f"/api/chats/{chat}/files?name=b", b"x" * (5 << 20))[0] == 413
        items = json.loads(ask(site, "GET", f"/api/chats/{chat}")[2])["items"]
        assert [item["name"] for item in items] == ["a.html"]
