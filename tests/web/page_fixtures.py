"""The fixtures of the tests of the pages: a server, a browser, a page of it, and axe.

Where there is no Chromium these tests are skipped in one line; in CI, they fail. A page that writes an error to its
console fails its test, whatever else it does: a script that was kept from running is such an error.
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

from web.browser import EXAMPLES, SKILLS, Site, Watch, missing, new_page, serving
from worlds import World

AXE = "4.14.0"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--disable-quic",
)  # fmt: skip
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    """A server over the bundled skills and a few in every state."""
    world.skill(f"{SKILLS}/house-style", description="How we write.", disable_model_invocation=True)
    world.skill(f"{SKILLS}/release-notes", description="A copy that another one hides.")
    world.skill(f"{SKILLS}/broken", text="---\nname: broken\ndescription: d\nmetadata: &a {x: *a}\n---\n# x\n")
    with serving(world, roots=[str(EXAMPLES)]) as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for the tests of a module: the event loop of its driver must not outlive them."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        missing("there is no Chromium")
    expect.set_options(timeout=20_000)  # a machine that is busy with other tests is slow, and not wrong
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def page(chromium: Browser, watch: Watch) -> Iterator[Page]:
    """A page in a browser profile of its own, which may complain about nothing."""
    with new_page(chromium, watch) as made:
        yield made
    assert watch.heard == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, installed once into a folder of the machine's temporary files."""
    npm = shutil.which("npm")
    if npm is None:
        missing("npm is not installed")
    place = Path(tempfile.gettempdir()) / f"metier-axe-{AXE}-{os.getuid()}"
    script = place / "node_modules/axe-core/axe.min.js"
    if not script.exists():
        building = Path(tempfile.mkdtemp(prefix="metier-axe-"))
        (building / "package.json").write_text('{"private": true}')
        line = [str(npm), "install", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts"]
        env = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
        done = subprocess.run(
            [*line, f"axe-core@{AXE}"], cwd=building, env=env, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            shutil.rmtree(building, ignore_errors=True)
            missing(f"npm could not install axe-core: {done.stderr.strip().splitlines()[-1:]}")
        try:
            building.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(building, ignore_errors=True)
    return script.read_text()
