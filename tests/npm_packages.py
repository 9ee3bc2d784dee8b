"""Programs from npm for tests: installed once into a folder, in the versions that the test names."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from patience import PATIENCE


def install(place: Path, packages: Sequence[str], newest_node: int = 0) -> str:
    """Install packages into a folder, unless it exists. Returns why that is not possible, or an empty text.

    If the machine's Node is older than `newest_node`, that version is installed beside the packages.
    """
    npm = shutil.which("npm")
    if npm is not None and (place / "node_modules").is_dir():
        return ""
    if npm is None:
        return "npm is not installed"
    place.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    (building / "package.json").write_text('{"private": true}')
    wanted = [*packages, *([f"node@{newest_node}"] if node_version() < newest_node else [])]
    line = [npm, "install", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1", *wanted]
    env = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
    try:
        done = subprocess.run(line, cwd=building, env=env, capture_output=True, text=True, timeout=PATIENCE)
        why = (done.stderr.strip().splitlines() or ["npm failed"])[-1] if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = "it took too long"
    if why:
        shutil.rmtree(building, ignore_errors=True)
        return f"npm could not install {', '.join(wanted)}: {why}"
    try:
        building.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(building, ignore_errors=True)
    return ""


def node_version() -> int:
    """The major version of the machine's Node; 0 if there is none."""
    try:
        shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
        return int(shown.strip().lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0
