"""Other people's loaders, each in an environment of its own below `.peers`, asked for the same work.

A Python peer has a driver here: a file with a `load(folder)` that calls the peer's own function and returns how many
skills it loaded. `_drive.py` runs it with the peer's interpreter and holds the clock. A peer that cannot be installed
or does not run is reported as not available, with the reason; nothing stands in for it.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from ..measure import clean_environment

HERE: Final = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENTS: Final = os.path.join(os.path.dirname(HERE), ".peers")
INSTALL_SECONDS: Final = 900
PATIENCE_SECONDS: Final = 60
"""A peer that needs longer than this for a measurement is measured with fewer skills."""


class NotAvailable(Exception):
    """The peer cannot be measured here; the text says why."""


@dataclass(frozen=True, slots=True)
class PythonPeer:
    """A package with a function that loads a folder of skills; `name` is its driver's, `requirement` pip's."""

    name: str
    requirement: str
    calls: str
    """The function that the driver measures."""
    python: tuple[int, int] = (3, 11)
    """The oldest Python that its current version runs on."""

    @property
    def folder(self) -> str:
        return os.path.join(ENVIRONMENTS, self.name)

    @property
    def interpreter(self) -> str:
        return os.path.join(self.folder, "bin", "python")

    def install(self) -> str:
        """Make the environment, unless it is there; returns the version."""
        stamp = os.path.join(self.folder, "version.txt")
        if not os.path.exists(stamp):
            base = _interpreter(self.python)
            shutil.rmtree(self.folder, ignore_errors=True)
            if base == sys.executable:
                venv.create(self.folder, with_pip=True)
            else:
                _run([base, "-m", "venv", self.folder])
            _run([self.interpreter, "-m", "pip", "install", "--quiet", self.requirement])
            code = f"import importlib.metadata as m; print(m.version({self.requirement!r}), end='')"
            version = _run([self.interpreter, "-c", code])
            with open(stamp, "w", encoding="utf-8") as stream:
                stream.write(version)
        with open(stamp, encoding="utf-8") as stream:
            return stream.read()

    def load(self, folder: str, home: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Load a folder once, in a new process: `seconds`, `skills` and `python`, as the driver saw them."""
        driver = os.path.join(HERE, f"{self.name.replace('-', '_')}.py")
        drive = os.path.join(HERE, "_drive.py")
        # -P: a driver bears the name of the package that it imports.
        output = _run([self.interpreter, "-P", drive, driver, folder], clean_environment(home), seconds)
        return json.loads(output.splitlines()[-1])


@dataclass(frozen=True, slots=True)
class NodePeer:
    """A command from the npm registry that lists the skills of the working directory."""

    name: str
    requirement: str
    arguments: tuple[str, ...]
    skills_folder: str
    """Where it looks, below the working directory."""
    note: str = ""

    @property
    def folder(self) -> str:
        return os.path.join(ENVIRONMENTS, self.name)

    @property
    def command(self) -> list[str]:
        return [os.path.join(self.folder, "node_modules", ".bin", self.name), *self.arguments]

    def install(self) -> str:
        manifest = os.path.join(self.folder, "node_modules", self.name, "package.json")
        if not os.path.exists(manifest):
            npm = shutil.which("npm")
            if npm is None:
                raise NotAvailable("npm is not installed")
            os.makedirs(self.folder, exist_ok=True)
            _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", self.folder, self.requirement])
        with open(manifest, encoding="utf-8") as stream:
            return json.load(stream)["version"]


PYTHON_PEERS: Final = (
    PythonPeer("fast-agent", "fast-agent-mcp", "SkillRegistry.load_directory", (3, 12)),
    PythonPeer("hermes-agent", "hermes-agent", "tools.skills_tool._find_all_skills"),
    PythonPeer("google-adk", "google-adk", "google.adk.skills.list_skills_in_dir"),
    PythonPeer("deepagents", "deepagents", "middleware.skills._list_skills"),
    PythonPeer("agno", "agno", "LocalSkills(folder, validate=False).load"),
    PythonPeer("skills-ref", "skills-ref", "read_properties and validate per folder"),
    PythonPeer("skillport", "skillport", "cli.catalog.list_skills_fs"),
)
PYYAML: Final = PythonPeer("pyyaml", "PyYAML", "yaml.load with CSafeLoader")
NODE_PEERS: Final = (
    NodePeer("openskills", "openskills@latest", ("list",), ".claude/skills"),
    NodePeer("skills", "skills@1.5", ("list",), ".agents/skills", "skills 1.6 and later want Node 22.20"),
)


@dataclass(slots=True)
class Peers:
    """The peers of a run: installed on first use, each asked once whether it works."""

    wanted: bool = True
    versions: dict[str, str] = field(default_factory=dict[str, str])
    missing: dict[str, str] = field(default_factory=dict[str, str])

    def python(
        self, probe: str, home: str, peers: Sequence[PythonPeer] = PYTHON_PEERS
    ) -> list[tuple[PythonPeer, float]]:
        """The Python peers that work, with the seconds that each takes for a small folder."""
        working: list[tuple[PythonPeer, float]] = []
        for peer in peers if self.wanted else ():
            if self._installed(peer):
                try:
                    working.append((peer, peer.load(probe, home)["seconds"]))
                except (NotAvailable, ValueError, KeyError, IndexError) as error:
                    self.missing[peer.name] = str(error) or type(error).__name__
        return working

    def node(self) -> list[NodePeer]:
        return [peer for peer in NODE_PEERS if self.wanted and self._installed(peer)]

    def label(self, name: str) -> str:
        return f"{name} {self.versions[name]}" if name in self.versions else name

    def _installed(self, peer: PythonPeer | NodePeer) -> bool:
        if peer.name not in self.versions and peer.name not in self.missing:
            print(f"  peer {peer.name} ...", file=sys.stderr, flush=True)
            try:
                self.versions[peer.name] = peer.install()
            except (NotAvailable, OSError) as error:
                self.missing[peer.name] = str(error)
        return peer.name in self.versions


@cache
def _interpreter(at_least: tuple[int, int]) -> str:
    """This Python if it is new enough, else the newest one that is found."""
    if sys.version_info[:2] >= at_least:
        return sys.executable
    for minor in range(14, at_least[1] - 1, -1):
        name = f"python3.{minor}"
        pyenv = os.path.expanduser("~/.pyenv/versions")
        installed = sorted(os.listdir(pyenv), reverse=True) if os.path.isdir(pyenv) else []
        kept = [os.path.join(pyenv, v, "bin", name) for v in installed if v.startswith(f"3.{minor}.")]
        for candidate in (shutil.which(name), *kept):
            if candidate and os.path.exists(candidate) and _works(candidate):
                return candidate
    raise NotAvailable(f"needs Python {at_least[0]}.{at_least[1]}, which is not installed")


def _works(interpreter: str) -> bool:
    return subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0


def _run(arguments: Sequence[str], env: dict[str, str] | None = None, seconds: float = INSTALL_SECONDS) -> str:
    try:
        done = subprocess.run(
            arguments, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"took longer than {seconds:.0f} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise NotAvailable(lines[-1][:200] if lines else f"exit code {done.returncode}")
    return done.stdout
