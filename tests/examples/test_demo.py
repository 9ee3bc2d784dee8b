"""What `make demo` and `make tour` start."""

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from patience import PATIENCE

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_serves_the_web_app_on_the_bundled_skills_and_keeps_to_its_folder(tmp_path: Path) -> None:
    line = [sys.executable, str(EXAMPLES / "demo.py"), str(tmp_path / "demo")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            where = process.stderr.readline().removeprefix("listening on ").strip()
            link, _, code = process.stderr.readline().removeprefix("to sign in, open ").strip().partition("#")
            with httpx2.Client(base_url=where, follow_redirects=True, timeout=PATIENCE, trust_env=False) as browser:
                refused = browser.get("/api/skills")
                page = browser.post(link, data={"code": code})  # as the page behind the link does
                skills = browser.get("/api/skills").json()["skills"]
        finally:
            process.terminate()
        assert process.wait() == 0
    assert refused.status_code == 401
    assert (page.status_code, str(page.url)) == (200, f"{where}/")
    assert page.headers["content-type"].startswith("text/html")
    assert {skill["name"] for skill in skills} == {path.name for path in (EXAMPLES / "skills").iterdir()}
    assert (tmp_path / "demo/.local/share/metier/metier.db").is_file()


def test_the_tour_walks_through_the_commands_without_a_mistake() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLES / "tour.py")], capture_output=True, text=True, check=True)
    assert "identical" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
