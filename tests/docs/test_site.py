"""The documentation site builds without a warning, lists every page, and loads nothing from other sites."""

import json
import os
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import TypedDict, cast

import pytest
import yaml12

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"


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
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.system
def test_the_site_builds_without_a_warning_and_has_every_page(site: Path) -> None:
    built = {str(page.parent.relative_to(site)) for page in site.rglob("index.html")}
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert (name.removesuffix("/index") if name != "index" else ".") in built


@pytest.mark.system
def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        wanted = Wanted()
        wanted.feed(page.read_text())
        assert [address for address in wanted.addresses if re.match(r"(?i)(https?:)?//", address)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import", sheet.read_text()), sheet


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
