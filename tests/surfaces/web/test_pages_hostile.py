"""Hostile skills in the browser: no script runs, no request leaves the server, and the page stays intact."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Request, expect

from surfaces.web.browser import SKILLS, Site, answered, say, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

ATTACK = "<script>window.ran=1</script><img src=x onerror=window.ran=1><svg/onload=window.ran=1>'\"</textarea></title>"
MARKDOWN = f"""# {ATTACK}

{ATTACK}

[click](javascript:window.ran=1) [data](data:text/html,<script>window.ran=1</script>) [vb](vbscript:x)
[mixed](JaVaScRiPt:window.ran=1) [entity](&#106;avascript:window.ran=1) <javascript:window.ran=1>
![picture](http://attacker.invalid/track.png) ![x](x" onerror="window.ran=1)

<style>body {{ display: none }}</style> <iframe src="http://attacker.invalid"></iframe>
<a href="#" onclick="window.ran=1" style="position:fixed;inset:0">cover</a>
<form action="http://attacker.invalid"><input name="q"></form> <base href="http://attacker.invalid/">

```html" onmouseover="window.ran=1
{ATTACK}
```

| a | b |
|---|---|
| {ATTACK} | \x1b]8;;http://attacker.invalid\x07link\x1b]8;;\x07 \u202egnp.exe |
"""
BIDI = "\u202edrowssap\u202c \u2066x\u2069 \x1b[2J\x1b[31mred\x07 \x00nul"
RTL = "هذا وصف بالعربية <b>غامق</b> " * 8
HUGE = "w" * 30_000


@pytest.fixture
def hostile(world: World) -> Iterator[Site]:
    files: dict[str, str | bytes] = {
        "references/a'b\"<c>&.md": MARKDOWN,
        "references/hostile.md": MARKDOWN + BIDI.replace("\x00", ""),
        "assets/huge.txt": HUGE * 4,
    }
    world.skill(
        f"{SKILLS}/attack",
        description=ATTACK,
        body=MARKDOWN,
        files=files,
        license=ATTACK,
        metadata={ATTACK: ATTACK, "nested": {"deep": [ATTACK]}},
        **{"x-unknown": ATTACK},
    )
    world.skill(f"{SKILLS}/arabic", description=RTL[:900], body=RTL + "\n\n" + HUGE)
    world.skill(f"{SKILLS}/huge", description="h" * 1024, body=HUGE * 10)
    world.skill(f"{SKILLS}/escapes", description="red \x1b[31m text \x07", body=BIDI)
    world.skill(f"{SKILLS}/bidi", description=BIDI)
    world.skill(f"{SKILLS}/folder <img src=x onerror=window.ran=1>", description=ATTACK)
    world.skill(f"{SKILLS}/{'n' * 200}", description="a long name")
    world.skill(f"{SKILLS}/‮evil", name="‮evil", description="turned")
    world.skill(f"{SKILLS}/broken", text=f"---\nname: broken\ndescription: {ATTACK}\nmetadata: &a {ATTACK} *a\n---\n")
    with serving(world) as made:
        yield made


def unharmed(page: Page) -> None:
    """No script ran, nothing covers the page, and the page is not wider than the window."""
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    bad = ("script", "iframe", "style", "[onerror]", "[onclick]", "[style]", "a[href^='javascript' i]")
    bad = (*bad, "a[href^='data' i]", "img:not([src^='/static/'])")
    assert page.locator(", ".join(f"main {one}" for one in bad)).count() == 0
    expect(page.locator("nav.nav")).to_be_visible()


def test_no_page_of_a_hostile_catalog_runs_or_loads_anything(hostile: Site, page: Page, watch: object) -> None:
    outside: list[str] = []

    def requested(request: Request) -> None:
        if not request.url.startswith((hostile.url, "data:")):
            outside.append(request.url)

    page.on("request", requested)
    for name in ("attack", "huge", "arabic"):
        hostile.app.session().call("skill_load", {"name": name})
    session = hostile.app.session()
    session.call("skill_load", {"name": ATTACK})
    session.call("skill_read", {"name": "attack", "path": "references/hostile.md"})
    session.search(ATTACK)
    session.prompt()
    names = [skill.name for skill in hostile.app.skills()]
    pages = ["/", "/skills", "/prompt", "/usage", "/activity", f"/activity/{session.id}", "/skills?kind=broken"]
    pages += [f"/prompt?message={quote(ATTACK)}", f"/skills?q={quote(ATTACK)}"]
    pages += [f"/skills/{quote(name, safe='')}" for name in names]
    pages += [
        f"/skills/attack?file={quote(file)}" for file in ("SKILL.md", "references/a'b\"<c>&.md", "assets/huge.txt")
    ]
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        for path in pages:
            answer = page.goto(hostile.url + path)
            assert answer is not None
            assert answer.status == 200, path
            for details in page.locator("details").all()[:12]:
                details.evaluate("one => { one.open = true }")
            unharmed(page)
    assert outside == []


def test_a_chat_with_a_hostile_skill_shows_it_and_runs_nothing(hostile: Site, page: Page) -> None:
    page.goto(hostile.url)
    page.locator("[data-message]").press_sequentially("/attack")
    expect(page.get_by_role("option").first).to_contain_text("<script>")
    unharmed(page)
    say(page, f"/attack {ATTACK} read references/hostile.md")
    answered(page)
    page.locator('[data-card="load"] summary').click()
    expect(page.locator('[data-card="load"] pre')).to_contain_text("<script>window.ran=1</script>")
    expect(page.locator(".user")).to_contain_text(ATTACK)
    unharmed(page)
    page.reload()
    unharmed(page)


def test_what_cannot_be_seen_is_an_escape_and_right_to_left_text_turns_only_itself(hostile: Site, page: Page) -> None:
    page.goto(f"{hostile.url}/skills/escapes")
    expect(page.locator(".prose")).to_contain_text(r"\u202edrowssap")
    assert not set("\x1b\x07\u202e\u2066") & set(page.content())
    page.goto(f"{hostile.url}/skills?q=arabic")
    row = page.locator(".row").filter(has=page.get_by_role("link", name="arabic"))
    assert row.locator(".description").evaluate("one => getComputedStyle(one).direction") == "rtl"
    assert row.locator(".title").evaluate("one => getComputedStyle(one).direction") == "ltr"
