"""Damaged and hostile archives for `metier install`, and installs that are killed.

A refusal changes nothing and gives its reason in a line. An install that succeeds brings plain files only. One that is
killed leaves the old skill or the new one, whole, and the next install leaves nothing else.
"""

import gzip
import os
import random
import resource
import shutil
import signal
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from metier.limits import MIB

from ..walk import processes
from .hostile import SKILLS, TARS, ZIPS, plain_tar, rightly_summed, tarred, zipped
from .place import Place
from .rounds import Round, own

_RESIDENT: Final = 600 * MIB
_GOOD: Final = {"scripts/run.sh": b"#!/bin/sh\n", "references/a.md": b"x" * 3_000}


def attack(round_: Round) -> None:
    place = Place(round_)
    (place.home / ".agents" / "skills").mkdir(parents=True)
    place.hand_over()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    while round_.goes_on():
        if round_.chance.random() < 0.15:
            _kill(round_, place)
        else:
            _install(round_, place)
    grown = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before) * 1024
    round_.used("memory of an install", max(grown, 1), _RESIDENT)


def archive(chance: random.Random) -> tuple[str, str, bytes]:
    """An archive: what it is, the ending of its name, and its bytes."""
    kind = chance.randrange(6)
    if kind == 0:
        name = chance.choice(list(ZIPS))
        return f"zip {name}", ".zip", ZIPS[name][1]()
    if kind == 1:
        name = chance.choice(list(TARS))
        return f"tar {name}", ".tar.gz", TARS[name][1]()
    if kind == 2:
        name = chance.choice(list(SKILLS))
        return f"skill {name}", ".skill", zipped(skill=SKILLS[name][1])
    if kind == 3:
        name = chance.choice(
            ("__pycache__/x.cpython-311.pyc", "scripts/__pycache__/run.cpython-311.pyc", "x.pyc", "a/b.pyo")
        )
        return f"bytecode {name}", ".zip", zipped((name, b"\x00" * 40))
    members = [(name, data) for name, data in _GOOD.items()]
    data = bytearray(zipped(*members) if kind == 4 else tarred(*members))
    if kind == 5 and chance.random() < 0.7:
        plain = bytearray(plain_tar(*members))
        _damage(plain, chance)
        data = bytearray(gzip.compress(bytes(rightly_summed(plain))))
    else:
        _damage(data, chance)
    return f"damaged {'zip' if kind == 4 else 'tar'}", ".zip" if kind == 4 else ".tar.gz", bytes(data)


def _damage(data: bytearray, chance: random.Random) -> None:
    how = chance.randrange(4)
    if how == 0:
        del data[chance.randrange(len(data)) :]
    elif how == 1:
        data += chance.choice((b"x", b"\0" * 700, bytes(data)))
    else:
        for _ in range(chance.randrange(1, 12)):
            data[chance.randrange(len(data))] = chance.choice((0, 255, 47, 46, chance.randrange(256)))


def _install(round_: Round, place: Place) -> None:
    what, ending, data = archive(round_.chance)
    before, skills = _outside(place), _skills(place)
    code, said = _run(place, _file(place, ending, data))
    round_.tried()
    if _outside(place) != before:
        changed = sorted({*_outside(place).items()} ^ {*before.items()})[:5]
        round_.escape(f"{what}: files outside of the skills changed: {changed}", repr(data[:600]))
    after = _skills(place)
    if code == 0:
        wrong = [path for path, mode in after.items() if not _plain(path, mode)]
        if wrong:
            round_.escape(f"{what}: it was installed with {wrong[:5]}", repr(data[:600]))
        if hostile := [path for path in after if path.endswith((".pyc", ".pyo")) or ".git" in path.split("/")]:
            round_.escape(f"{what}: {sorted(hostile)[:3]} was installed", repr(data[:600]))
        _remove(place)
    elif after != skills:
        round_.escape(f"{what}: it was refused and left {sorted(set(after) ^ set(skills))[:5]}", repr(data[:600]))
    if "Traceback" in said or "this is a bug" in said or (code and not said.strip()):
        round_.escape(f"{what}: exit code {code} without a clear reason: {said[-1_500:]}", repr(data[:600]))


def _kill(round_: Round, place: Place) -> None:
    """Kill `install --replace` at a random moment."""
    old = _file(place, ".zip", zipped(*((f"f{n}", b"old") for n in range(30))))
    new = _file(place, ".zip", zipped(*((f"f{n}", b"new") for n in range(30))))
    code, said = _run(place, old, "--replace")
    if code:
        round_.found("broken", f"a good archive is refused: {said[-500:]}")
        return
    surroundings = place.surroundings()
    child = place.start(["install", str(new), "--yes", "--replace", *place.options()], surroundings)
    time.sleep(round_.chance.random() * 0.25)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.close()
    round_.tried()
    target = place.home / ".agents" / "skills" / "probe"
    found = {path.read_bytes() for path in target.rglob("f*")} if target.exists() else set[bytes]()
    whole = len(list(target.rglob("f*"))) == 30 and (target / "SKILL.md").is_file() and len(found) == 1
    if not whole:
        round_.escape(f"a killed install left {sorted(str(path) for path in target.rglob('*'))[:5]} of {found}")
    code, said = _run(place, new, "--replace")
    if code:
        round_.escape(f"after a killed install the next one fails: {said[-500:]}")
    others = [entry.name for entry in (place.home / ".agents" / "skills").iterdir() if entry.name != "probe"]
    others = [name for name in others if "lock" not in name]
    if others:
        round_.found("survivor", f"a killed install leaves {others[:5]}, also after the next install")
        for name in others:
            shutil.rmtree(place.home / ".agents" / "skills" / name, ignore_errors=True)
    _remove(place)


def _run(place: Place, source: Path, *more: str) -> tuple[int, str]:
    surroundings = place.surroundings()
    child = place.start(["install", str(source), "--yes", *more, *place.options()], surroundings)
    done = processes.read_all(child)
    errors = Path(surroundings.errors)
    said = errors.read_text(errors="replace")
    errors.unlink()
    return done.code, said + done.out if done.code == 0 else said


def _file(place: Place, ending: str, data: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(suffix=ending, dir=place.base / "outside")
    os.write(descriptor, data)
    os.close(descriptor)
    own(Path(name), place.round.identity)
    for older in (place.base / "outside").glob("tmp*"):
        if older.stat().st_mtime < time.time() - 2:
            older.unlink()
    return Path(name)


def _remove(place: Place) -> None:
    shutil.rmtree(place.home / ".agents" / "skills" / "probe", ignore_errors=True)


def _plain(path: str, mode: int) -> bool:
    return stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and not mode & 0o7022)


def _skills(place: Place) -> dict[str, int]:
    folder = place.home / ".agents" / "skills"
    return {
        str(path.relative_to(folder)): path.lstat().st_mode for path in folder.rglob("*") if "lock" not in path.name
    }


def _outside(place: Place) -> dict[str, tuple[int, int]]:
    """Everything in the place but the skills and Metier's own files."""
    found: dict[str, tuple[int, int]] = {}
    for path in place.base.rglob("*"):
        shown = str(path.relative_to(place.base))
        if not shown.startswith(
            ("home/.agents", "home/.config", "home/.local", "home/.cache", "outside/tmp", "stderr", "events.db")
        ):
            status = path.lstat()
            found[shown] = (status.st_mode, status.st_size if stat.S_ISREG(status.st_mode) else 0)
    return found
