"""Fixtures for tests of the pages: a server, a browser, a page, and axe.

Without Chromium these tests are skipped, and in CI they fail. A page that writes an error to its console fails its
test; a script that the Content-Security-Policy blocked is such an error.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import parts
from surfaces.web.browser import EXAMPLES, SKILLS, Site, Watch, new_page, serving
from worlds import World

AXE = "4.14.0"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--disable-quic"),
)


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    """A server with the bundled skills and some in every state."""
    world.skill(f"{SKILLS}/house-style", description="How we write.", disable_model_invocation=True)
    world.skill(f"{SKILLS}/release-notes", description="A copy that another one hides.")
    world.skill(f"{SKILLS}/broken", text="---\nname: broken\ndescription: d\nmetadata: &a {x: *a}\n---\n# x\n")
    with serving(world, roots=[str(EXAMPLES)]) as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser per module: the event loop of its driver must end with the tests of the module."""
    program = parts.here("chromium")
    expect.set_options(timeout=20_000)  # a busy machine is slow
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def page(chromium: Browser, watch: Watch) -> Iterator[Page]:
    """A page in a browser profile of its own, which must not report errors."""
    with new_page(chromium, watch) as made:
        yield made
    assert watch.heard == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, installed once into a folder of the machine's temporary files."""
    parts.require("node")
    npm = shutil.which("npm")
    place = Path(tempfile.gettempdir()) / f"metier-axe-{AXE}-{os.getuid()}"
    script = place / "node_modules/axe-core/axe.min.js"
    if not script.exists():
        building = Path(tempfile.mkdtemp(prefix="metier-axe-"))
        (building / "package.json").write_text('{"private": true}')
        line = [str(npm), "install", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts"]
        env = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
        done = subprocess.run([*line, f"axe-core@{AXE}"], cwd=building, env=env, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(building, ignore_errors=True)
            parts.missing("node", f"npm could not install axe-core: {done.stderr.strip().splitlines()[-1:]}")
        try:
            building.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(building, ignore_errors=True)
    return script.read_text()
