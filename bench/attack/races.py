"""A second process swaps files, folders and links while resources are read, trees are taken and runs start."""

import contextlib
import os
import time
from contextlib import AbstractContextManager
from pathlib import Path

from metier.errors import MetierError
from metier.files import beneath, tree
from metier.running.sandbox import Job, RunLimits

from . import probes
from .boxes import as_user
from .place import Place, beside
from .rounds import Round

_LOOK = """#!/usr/bin/env -S python3 -I -S
import os
for folder, _, names in os.walk("/skill"):
    for name in names:
        try:
            with open(os.path.join(folder, name), "rb") as file: print(file.read(10_000))
        except OSError: pass
"""


def attack(round_: Round) -> None:
    place = Place(round_)
    skill = place.skill(
        "~/.agents/skills/notes", files={"references/a.md": "the reference\n", "scripts/look.py": _LOOK}
    )
    place.hand_over()
    with swapping(round_, place, skill):
        (_reads, _trees, _runs)[round_.turn % 3](round_, place, skill)


def swapping(round_: Round, place: Place, skill: Path) -> AbstractContextManager[None]:
    """A process that never stops swapping, as the same identity."""
    return beside(round_.identity, lambda deadline: _swap(place, skill, deadline))


def _swap(place: Place, skill: Path, deadline: float) -> None:
    """Swap a file for a link out, a folder for a link out, and SKILL.md and the skill itself, each for a moment."""
    file, folder = skill / "references" / "a.md", skill / "references"
    link, spare = skill / ".link", skill / ".spare"
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.symlink(place.secrets[0], link)
            os.replace(link, file)
            spare.write_text("the reference\n")
            os.replace(spare, file)
        with contextlib.suppress(OSError):
            os.rename(folder, skill / "moved")
            os.symlink(place.base / "outside", folder)
            os.unlink(folder)
        with contextlib.suppress(OSError):
            os.rename(skill / "moved", folder)
        with contextlib.suppress(OSError):
            aside = skill.with_name("aside")
            os.rename(skill, aside)
            os.symlink(place.base / "outside", skill)
            os.unlink(skill)
        with contextlib.suppress(OSError):
            os.rename(skill.with_name("aside"), skill)


def _reads(round_: Round, place: Place, skill: Path) -> None:
    def work() -> tuple[int, str]:
        tried, session = 0, None
        while round_.goes_on():
            with contextlib.suppress(MetierError):
                session = session or place.discover().session()
                for _ in range(50):
                    tried += 1
                    with contextlib.suppress(MetierError):
                        if round_.token.encode() in beneath.read_file(str(skill), "references/a.md", 4096).data:
                            return tried, "beneath.read_file(skill, 'references/a.md', 4096)"
                for wanted in ("references/a.md", "SKILL.md"):
                    tried += 1
                    with contextlib.suppress(MetierError):
                        if round_.token in str(session.read("notes", wanted, raw=True).as_dict()):
                            return tried, f"session.read('notes', {wanted!r}, raw=True)"
                if tried % 520 == 0 and round_.token in session.load("notes").text:
                    return tried, "session.load('notes')"
        return tried, ""

    tried, found = as_user(round_.identity, work)
    round_.tried(tried)
    if found:
        round_.escape(f"a secret came back while files were swapped: {found}")


def _trees(round_: Round, place: Place, skill: Path) -> None:
    def work() -> tuple[int, str]:
        tried = 0
        while round_.goes_on():
            tried += 1
            with contextlib.suppress(OSError, MetierError):
                folder = os.open(skill, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    taken = tree.take(folder)
                finally:
                    os.close(folder)
                for file in taken.files:
                    if round_.token.encode() in file.data:
                        return tried, file.path
        return tried, ""

    tried, found = as_user(round_.identity, work)
    round_.tried(tried)
    if found:
        round_.escape(f"a tree that was taken while files were swapped holds a secret at {found}")


def _runs(round_: Round, place: Place, skill: Path) -> None:
    """A script that prints everything in its skill, started again and again. That a run is refused is fine."""
    runner = probes.runner()

    def work() -> tuple[int, str]:
        tried = 0
        while round_.goes_on():
            tried += 1
            with contextlib.suppress(MetierError):
                outcome = runner.run(Job(str(skill), "scripts/look.py", limits=RunLimits(seconds=20)))
                if round_.token.encode() in outcome.stdout:
                    return tried, outcome.stdout.decode("utf-8", "replace")[:500]
        return tried, ""

    tried, found = as_user(round_.identity, work)
    round_.tried(tried)
    if found:
        round_.escape(f"a script read a secret, because its skill was swapped while it started: {found}", _LOOK)
