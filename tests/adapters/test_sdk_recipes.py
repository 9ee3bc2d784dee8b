"""The recipes for the SDKs without a framework run as they stand, against an endpoint on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import endpoints
import pytest
from scenario import Model

from docs.test_blocks import blocks

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("sdk", ["anthropic", "openai"])
def test_the_code_of_the_page_runs_as_it_stands(sdk: str, tmp_path: Path) -> None:
    pytest.importorskip(sdk)
    ((_, code, _),) = blocks((REPOSITORY / f"docs/recipes/{sdk}.md").read_text())
    assert len([line for line in code.splitlines() if line]) <= 20
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    file = {"name": "csv-profile", "path": "references/pitfalls.md"}
    model = Model(
        [
            ("skill_load", {"name": "csv-profile"}),
            ("skill_read", dict[str, object](file)),
            ("skill_read", {**file, "path": "no-such.md"}),
            "One row, two columns.",
        ]
    )
    with endpoints.serve(model) as url:
        surroundings = {
            **os.environ,
            "HOME": str(tmp_path / "home"),
            "NO_PROXY": "127.0.0.1",
            "PYTHONWARNINGS": "error",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
        }
        line = [sys.executable, "-c", code]
        done = subprocess.run(line, cwd=tmp_path, env=surroundings, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    answer, events = done.stdout.splitlines()
    assert answer == "One row, two columns."
    for event in ("skill_loaded", "skill_resource_read", "skill_resource_refused"):
        assert f"'{event}'" in events
    first, *_, last = model.shown
    assert first.system.startswith("You are a careful analyst.\n\nSkills are")
    assert "csv-profile" in first.system
    assert {"skill_load", "skill_read"} <= {*first.tools}
    assert len(last.texts) == 4
    assert "File not found: no-such.md" in last.texts[-1]
