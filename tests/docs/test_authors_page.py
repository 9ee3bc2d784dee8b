"""The page for authors: its commands run in order, and print what it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml12

from catalog.test_codes import AUTHORS
from docs.test_site import matches, steps

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/authors.md").read_text()


def test_every_command_of_the_page_prints_what_the_page_shows(tmp_path: Path) -> None:
    wanted = steps(PAGE)
    assert len(wanted) > 12
    (tmp_path / "project/.git").mkdir(parents=True)
    script = ["exec 2>&1"]
    for number, (command, _) in enumerate(wanted):
        script += [f"echo '@@ {number}'", command, f'echo "@@ ended $? {number}"']
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8", "COLUMNS": "150"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path / "project",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    failing = ("--diff", "forms", "--host codex --host claude-code")
    for number, (command, shown) in enumerate(wanted):
        found = re.search(rf"@@ {number}\n(.*?)@@ ended (\d+) {number}$", done.stdout, re.MULTILINE | re.DOTALL)
        assert found, f"{command}: {done.stdout[-2000:]}"
        fails = command.startswith("metier") and any(word in command for word in failing)
        assert found[2] == ("1" if fails else "0"), f"{command}: {found[1]}"
        assert not shown or matches(shown, found[1]), f"{command}: {found[1]}"


def test_the_page_has_every_finding_of_a_review_and_every_input_of_the_action() -> None:
    assert [code for code in (*AUTHORS, "hidden-characters") if f"| `{code}` |" not in PAGE] == []
    action: Any = yaml12.parse_yaml((REPOSITORY / "action.yml").read_text())
    assert [name for name in action["inputs"] if f"| `{name}` |" not in PAGE] == []
    hooks: Any = yaml12.parse_yaml((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks if f"id: {hook['id']}" not in PAGE] == []
