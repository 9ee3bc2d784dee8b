"""The code of each recipe runs as it stands, in an environment with its framework, without a key and a network.

`METIER_TEST_RECIPES` names the folder of the environments, one for each page.
"""

import os
import subprocess
from pathlib import Path

import pytest

from docs.test_blocks import blocks
from docs.test_recipe_pages import PAGES, SDKS
from loopback_model import LoopbackModel, Step, results

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENTS = Path(os.environ["METIER_TEST_RECIPES"]).resolve()
STEPS = [
    Step("skill_load", {"name": "csv-profile"}),
    Step("skill_read", {"name": "csv-profile", "path": "references/pitfalls.md"}),
    Step("skill_read", {"name": "csv-profile", "path": "no-such.md"}),
]
"""What the models on the pages do. The Claude Agent SDK has no model for tests, so an endpoint here does the same."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in SDKS], ids=lambda page: page.stem)
def test_the_code_of_the_page_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    place = ENVIRONMENTS / page.stem
    if not (place / ".installed").exists():
        pytest.skip(f"{page.stem} has no environment here")
    ((_, code, _),) = blocks(page.read_text())
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (tmp_path / "user").mkdir()
    with LoopbackModel(STEPS, repeats=True).serving() as model:
        surroundings = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "user"),
            "NO_PROXY": "127.0.0.1",
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "OTEL_SDK_DISABLED": "true",
        }
        done = subprocess.run(
            [place / "bin" / "python", "-c", code],
            cwd=tmp_path,
            env=surroundings,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    answer, events = done.stdout.splitlines()[-2:]
    assert "The last result was: " in answer
    assert "File not found: no-such.md" in answer
    for event in ("skill_loaded", "skill_resource_read", "skill_resource_refused"):
        assert f"'{event}'" in events
    if page.stem == "claude-agent-sdk":
        requests = model.conversation()
        assert "csv-profile" in str(requests[0].body["system"])
        assert [bool(result.get("is_error")) for result in results(requests[-1])] == [False, False, True]
