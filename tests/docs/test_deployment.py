"""The files for operators: the unit of systemd, the compose file, the image, and what an index shows of the package."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml12

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "scale.md").read_text()
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def options_of(line: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "metier", "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert re.search(r"\bmetier serve\b|^serve\b", line)
    return [word for word in re.findall(r"--[a-z-]+", line) if f"  {word} " not in done.stdout]


@pytest.mark.system
def test_the_unit_of_systemd_is_well_formed_and_starts_a_command_that_exists(tmp_path: Path) -> None:
    unit = block("ini")
    started = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert started is not None
    assert options_of(started[1]) == []
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    file = tmp_path / "metier.service"
    file.write_text(unit.replace("/opt/metier/bin/metier", "/bin/true").replace("User=metier\n", ""))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "metier.service" in line] == []


@pytest.mark.system
def test_the_compose_file_starts_a_server_that_waits_for_its_database() -> None:
    compose: Any = yaml12.parse_yaml(block("yaml"))
    server, database = compose["services"]["metier"], compose["services"]["db"]
    assert options_of(server["command"]) == []
    assert server["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert "healthcheck" in database
    assert set(compose["volumes"]) == {
        mount.partition(":")[0] for one in (server, database) for mount in one["volumes"]
    }
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])


def test_the_image_installs_extras_that_exist_and_not_as_root() -> None:
    text = (REPOSITORY / "Dockerfile").read_text()
    extras = re.search(r'"\.\[(.*?)\]"', text)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])
    assert text.index("\nUSER metier") < text.index("\nENTRYPOINT")


def test_all_has_every_surface_and_store() -> None:
    extras = PROJECT["optional-dependencies"]
    named = re.fullmatch(r"metier\[(.*)\]", extras["all"][0])
    assert named is not None
    adapters = {path.stem.replace("_", "-") for path in (REPOSITORY / "src/metier/adapters").glob("[a-z]*.py")}
    assert set(named[1].split(",")) == set(extras) - adapters - {"all", "watch"}


@pytest.mark.system
def test_on_an_index_page_every_link_and_picture_has_a_whole_address(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(REPOSITORY)]
    built = subprocess.run(line, capture_output=True, text=True)
    if built.returncode and "No matching distribution found" in built.stderr:
        pytest.skip("there is no package index to build with")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        (name,) = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
        text = content.read(name).decode()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "](https://raw.githubusercontent.com/metier-project/metier/main/docs/pictures/terminal.svg)" in text
    assert all(
        f"Project-URL: {kind}, https://" in text for kind in ("Homepage", "Documentation", "Changelog", "Issues")
    )
