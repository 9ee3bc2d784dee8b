"""What `make demo` and `make tour` start."""

import subprocess
import sys
from pathlib import Path

import httpx2

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_serves_the_web_app_on_the_bundled_skills_and_keeps_to_its_folder(tmp_path: Path) -> None:
    line = [sys.executable, str(EXAMPLES / "demo.py"), str(tmp_path / "demo")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            where = process.stderr.readline().removeprefix("listening on ").strip()
            page = httpx2.get(f"{where}/", follow_redirects=True, timeout=30)
            skills = httpx2.get(f"{where}/api/skills", timeout=30).json()["skills"]
        finally:
            process.terminate()
        assert process.wait(20) == 0
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert {skill["name"] for skill in skills} == {path.name for path in (EXAMPLES / "skills").iterdir()}
    assert (tmp_path / "demo/.local/share/metier/metier.db").is_file()


def test_the_tour_walks_through_the_commands_without_a_mistake() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLES / "tour.py")], capture_output=True, text=True, check=True)
    assert "identical" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
