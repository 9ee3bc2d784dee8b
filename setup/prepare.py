"""Prepares this checkout: `make demo`, `make test` and the others call it, and nobody else needs to.

    python3 setup/prepare.py parts demo|test             the programs of the system that Metier can use
    python3 setup/prepare.py environment demo|dev VENV   the packages, in a virtual environment
    python3 setup/prepare.py programs                    the names of all these programs, in one line

The programs stand in `parts.json`, which the tests read, too: what is installed is what they need, and can hide.
Programs are installed only where that needs no password: as root, with a sudo that does not ask, or with Homebrew. It
never asks. What cannot be had is named in one line, with what it leaves out, and nothing else depends on it, except in
CI, where everything must be there. `METIER_SETUP=none` leaves the system as it is.
"""

from __future__ import annotations  # an old interpreter must get as far as the line that says it is too old

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import deque
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)


class Part(NamedTuple):
    """A program that Metier or its tests use, and which package of a package manager has it."""

    name: str
    programs: list[str]  # all that belong to it
    without: str
    here: list[str]  # one of these shows that it is here: a program on the PATH or a pattern of absolute paths
    apt: str | None = None
    dnf: str | None = None
    brew: str | None = None
    service: bool = False  # it brings a service that goes on running, so that only CI installs it


def known() -> dict[str, Part]:
    """The parts of `parts.json`, by the names that the tests use for them."""
    given = json.loads((ROOT / "setup" / "parts.json").read_text(encoding="utf-8"))
    return {key: Part(**{"here": fields["programs"], **fields}) for key, fields in given.items()}


PACKAGES = {
    "demo": [".[web]"],
    "dev": [".[all,pydantic-ai,openai-agents,langchain]", "--group", "dev"],
}
ABOUT = {"demo": "Metier and its web app", "dev": "Metier and the tools of its tests"}


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def is_here(part: Part) -> bool:
    return any(glob.glob(program) if "/" in program else shutil.which(program) for program in part.here)


# --- running ---


class Failed(Exception):
    """A command did not work; the text is the end of what it printed."""


def run(line: list[str], about: str, seconds: float) -> None:
    """Runs a command and shows that it goes on: its latest line on a terminal, else the time every ten seconds."""
    say(about)
    started = told = time.monotonic()
    shown = sys.stdout.isatty()
    last: deque[str] = deque(maxlen=15)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "HOMEBREW_NO_AUTO_UPDATE": "1"}
    try:
        process = subprocess.Popen(
            line, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise Failed(str(error)) from None
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    rest = b""
    try:
        while process.poll() is None:
            rest += process.stdout.read() or b""
            *lines, rest = rest.split(b"\n")
            last.extend(text for one in lines if (text := one.decode("utf-8", "replace").strip()))
            now = time.monotonic()
            if shown and last:
                print(f"\r\033[K  {now - started:3.0f} s  {last[-1][:66]}", end="", flush=True)
            elif now - told >= 10:
                told = now
                say(f"... {now - started:.0f} s")
            if now - started > seconds:
                raise Failed(f"it did not end within {seconds:.0f} s")
            time.sleep(0.1)
    finally:
        if shown:
            print("\r\033[K", end="", flush=True)
        if process.poll() is None:
            process.terminate()
            process.wait()
    rest += process.stdout.read() or b""
    last.extend(text for one in rest.split(b"\n") if (text := one.decode("utf-8", "replace").strip()))
    if process.returncode:
        raise Failed("\n".join(last))


# --- programs of the system ---


def authority() -> list[str] | None:
    """What to put before a command of the package manager, or None if this user may not use it without a password."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def manager() -> tuple[str, list[list[str]]] | str:
    """The package manager with its commands (to prepare, and to install), or why there is none."""
    if shutil.which("apt-get"):
        before = authority()
        if before is None:
            return "it needs root, or a sudo that asks for no password"
        apt = [*before, "apt-get", "-qq", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=30"]
        install = [*apt, "install", "-y", "--no-install-recommends", "--no-remove"]
        return "apt", [[*apt, "update"], install]
    if shutil.which("dnf"):
        before = authority()
        if before is None:
            return "it needs root, or a sudo that asks for no password"
        return "dnf", [[*before, "dnf", "-q", "install", "-y", "--setopt=install_weak_deps=False"]]
    if shutil.which("brew"):
        return "brew", [["brew", "install", "--quiet"]]
    return "there is no apt-get, dnf or brew"


def parts(kind: str) -> int:
    """Installs the programs that are missing, where it may, and says what is left out."""
    wanted = known() if kind == "test" else {"bwrap": known()["bwrap"]}
    missing = [part for part in wanted.values() if not is_here(part)]
    if not missing:
        return 0
    in_ci = bool(os.environ.get("CI"))
    reason = "METIER_SETUP is none"
    if os.environ.get("METIER_SETUP") != "none":
        found = manager()
        reason = found if isinstance(found, str) else "the package manager does not have it"
        wanted_now = [part for part in missing if in_ci or not part.service]
        if wanted_now and not isinstance(found, str):
            install_parts(wanted_now, *found)
    left = [part for part in missing if not is_here(part)]
    for part in left:
        why = "it brings a service, so only CI installs it" if part.service and not in_ci else reason
        say(f"{part.name} is not here ({why}): {part.without}")
    return 1 if left and in_ci and os.environ.get("METIER_SETUP") != "none" else 0


def install_parts(missing: list[Part], name: str, commands: list[list[str]]) -> None:
    """All packages at once, and each by itself if that does not work: one that is unknown must not cost the others."""
    packages = [package for part in missing if (package := getattr(part, name))]
    *before, install = commands
    try:
        for command in before:
            run(command, f"reading the packages of {name}", 120)
        run([*install, *packages], f"installing {', '.join(packages)} with {name}", 1200)
    except Failed:
        for package in packages:
            with contextlib.suppress(Failed):  # the caller says what is not here
                run([*install, package], f"installing {package}", 600)


# --- the environment ---


def interpreter() -> str:
    """This interpreter, or a newer one if this one is too old."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for minor in (14, 13, 12, 11):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    raise Failed(
        f"Python {sys.version_info[0]}.{sys.version_info[1]} is too old, and no python3.11 or newer is on the PATH. "
        "Install one, or name it: make demo PYTHON=/path/to/python3"
    )


def environment(kind: str, venv: Path) -> int:
    started = time.monotonic()
    wanted = PACKAGES[kind]
    try:
        python = interpreter()
        if shutil.which("uv"):
            run(["uv", "venv", "--allow-existing", "--python", python, str(venv)], f"creating {venv.name}", 300)
            install = ["uv", "pip", "install", "--python", str(venv / "bin" / "python")]
        else:
            create(python, venv)
            install = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
            if "--group" in wanted:
                run([*install, "install", "--upgrade", "pip>=25.1"], "bringing pip up to date", 300)
            install += ["install", "--progress-bar", "off"]
        run([*install, "--editable", *wanted], f"installing {ABOUT[kind]} into {venv.name}", 3600)
    except Failed as failed:
        say(f"this did not work:\n{failed}")
        return 1
    say(f"ready after {time.monotonic() - started:.0f} s")
    return 0


def create(python: str, venv: Path) -> None:
    """A virtual environment with pip. Debian's Python comes without the copy of pip that a new environment gets, so
    there it is taken from the package index."""
    try:
        run([python, "-m", "venv", str(venv)], f"creating {venv.name}", 300)
        return
    except Failed as failed:
        if "ensurepip" not in str(failed):
            raise
    run([python, "-m", "venv", "--clear", "--without-pip", str(venv)], f"creating {venv.name} without pip", 300)
    say("fetching pip")
    try:
        with tempfile.TemporaryDirectory() as folder:
            wheel = fetch_pip(Path(folder))  # a wheel of pip can install itself
            run([str(venv / "bin" / "python"), f"{wheel}/pip", "install", str(wheel)], "installing pip", 300)
    except (OSError, ValueError) as error:
        raise Failed(
            f"{python} cannot create an environment with pip, and pip cannot be fetched ({error}). "
            "Install the package python3-venv, or uv, and try again."
        ) from None


def fetch_pip(folder: Path) -> Path:
    """The newest release of pip, compared with the digest that the index gives."""
    trusted = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    with urllib.request.urlopen(f"{index}/pip/", timeout=30, context=trusted) as answer:
        page = answer.read().decode()
    wheels = re.findall(r'href="([^"]*?/(pip-([0-9.]+)-py3-none-any\.whl))#sha256=([0-9a-f]{64})"', page)
    if not wheels:
        raise ValueError(f"{index} has no release of it")
    url, name, _, digest = max(wheels, key=lambda wheel: [int(part) for part in wheel[2].split(".")])
    with urllib.request.urlopen(urllib.parse.urljoin(f"{index}/pip/", url), timeout=120, context=trusted) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{url} does not have the digest that the index gives")
    (folder / name).write_bytes(content)
    return folder / name


def main() -> int:
    command, *rest = sys.argv[1:]
    if command == "programs":
        print(*(program for part in known().values() for program in part.programs))
        return 0
    if command == "parts":
        return parts(*rest)
    return environment(rest[0], ROOT / rest[1])


if __name__ == "__main__":
    sys.exit(main())
