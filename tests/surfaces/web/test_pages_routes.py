"""The pages over HTTP: headers, static files and signing in. No page changes a skill."""

import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from metier.app import App
from metier.files.text import visible
from metier.surfaces.web.api import Application, build
from metier.surfaces.web.guard import Gate
from metier.surfaces.web.markdown import to_html
from metier.surfaces.web.site import CSP
from worlds import World

HOST = "http://localhost"
SKILLS = ".agents/skills"
TOKEN = "a-token-of-some-length"
PAGES = ("/skills", "/skills/notes", "/prompt", "/usage", "/activity")


@pytest.fixture
def app(world: World) -> Iterator[App]:
    world.skill(f"{SKILLS}/notes", body="# Notes\n", files={"references/a.md": "a reference"})
    made = App(world.project, home=world.home, store="memory:", surface="http")
    yield made
    made.close()


@pytest.fixture
def client(app: App) -> Iterator[TestClient]:
    with TestClient(build(app, watch=False), base_url=HOST, raise_server_exceptions=False) as made:
        yield made


def session_of(app: App) -> str:
    session = app.session()
    session.load("notes")
    return session.id


def test_every_page_has_the_strict_policy_and_nothing_inline(app: App, client: TestClient) -> None:
    session = session_of(app)
    chat = client.post("/api/chats").json()["id"]
    paths = ("/", f"/chat/{chat}", "/skills/notes?file=SKILL.md", f"/activity/{session}", f"/activity/{session}/replay")
    for path in (*paths, *PAGES):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-security-policy"] == CSP
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(
            r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=|(?:src|href)=\"(?:https?:)?//", answer.text
        )


def test_static_files_are_kept_for_ever_under_their_digest_and_asked_for_again_elsewhere(client: TestClient) -> None:
    with client.stream("GET", "/skills", headers={"accept-encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    page = gzip.decompress(packed).decode()
    assert "<h1>Skills</h1>" in page
    found = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert {Path(name).suffix for name in found} == {".css", ".js", ".svg"}
    for address in found:
        answer = client.get(address)
        assert "immutable" in answer.headers["cache-control"]
        again = client.get(address, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    old = re.sub(r"/static/[^/]+/", "/static/0/", found[0])
    assert client.get(old).headers["cache-control"] == "no-cache"
    assert client.get("/static/0/..%2f..%2fpages%2fsite.py").status_code == 404


@pytest.mark.behaviour("K-069")
def test_no_page_or_route_changes_or_fetches_a_skill(world: World) -> None:
    world.skill(f"{SKILLS}/notes", body="# Notes\n", files={"references/a.md": "a reference"})

    def tree() -> dict[str, str]:
        files = (file for file in Path(world.project, SKILLS).rglob("*") if file.is_file())
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    before = tree()
    on = {"enabled": True}
    app = App(world.project, home=world.home, store="memory:", surface="http", profile="remcochat", settings=on)
    with TestClient(build(app, watch=False), base_url=HOST, raise_server_exceptions=False) as client:
        application = client.app
        assert isinstance(application, Application)
        changing = {
            route.path
            for route in application.routes
            if isinstance(route, Route) and not {"GET", "HEAD"} >= set(route.methods or ())
        }
        words = re.compile(r"install|download|upload|import|market|store|fetch", re.IGNORECASE)
        assert [one for one in changing if words.search(one) and "/api/chats" not in one] == []
        key = re.search(r'name="key" value="([0-9a-f]+)"', client.get("/skills").text)
        assert key
        for mode in ("pinned", "off", "auto"):
            assert client.post("/skills/mode", content=f"key={key[1]}&mode={mode}&back=/skills").status_code == 200
        client.post("/skills/refresh", content="back=/skills")
        for path in (*PAGES, "/skills/notes?file=references/a.md"):
            assert "attachment" not in client.get(path).headers.get("content-disposition", "")
            assert not re.search(r"<a[^>]*\sdownload|<textarea|type=\"file\"", client.get(path).text), path
    app.close()
    assert tree() == before


def test_what_is_not_there_is_a_page_for_people_and_json_for_programs(client: TestClient) -> None:
    page = {"accept": "text/html"}
    for path in ("/nowhere", "/skills/nope", "/chat/nope", "/activity/nope", "/activity/nope/artifacts/sha256:0"):
        answer = client.get(path, headers=page)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8"), path
        assert "<h1>" in answer.text
    assert client.get("/nowhere").json()["error"]["code"] == "NOT_FOUND"


def test_numbers_and_filters_that_make_no_sense_do_no_harm(app: App, client: TestClient) -> None:
    skills = ("page=-1", "page=99999999999", "page=x", "kind=nope", "scope=nope", "q=%00", "q=" + "a" * 5_000)
    prompt = ("budget=-4", "budget=999999999999", "profile=nope", "message=" + "a" * 9_000)
    trail = ("before=-1", "before=x", "after=99", "show=nope")
    rows = {"/skills": skills, "/prompt": prompt, f"/activity/{session_of(app)}": trail}
    for path, queries in rows.items():
        found = {query: client.get(f"{path}?{query}").status_code for query in queries}
        assert set(found.values()) == {200}, found
    for content in ("key=0&mode=off", ""):
        assert client.post("/skills/mode", content=content).status_code == 404, "a skill that is gone"


def test_signing_in_leads_only_to_pages_of_this_server(app: App) -> None:
    gate = Gate(hosts=frozenset(("localhost",)), token=TOKEN)
    with TestClient(build(app, gate, watch=False), base_url=HOST) as client:
        for wanted in ("//evil.example", "/\\evil.example", "https://evil.example", "javascript:1", ""):
            sent = client.post("/login", content=f"token={TOKEN}&next={wanted}", follow_redirects=False)
            assert sent.headers["location"] == "/", wanted


HOSTILE = {
    "<script>alert(1)</script>": "<script",
    "[x](javascript:alert(1))": 'href="javascript',
    "[x](JAVASCRIPT:alert(1))": 'href="JAVASCRIPT',
    "[x](data:text/html,x)": 'href="data',
    "<javascript:alert(1)>": "<a",
    "![x](http://a.example/x.png)": "<img",
    "<a onclick=x>": "<a",
    "[x](//evil.example)": "href",
    "[x](/skills)": "href",
}


def test_markdown_becomes_html_that_can_do_nothing_and_keeps_what_is_harmless() -> None:
    assert [text for text, gone in HOSTILE.items() if gone in to_html(text)] == []
    shown = to_html("# T\n\n*a* `b` [c](https://d.example) ~~e~~\n\n1. f\n\n| g | h |\n|---|---|\n| i | j |")
    for part in ("<h3>T</h3>", "<em>a</em>", "<code>b</code>", 'href="https://d.example"', "<s>e</s>", "<ol>", "<td>j"):
        assert part in shown
    assert 'rel="noopener noreferrer nofollow"' in shown
    assert to_html("*a* <b>" * 30_000).startswith('<pre class="plain">*a* &lt;b&gt;'), "too long to format"


def test_characters_that_nobody_sees_become_escapes_and_words_stay_whole() -> None:
    assert visible("a\x1b[0m\u202e\ufeff\U000e0041\x85\n") == "a\\x1b[0m\\u202e\\ufeff\\U000e0041\\x85\\n"
    assert visible("a\r\n\tb", lines=True) == "a\n\tb"
    persian, family = "می\u200cخواهم", "👩\u200d👧"
    assert visible(persian + family) == persian + family
    assert visible("\ud800") == "\\ud800"
