"""The documentation site builds without a warning, lists every page, and loads nothing from other sites.

The commands of the tutorial run in one shell, from the first to the last.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import TypedDict, cast

import pytest
import yaml12

import parts
from parts import needs

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
LONGEST = 300


def pages_of(nav: object) -> list[str]:
    match nav:
        case str():
            return [nav]
        case dict():
            return [page for part in nav.values() for page in pages_of(part)]
        case list():
            return [page for part in nav for page in pages_of(part)]
        case _:
            raise TypeError(f"neither a page nor a section: {nav!r}")


def test_the_navigation_lists_every_page_once() -> None:
    config = yaml12.parse_yaml((REPOSITORY / "mkdocs.yml").read_text())
    assert isinstance(config, dict)
    listed = pages_of(config["nav"])
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


class Wanted(HTMLParser):
    """Collects the addresses that a browser loads for a page; links for people are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag != "a" and not (tag == "link" and given.get("rel") in ("canonical", "next", "prev")):
            self.addresses += [value or "" for key, value in attrs if key in ("src", "href", "srcset")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_builds_without_a_warning_and_has_every_page(site: Path) -> None:
    built = {str(page.parent.relative_to(site)) for page in site.rglob("index.html")}
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert (name.removesuffix("/index") if name != "index" else ".") in built


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        wanted = Wanted()
        wanted.feed(page.read_text())
        assert [address for address in wanted.addresses if re.match(r"(?i)(https?:)?//", address)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import", sheet.read_text()), sheet


# --- the tutorial


STEP = re.compile(r"^(<!-- no-run:.*?-->\n)?```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(text: str) -> list[tuple[str, str]]:
    """Each command of the page with the output that the page shows, in order. A block of Python is a command, too."""
    found: list[tuple[str, str]] = []
    for reason, language, block in STEP.findall(text):
        if language == "python":
            found.append((f"python - <<'END-OF-BLOCK'\n{block}END-OF-BLOCK", ""))
        elif not reason:
            for command, shown in re.findall(r"^\$ (.*\n(?:> ?.*\n|>\n)*)((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                found.append((re.sub(r"^> ?", "", command, flags=re.MULTILINE).rstrip("\n"), shown))
    return found


def matches(shown: str, printed: str) -> bool:
    """Whether the output is what the page shows. `...` matches any text."""
    parts = [re.escape(part) for part in shown.strip().split("...")]
    return re.fullmatch(r"[\s\S]*".join(parts), printed.strip()) is not None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@needs("curl", "git")
def test_the_tutorial_runs_from_the_first_command_to_the_last(tmp_path: Path) -> None:
    page = (DOCS / "tutorial.md").read_text()
    wanted = steps(page)
    assert len(wanted) > 15
    port = free_port()
    script = ["set -m", "exec 2>&1"]
    for number, (command, _) in enumerate(wanted):
        runnable = command.replace("8765", str(port)).replace("curl -s", "curl -s --retry 60 --retry-connrefused")
        if "metier/token" in runnable:  # the server that makes it was started a moment ago
            runnable = f"until [ -s ~/.config/metier/token ]; do sleep 0.1; done; {runnable}"
        script += [f"echo '@@ {number}'", runnable, f'echo "@@ ended $? {number}"']
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    for number, (command, shown) in enumerate(wanted):
        found = re.search(rf"@@ {number}\n(.*?)@@ ended (\d+) {number}$", done.stdout, re.MULTILINE | re.DOTALL)
        assert found, f"{command}: {done.stdout[-2000:]}"
        if int(found[2]) == 4 and command.startswith("metier run") and parts.no_sandbox():
            continue  # without a sandbox a script does not run, as the page says
        assert found[2] == "0", f"{command}: {found[1]}"
        assert not shown or matches(shown, found[1]), f"{command}: {found[1]}"
    assert "['meeting-minutes']\n# Meeting minutes\n" in done.stdout, (
        "the comments in the Python block show what it prints"
    )


def test_an_output_matches_only_what_the_page_shows() -> None:
    assert matches("a\n...\nz\n", "a\nb\nc\nz")
    assert not matches("a\n...\nz\n", "a\nb\n")
    assert not matches("a\n", "a\nb\n")


# --- configuration of other programs


class Server(TypedDict, total=False):
    """An MCP server in the configuration of a client; `command` may be the whole command line."""

    url: str
    command: str | list[str]
    args: list[str]


def test_every_set_up_of_a_client_is_well_formed_and_starts_metier() -> None:
    page = (DOCS / "mcp.md").read_text()
    part = page[page.index("## Add Metier to a client") : page.index("## What a client sees")]
    documents: list[dict[str, dict[str, Server]]] = [
        json.loads(block) for block in re.findall(r"```json\n(.*?)```", part, re.DOTALL)
    ]
    documents += [
        cast("dict[str, dict[str, Server]]", tomllib.loads(block))
        for block in re.findall(r"```toml\n(.*?)```", part, re.DOTALL)
    ]
    assert len(documents) >= 5
    for document in documents:
        (tables,) = document.values()
        (server,) = tables.values()
        if "url" in server:
            assert server["url"].endswith("/mcp")
            continue
        assert "command" in server
        command = server["command"]
        line = command if isinstance(command, list) else [command, *server.get("args", [])]
        assert line[:2] == ["metier", "mcp"]
    for line in re.findall(r"^\$ (.*)$", part, re.MULTILINE):
        assert line.startswith("metier mcp add ")
