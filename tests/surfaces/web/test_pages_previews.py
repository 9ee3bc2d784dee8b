"""Files of a chat are shown as text, tables and images, and nothing in them runs in our origin or reaches anybody."""

import base64
import json
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from surfaces.chat.openai_server import ModelServer, text
from surfaces.web.browser import Site, Watch, answered, new_page, say, serving
from surfaces.web.test_pages_axe import findings
from surfaces.web.test_pages_files import ask
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

RUNS = "window.ran=1;top.ran=1;parent.ran=1;document.cookie='stolen=1'"
SVG = f"""<svg xmlns="http://www.w3.org/2000/svg" onload="{RUNS}" width="40" height="40"><script>{RUNS}</script>
<image href="http://attacker.invalid/a.png"/><foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml"
 src="javascript:{RUNS}"/></foreignObject><circle r="20"/></svg>"""
HTML = f"""<!doctype html><base href="http://attacker.invalid/">
<meta http-equiv="refresh" content="0;url=http://attacker.invalid/"><script>{RUNS}</script>
<img src="http://attacker.invalid/x.png" onerror="{RUNS}"><iframe src="javascript:{RUNS}"></iframe>
<style>@import "http://attacker.invalid/x.css";
h1 {{ color: rgb(1, 2, 3); background: url(http://attacker.invalid/b) }}</style>
<form action="/logout" method="post"><button>go</button></form><a href="javascript:{RUNS}" target="_top">link</a>
<link rel="stylesheet" href="http://attacker.invalid/y.css"><object data="/"></object><h1>Shown</h1>"""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FILES = {
    "picture.svg": SVG.encode(),
    "page.html": HTML.encode(),
    "fake.png": HTML.encode(),
    'rows"><img src=x onerror=window.ran=1>.csv': f'name,age\n"<script>{RUNS}</script>",36\nx;y,2\n'.encode(),
    "notes.txt": f"</pre><script>{RUNS}</script> \x1b[31mred\u202e".encode(),
    "real.png": PIXEL,
    "bytes.bin": bytes(range(256)),
}


def add(site: Site, files: dict[str, bytes]) -> tuple[str, dict[str, str]]:
    chat = json.loads(ask(site, "POST", "/api/chats")[2])["id"]
    digests: dict[str, str] = {}
    for name, data in files.items():
        status, _, answer = ask(site, "POST", f"/api/chats/{chat}/files?name={quote(name, safe='')}", data)
        assert status == 201, answer
        digests[name] = json.loads(answer)["digest"]
    return chat, digests


@pytest.mark.parametrize("width", [1280, 390])
def test_no_file_runs_anything_or_reaches_anybody(
    world: World, chromium: Browser, watch: Watch, axe: str, width: int
) -> None:
    with ModelServer(text("")) as attacker, serving(world) as site, new_page(chromium, watch, width) as page:
        place = attacker.url.encode()
        files = {name: data.replace(b"http://attacker.invalid", place) for name, data in FILES.items()}
        chat, digests = add(site, files)
        page.add_init_script(
            "if (self === top) { window.reports = [];"
            "addEventListener('securitypolicyviolation', (one) => reports.push(one.violatedDirective)) }"
        )
        found: dict[str, list[str]] = {}

        def unharmed(what: str) -> None:
            assert page.evaluate("[window.ran, reports]") == [None, []], what
            assert "stolen" not in page.evaluate("document.cookie")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), what
            found[what] = findings(page, axe)

        page.goto(f"{site.url}/chat/{chat}")
        expect(page.locator(".added-file")).to_have_count(len(files))
        unharmed("chat")
        for name, digest in digests.items():
            page.goto(f"{site.url}/files/{chat}/{digest}")
            if name == "page.html":
                inside = page.frame_locator("iframe.framed")
                expect(inside.get_by_role("heading", name="Shown")).to_have_css("color", "rgb(1, 2, 3)")
                frame = page.frames[1]
                assert frame.evaluate("[self.origin, window.ran]") == ["null", None]
            elif name == "picture.svg":
                expect(page.locator(".picture img")).to_have_js_property("naturalWidth", 40)
            elif name == "real.png":
                expect(page.locator(".picture img")).to_have_js_property("naturalWidth", 1)
            elif name.endswith(".csv"):
                expect(page.locator("td").first).to_have_text(f"<script>{RUNS}</script>")
                expect(page.locator("th")).to_have_text(["name", "age"])
            elif name.endswith(".txt"):
                expect(page.locator("#text")).to_contain_text(r"</pre><script>")
                expect(page.locator("#text")).to_contain_text(r"\x1b[31mred\u202e")
            elif name == "bytes.bin":
                expect(page.locator(".empty")).to_contain_text("No preview")
            unharmed(name)
            # The raw answers are of no use on their own, either.
            for part in ("image", "frame"):
                status, headers, _ = ask(site, "GET", f"/files/{chat}/{digest}/{part}")
                if status == 200:
                    assert headers["content-security-policy"].startswith("sandbox; default-src 'none'"), name
                    assert headers["x-content-type-options"] == "nosniff"
                    assert (part == "frame") == ("attachment" not in headers.get("content-disposition", ""))
                    assert headers["x-frame-options"] == ("SAMEORIGIN" if part == "frame" else "DENY")
        page.goto(f"{site.url}/files/{chat}/{digests['page.html']}/frame")
        assert page.evaluate("self.origin") == "null"
        assert ask(site, "GET", f"/files/{chat}/{digests['fake.png']}/image")[0] == 404, "a name makes no image"
        other = json.loads(ask(site, "POST", "/api/chats")[2])["id"]
        assert ask(site, "GET", f"/files/{other}/{digests['page.html']}")[0] == 404, "it belongs to another chat"
        assert (attacker.requests, attacker.listed) == ([], []), "nobody else was asked for anything"
    assert {name: notes for name, notes in found.items() if notes} == {}
    # What the browser blocked in the frame it writes to the console; no script had an error, or opened a dialog.
    assert [one for one in watch.heard if not one.startswith("console:")] == []


def test_a_pasted_image_goes_to_a_model_that_sees_and_a_line_of_text_to_one_that_does_not(
    world: World, page: Page
) -> None:
    with ModelServer(text("A dot.")) as model:
        settings = {"model": {"provider": "openai", "name": "m", "base_url": model.url, "images": True}}
        with serving(world, settings=settings) as site:
            page.goto(site.url)
            page.evaluate(
                """async (data) => {
                  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
                  const given = new DataTransfer();
                  given.items.add(new File([bytes], "image.png", { type: "image/png" }));
                  document.querySelector("[data-message]").dispatchEvent(
                    new ClipboardEvent("paste", { clipboardData: given, bubbles: true, cancelable: true }));
                }""",
                base64.b64encode(PIXEL).decode(),
            )
            expect(page.locator(".added-file")).to_contain_text("pasted-")
            expect(page.locator(".small-thumb")).to_have_js_property("naturalWidth", 1)
            page.wait_for_selector('main[data-status="idle"]')
            say(page, "What is it?")
            answered(page)
            parts = model.messages()[0]["content"]
            assert [one["type"] for one in parts] == ["text", "image_url"]
            assert parts[1]["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
            page.locator(".chat-head [data-model-open]").click()
            page.get_by_label("The model can see images").uncheck()
            page.get_by_role("button", name="Save").click()
            expect(page.locator("[data-model]")).to_be_hidden()
            say(page, "And now?")
            answered(page)
            assert "image_url" not in json.dumps(model.messages())
            assert "pasted-" in json.dumps(model.messages())
