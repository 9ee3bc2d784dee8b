"""How many public scripts start: their imports succeed in the sandbox, before and after packages are installed.

    python -m bench scripts

The corpus is `scripts.tar.xz`: public skill folders with their scripts. The rule for the 300: every Python file in a
folder `scripts` of a skill that compiles and is neither a test nor `__init__.py`, in the order of the SHA-256 of its
path. A script that parses arguments is started with `--help`, every other one is imported. It counts as failed if an
import error ends it, or if it gives up with an error status after an import of it failed. Packages are installed from
the index that is set up for uv. A script that needs more than `HEAVY` to download is not installed, and counts
as failed. Environments are deleted when less than `FREE` of the disk is left.
"""

import functools
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from metier.files.tree import SkillTree, TreeFile, take
from metier.hosts.settings import Settings
from metier.hosts.settings import resolve as settings_of
from metier.running.grants import packages
from metier.running.packages import Environment, PackagesUnavailable, Wanted, programs
from metier.running.packages.environment import Environments, wanted_by
from metier.running.packages.interpreters import Interpreter, choose
from metier.running.packages.programs import environment
from metier.running.packages.resolve import resolve
from metier.running.sandbox import Job, RunLimits, Runner, SandboxUnavailable
from metier.running.sandbox.interpreter import usual_python
from metier.running.sandbox.runners import choose as choose_runner

from ..measure import Row
from ..options import Options

SCRIPTS = 300
HEAVY = 3_000_000_000
FREE = 15_000_000_000
AT_ONCE = 6
BATCH = 20
GOAL = 95.0
STARTED_MS = 60.0
INSTALLED = 1.3
_MEASURED = ("requests", "rich", "pandas")
_LIMITS = RunLimits(seconds=240, memory_bytes=2048 * 1024 * 1024)

_DRIVER = """
import builtins, json, runpy, sys, traceback
script, name = sys.argv[1], sys.argv[2]
failed, real = [], builtins.__import__
def watched(name, globals=None, locals=None, fromlist=(), level=0):
    try:
        return real(name, globals, locals, fromlist, level)
    except ImportError as error:
        if str((globals or {}).get("__file__", "")).startswith("/skill"):  # packages try imports of their own
            failed.append(f"{type(error).__name__}: {error}")
        raise
builtins.__import__ = watched
sys.argv = [script, "--help"]
sys.path[0] = script.rpartition("/")[0]
status, why = 0, ""
try:
    runpy.run_path(script, run_name=name)
except SystemExit as end:
    status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
except ImportError as error:
    status, why = 1, f"{type(error).__name__}: {error}"
except BaseException as error:
    status = 0
    why = f"started, then {type(error).__name__}: {error}"
if status and failed and not why:
    why = failed[0]
sys.stdout.flush()
print("\\n@bench " + json.dumps([status, why]), file=sys.__stderr__)
"""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A script of the corpus, with the files of its skill."""

    skill: str
    path: str
    tree: SkillTree

    @property
    def is_command(self) -> bool:
        file = self.tree.file(self.path)
        text = file.data.decode("utf-8", "replace") if file is not None else ""
        parses = any(word in text for word in ("argparse", "import click", "import typer", "import fire", "--help"))
        return parses and "__main__" in text


def run(options: Options) -> list[Row]:
    archive = os.path.join(options.corpus, "scripts.tar.xz")
    if not os.path.isfile(archive):
        return [Row("scripts", "-", None, note=f"left out: there is no {archive}; --corpus names another folder")]
    try:
        runner = choose_runner()
        programs.uv()
    except (SandboxUnavailable, PackagesUnavailable) as error:
        return [Row("scripts", "-", None, note=f"left out: {error}")]
    quick = options.rounds <= 2
    folder = os.path.join(options.workspace.path, "scripts")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    chosen = list(_chosen(folder))[: 20 if quick else SCRIPTS]
    settings = settings_of(folder, home=options.workspace.folder("scripts-home"))
    rows = _imports(chosen, runner, settings)
    return [*rows, *_start(runner, settings, 10 if quick else 40), *_first_install(2 if quick else 3)]


# --- which scripts ---


def _chosen(folder: str) -> Iterator[Chosen]:
    skills = sorted(place for place, _, files in os.walk(folder) if "SKILL.md" in files)
    found: list[tuple[str, str, str]] = []
    for skill in skills:
        for place, folders, files in os.walk(os.path.join(skill, "scripts")):
            folders[:] = [name for name in folders if name not in ("tests", "test")]
            for name in files:
                is_test = name.startswith(("test_", "conftest")) or name.endswith("_test.py") or name == "__init__.py"
                if name.endswith(".py") and not is_test:
                    path = os.path.relpath(os.path.join(place, name), skill)
                    found.append((_order(os.path.relpath(skill, folder), path), skill, path))
    for _, skill, path in sorted(found):
        descriptor = os.open(skill, os.O_RDONLY | os.O_DIRECTORY)
        try:
            tree = take(descriptor)
        finally:
            os.close(descriptor)
        file = tree.file(path)
        if file is not None and _compiles(file.data):
            yield Chosen(os.path.relpath(skill, folder), path, tree)


def _order(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


def _compiles(data: bytes) -> bool:
    try:
        compile(data, "script", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


# --- imports ---


def _imports(chosen: Sequence[Chosen], runner: Runner, settings: Settings) -> list[Row]:
    before = after = wanting = 0
    reasons: Counter[str] = Counter()
    for number, (one, tried) in enumerate(_tried(chosen, runner, settings), 1):
        before += not tried.bare
        after += not tried.why
        wanting += tried.wants
        if tried.why:
            reasons[_group(tried.why, tried.problem)] += 1
        said = f"{'ok' if not tried.why else 'FAILED'} {one.skill}/{one.path} {tried.why[:150]} {tried.problem[:200]}"
        print(f"{number:>4} {before:>4} {after:>4} {said}", file=sys.stderr, flush=True)
    count = len(chosen)
    note = "; ".join(f"{group}: {number}" for group, number in reasons.most_common()) or "no reasons"
    return [
        Row("imports succeed", "standard library", 100 * before / count, "%"),
        Row("imports succeed", "metier", 100 * after / count, "%", at_least=GOAL, note=f"the rest, {note}"),
        Row("scripts", "all", count, ""),
        Row("scripts", "that want packages", wanting, ""),
    ]


@dataclass(frozen=True, slots=True)
class Tried:
    """Why a script does not start without packages and with them; empty where it does."""

    bare: str
    why: str
    problem: str
    wants: bool


def _tried(chosen: Sequence[Chosen], runner: Runner, settings: Settings) -> Iterator[tuple[Chosen, Tried]]:
    state = packages.package_state(settings)
    assert state is not None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for batch in _batches(chosen):
            if shutil.disk_usage(settings.place.cwd).free < FREE:
                state.environments.clear()
            yield from zip(
                batch, pool.map(functools.partial(_try, runner=runner, settings=settings), batch), strict=True
            )


def _batches(chosen: Sequence[Chosen]) -> Iterator[Sequence[Chosen]]:
    return (chosen[at : at + BATCH] for at in range(0, len(chosen), BATCH))


def _try(one: Chosen, runner: Runner, settings: Settings) -> Tried:
    bare = _start_of(one, runner, None)
    environment, problem = _environment(one, settings)
    why = _start_of(one, runner, environment) if environment is not None else bare
    return Tried(bare, why, problem, bool(problem) or (environment is not None and bool(environment.folder)))


def _start_of(one: Chosen, runner: Runner, environment: Environment | None) -> str:
    """Why the imports of a script do not succeed; empty if they do."""
    folder = os.path.dirname(one.path)
    driver = os.path.join(folder, "bench_driver_of_metier.py")
    tree = SkillTree(tuple(sorted((*one.tree.files, TreeFile(driver, _DRIVER.encode())), key=lambda file: file.path)))
    name = "__main__" if one.is_command else "script_of_metier"
    argv = (f"/skill/{one.path}", name)
    outcome = runner.run(Job("/", driver, argv, tree=tree, packages=environment, limits=_LIMITS))
    for line in reversed(outcome.stderr.decode("utf-8", "replace").splitlines()):
        if line.startswith("@bench "):
            status, why = json.loads(line.removeprefix("@bench "))
            return str(why) if status and why else ""
    return f"ended: {outcome.ended} {outcome.exit_code} {outcome.stderr.decode('utf-8', 'replace')[-200:]}"


def _environment(one: Chosen, settings: Settings) -> tuple[Environment | None, str]:
    """The packages of a script, and what is missing of them."""
    wanted = wanted_by(one.tree, one.path, "#!python")
    state = packages.package_state(settings)
    assert state is not None
    found = packages.PackagesGrant() if wanted is None else packages.look_up(settings, wanted)
    plan = found.with_root(one.tree, one.path)
    if plan.lock is None:
        return plan.environment, plan.refusal or "; ".join(plan.remarks)
    if plan.lock.size > HEAVY:
        return plan.environment, f"too heavy: {plan.lock.size / 1e9:.1f} GB to download"
    try:
        # What counts here is whether imports succeed, which needs no bytecode.
        folder = state.environments.ensure(plan.lock, plan.interpreter, bytecode=False)
    except PackagesUnavailable as error:
        return plan.environment, str(error)
    return plan.with_folder(folder), "; ".join(plan.remarks)


def _group(why: str, problem: str) -> str:
    if problem.startswith("too heavy"):
        return "left out as too heavy"
    if why.startswith("ended:"):
        return "did not end by itself"
    if "has no wheel" in problem:
        return "a package without a wheel"
    if "on no index" in problem:
        return "a name on no index"
    if problem:
        return "packages cannot be resolved or installed"
    if why.startswith("ModuleNotFoundError"):
        return "a module that its package does not have"
    return "another import error"


# --- times ---


def _start(runner: Runner, settings: Settings, rounds: int) -> list[Row]:
    """What a cached environment adds to a run that does nothing, in turns."""
    interpreter = choose(usual_python(), "")
    state = packages.package_state(settings)
    assert state is not None
    with programs.workplace(state.environments.folder) as workplace:
        lock = resolve(Wanted(requirements=_MEASURED), interpreter, workplace)
    plan = packages.PackagesGrant(lock=lock, interpreter=interpreter)
    environment = plan.with_folder(state.environments.ensure(lock, interpreter))
    tree = SkillTree((TreeFile("scripts/nothing.py", b"pass\n"),))
    bare = Job("/", "scripts/nothing.py", tree=tree)
    times: dict[str, list[float]] = {"bare": [], "packages": []}
    for number in range(rounds + 1):
        for who, job in (("bare", bare), ("packages", replace(bare, packages=environment))):
            found = state.environments.find(lock) if who == "packages" else ""
            began = time.perf_counter()
            assert found is not None
            outcome = runner.run(job)
            if outcome.exit_code:
                raise AssertionError(f"the script did not run as it should: {outcome}")
            if number:
                times[who].append(1000 * (time.perf_counter() - began))
    best = min(times["packages"]) - min(times["bare"])
    median = statistics.median(times["packages"]) - statistics.median(times["bare"])
    return [
        Row("cached start", "bare run, best", min(times["bare"]), "ms"),
        Row("cached start", "with packages, more", best, "ms", at_most=STARTED_MS),
        Row("cached start", "the same, median", median, "ms"),
    ]


def _first_install(rounds: int) -> list[Row]:
    """From nothing to an environment, each time with an empty cache of the installer, against uv alone."""
    interpreter = choose(usual_python(), "")
    times: dict[str, list[float]] = {"uv": [], "uv, bytecode": [], "metier": []}
    for _ in range(rounds):
        for who, taken in times.items():
            with tempfile.TemporaryDirectory(prefix="metier-bench-") as folder:
                before, os.environ["UV_CACHE_DIR"] = os.environ.get("UV_CACHE_DIR"), os.path.join(folder, "cache")
                began = time.perf_counter()
                try:
                    _install(who, interpreter, folder)
                    taken.append(time.perf_counter() - began)
                finally:
                    del os.environ["UV_CACHE_DIR"]
                    os.environ.update({"UV_CACHE_DIR": before} if before is not None else {})
    best = {who: min(taken) for who, taken in times.items()}
    return [
        Row("first install", "uv pip install", best["uv"]),
        Row("first install", "and its bytecode", best["uv, bytecode"]),
        Row(
            "first install",
            "metier",
            best["metier"],
            ratio=best["metier"] / best["uv"],
            against="uv",
            at_most=INSTALLED,
            note=f"{', '.join(_MEASURED)}, with an empty download cache each time; Metier also writes the bytecode",
        ),
    ]


def _install(who: str, interpreter: Interpreter, folder: str) -> None:
    if who == "metier":
        environments = Environments(os.path.join(folder, "environments"))
        with programs.workplace(environments.folder) as workplace:
            lock = resolve(Wanted(requirements=_MEASURED), interpreter, workplace)
        environments.ensure(lock, interpreter)
        return
    more = ["--compile-bytecode"] if who != "uv" else []
    words = ["pip", "install", "--quiet", "--target", os.path.join(folder, "target"), "--no-build"]
    words += ["--python", interpreter.path, *more, *_MEASURED]
    subprocess.run([programs.uv()[0], *words], check=True, env=environment("uv", folder), cwd=folder)
