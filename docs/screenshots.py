"""Takes the pictures of docs/web.md: it starts a server with the bundled skills and a browser that uses it.

    python docs/screenshots.py

It needs Chromium and the development dependencies. Home and project are temporary folders.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import uvicorn
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from metier.app import App
from metier.surfaces.web.api import build
from metier.testing import write_skill

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
LARGEST = 200_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SCREEN: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
Theme = Literal["light", "dark"]
SETS: dict[str, tuple[ViewportSize, Theme, tuple[str, ...]]] = {
    "light": (SCREEN, "light", ("start", "skills", "skill", "prompt", "activity", "chat")),
    "dark": (SCREEN, "dark", ("session", "chat")),
    "phone": (PHONE, "light", ("start", "skills", "chat")),
    "phone-dark": (PHONE, "dark", ("activity", "session")),
}
"""The pages to take, by window size and theme."""


@contextmanager
def server(place: Path) -> Generator[tuple[str, App]]:
    home, project = place / "home", place / "my-project"
    (project / ".git").mkdir(parents=True)
    home.mkdir()
    os.environ["HOME"] = str(home)
    shutil.copytree(HERE.parent / "examples" / "skills", project / ".agents" / "skills")
    skills = project / ".agents" / "skills"
    write_skill(skills / "house-style", description="How we write here.", disable_model_invocation=True)
    write_skill(skills / "half-done", text="---\nname: half-done\ndescription: Not yet.\nmetadata: &a {x: *a}\n---\n")
    write_skill(home / ".agents/skills/release-notes", description="Another one of this name, in the home folder.")
    app = App(project, home=home, store="memory:", surface="http")
    application = build(app, watch=False)
    running = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        threading.Event().wait(0.02)
    try:
        yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}", app
    finally:
        application.end()
        running.should_exit = True
        thread.join(20)
        app.close()


def history(app: App) -> str:
    """A few sessions to look at; the id of the most telling one."""
    for surface in ("cli", "mcp", "cli"):
        session = app.session(surface=surface)
        session.load("csv-profile")
        session.read("csv-profile", "references/pitfalls.md")
    session = app.session(surface="mcp")
    session.search("a regex for dates")
    session.load("regex-workbench")
    session.call("skill_read", {"name": "regex-workbench", "path": "../../secret"})
    session.call("skill_read", {"name": "regex-workbench", "path": "references/cookbook.md"})
    app.skills().set_mode("csv-profile", "pinned")
    app.skills().set_mode("incident-timeline", "off")
    return session.id


def talk(page: Page, url: str) -> None:
    """A skill called by name, one of its files read, and a script that waits for an answer."""
    page.goto(url)
    for text in ("/skills-system-validation read assets/fixture.json", "run scripts/echo.sh hello"):
        page.fill("[data-message]", text)
        page.press("[data-message]", "Enter")
        page.wait_for_selector('.ask.waiting, main[data-status="idle"] .answer:last-child .prose')


def show(page: Page, url: str, what: str, session: str) -> None:
    addresses = {
        "skills": "/skills",
        "skill": "/skills/csv-profile",
        "prompt": "/prompt?message=duplicate+rows+in+a+csv&budget=1500",
        "activity": "/activity",
        "session": f"/activity/{session}",
    }
    if what == "chat":
        talk(page, url)
    else:
        page.goto(url + addresses.get(what, "/"), wait_until="load" if what == "session" else "networkidle")
    if what == "session":
        page.get_by_role("link", name="Replay").click()
        page.wait_for_selector(".verdict")
    page.wait_for_timeout(300)  # whatever moves has come to rest


def take(browser: Browser, url: str, session: str) -> None:
    for name, (size, theme, shots) in SETS.items():
        context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
        page = context.new_page()
        for what in shots:
            show(page, url, what, session)
            page.screenshot(path=PICTURES / f"{what}-{name}.png")
        context.close()


def main() -> None:
    program = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if program is None:
        raise SystemExit("there is no Chromium; install it first")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="metier-") as place, server(Path(place)) as (url, app):
        session = history(app)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
            take(browser, url, session)
            browser.close()
    large = [file.name for file in PICTURES.glob("*.png") if file.stat().st_size > LARGEST]
    if large:
        raise SystemExit(f"these pictures are too large: {', '.join(large)}")


if __name__ == "__main__":
    main()
