"""What a person approved is what runs: files are changed between the question and the start, and while a run starts.

The script prints what it finds in its skill, file by file. That must be what was there when the person was asked, and
the record must hold the digest of exactly that. A skill of the same name in a clone is another skill. Whatever a host
answers, only an explicit yes lets something run.
"""

import asyncio
import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from metier import Request
from metier.errors import MetierError
from metier.files import tree
from metier.files.digests import digest_of

from . import probes
from .boxes import as_user
from .place import Place, beside
from .rounds import Round

SCRIPT: Final = """#!/usr/bin/env -S python3 -I -S
import hashlib, json, os
rows = []
for folder, folders, names in os.walk(os.environ["SKILL_DIR"]):
    folders[:] = [name for name in folders if name not in (".git", "__pycache__")]
    for name in names:
        path = os.path.join(folder, name)
        shown = os.path.relpath(path, os.environ["SKILL_DIR"])
        if os.path.islink(path) or name.endswith((".pyc", ".pyo")): continue
        with open(path, "rb") as file: digest = "sha256:" + hashlib.sha256(file.read()).hexdigest()
        rows.append([shown, digest, bool(os.stat(path).st_mode & 0o100)])
print("rows " + json.dumps(sorted(rows)))
with open(__file__) as file: print("last " + file.read().splitlines()[-1])
# version 0
"""
ASKED: Final[dict[str, Any]] = {"ask": [{"tool": "skill_run"}]}


def attack(round_: Round) -> None:
    number = 0
    while round_.goes_on():
        kind = (_edited, _answered, _raced, _same_name, _edited)[(round_.turn + number) % 5]
        kind(round_, f"approval-{number}")
        number += 1


def make(round_: Round, name: str, where: str = "~/.agents/skills/deploy") -> tuple[Place, Path]:
    place = Place(round_, name)
    files: dict[str, str | bytes] = {
        "scripts/x.py": SCRIPT,
        "scripts/helper.py": "VALUE = 0\n",
        "data/big.bin": b"0" * 300_000,
    }
    skill = place.skill(where, files=files)
    place.hand_over()
    return place, skill


def rows_of(skill: Path) -> list[list[object]]:
    """The files of a skill as they are on disk now."""
    folder = os.open(skill, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return sorted([list(row) for row in tree.take(folder).rows if not row[1].startswith("link:")])
    finally:
        os.close(folder)


def _edits(skill: Path) -> dict[str, Callable[[], object]]:
    """Ways to change what runs."""
    script, helper = skill / "scripts" / "x.py", skill / "scripts" / "helper.py"

    def replaced(path: Path, text: str) -> None:
        spare = path.with_name("spare")
        spare.write_text(text)
        spare.chmod(0o755)
        os.replace(spare, path)

    def moved() -> None:
        os.rename(skill, skill.with_name("gone"))
        (skill / "scripts").mkdir(parents=True)
        (skill / "SKILL.md").write_text((skill.with_name("gone") / "SKILL.md").read_text())
        replaced(script, SCRIPT + "# evil\n")

    def linked() -> None:
        other = skill.with_name("linked-elsewhere")
        other.mkdir()
        (other / "x.py").write_text(SCRIPT + "# evil\n")
        (other / "x.py").chmod(0o755)
        os.rename(skill / "scripts", skill / "old")
        os.symlink(other, skill / "scripts")

    return {
        "the script": lambda: script.write_text(SCRIPT + "# evil\n"),
        "the script, by a rename": lambda: replaced(script, SCRIPT + "# evil\n"),
        "a file beside it": lambda: helper.write_text("VALUE = 1\n"),
        "a new file beside it": lambda: (skill / "scripts" / "json.py").write_text("print('evil')\n"),
        "a file at its end": lambda: (skill / "data" / "big.bin").write_bytes(b"0" * 299_999 + b"1"),
        "a mode": lambda: helper.chmod(0o755),
        "SKILL.md": lambda: (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: evil\n---\n"),
        "the whole folder": moved,
        "a folder, for a link": linked,
        "a file, deleted": lambda: helper.unlink(),
    }


def _edited(round_: Round, name: str) -> None:
    """Change something after the question and before the answer."""
    place, skill = make(round_, name)
    what = round_.chance.choice(list(_edits(skill)))

    def work() -> list[str]:
        approved: list[list[list[object]]] = []
        digests: list[str] = []

        def approve(request: Request) -> str:
            approved.append(rows_of(skill))
            digests.append(request.digest)
            if len(approved) == 1:
                _edits(skill)[what]()
            return "once"

        session = place.discover().session(policy=ASKED, approve=approve, runner=probes.runner(), store="memory:")
        try:
            result = session.run("deploy", "scripts/x.py")
        except MetierError:
            return []  # it did not run
        return _compare(result.stdout, approved, digests, session.events)

    for wrong in as_user(round_.identity, work):
        round_.escape(f"{what} was changed between the question and the start: {wrong}", SCRIPT)
    round_.tried()


def _compare(said: str, approved: list[list[list[object]]], digests: list[str], frames: list[Any]) -> list[str]:
    """Compare what a script found with what the person was asked about, and with the record."""
    wrong: list[str] = []
    line = next((line for line in said.splitlines() if line.startswith("rows ")), "")
    ran: list[list[object]] = json.loads(line[5:]) if line else []
    if not ran:
        return [f"the script says nothing: {said[:300]}"]
    if approved and ran != approved[-1]:
        changed = [row for row in ran if row not in approved[-1]] + [row for row in approved[-1] if row not in ran]
        wrong.append(f"what ran is not what was there at the last of {len(approved)} questions: {changed[:4]}")
    started = next((frame for frame in frames if frame["type"] == "tool_started"), {})
    tree_digest = tree.tree_digest([(str(path), str(digest), bool(runs)) for path, digest, runs in ran])
    script = next(str(digest) for path, digest, _ in ran if path == "scripts/x.py")
    recorded = set(map(str, started.values()))
    if script not in recorded and tree_digest not in recorded:
        wrong.append(f"the record does not have the digest of the script that ran: {started}")
    if tree_digest not in recorded:
        wrong.append(f"the record does not have the digest of the files that ran ({tree_digest}): {started}")
    if digests and digests[-1] not in (script, tree_digest, digest_of(SCRIPT.encode())):
        wrong.append(f"the question was about another digest: {digests[-1]}")
    return wrong


def _edit(skill: Path, deadline: float) -> None:
    """Write new versions of the script and of the file beside it, until the deadline."""
    chance, version = random.Random(), 0
    while time.monotonic() < deadline:
        version += 1
        with contextlib.suppress(OSError):
            path = skill / "scripts" / chance.choice(("x.py", "helper.py"))
            spare = path.with_name(".spare")
            spare.write_text((SCRIPT if path.name == "x.py" else "") + f"# version {version}\n")
            spare.chmod(0o755)
            os.replace(spare, path)


def _raced(round_: Round, name: str) -> None:
    """Files change all the time. The record must have what ran, and the person must have seen the script that ran."""
    place, skill = make(round_, name)

    def work() -> list[str]:
        shown: list[Request] = []

        def approve(request: Request) -> str:
            shown.append(request)
            return "once"

        session = place.discover().session(policy=ASKED, approve=approve, runner=probes.runner(), store="memory:")
        try:
            result = session.run("deploy", "scripts/x.py")
        except MetierError:
            return []
        wrong = _compare(result.stdout, [], [], session.events)
        last = next((line[5:] for line in result.stdout.splitlines() if line.startswith("last ")), "nothing")
        if shown and last not in shown[-1].detail.splitlines():
            wrong.append(f"the script that ran ({last}) is not the one that was shown")
        return wrong

    with beside(round_.identity, lambda deadline: _edit(skill, deadline)):
        for _ in range(3):
            for wrong in as_user(round_.identity, work):
                round_.escape(f"while files changed: {wrong}", SCRIPT)
            round_.tried()


def _same_name(round_: Round, name: str) -> None:
    """A rule of the user for a skill of theirs must not let a skill of a clone run."""
    place, _ = make(round_, name)
    word = f"EVIL-{round_.chance.randrange(1 << 30)}"
    evil: dict[str, str | bytes] = {"scripts/x.py": f"#!/bin/sh\necho {word}\n"}
    place.skill(".agents/skills/deploy", files=evil)
    place.hand_over()
    rule: dict[str, Any] = {"allow": [{"tool": "skill_run", "skill_name": "deploy"}], "ask": [{"tool": "skill_run"}]}

    def work() -> str:
        session = place.discover().session(policy=rule, runner=probes.runner(), store="memory:")
        said = ""
        theirs = str(place.project / ".agents/skills/deploy/SKILL.md")
        for given in ({"name": "deploy"}, {"name": theirs}, {"path": theirs}):
            session.call("skill_load", given)
            said += session.call("skill_run", {**given, "script": "scripts/x.py"}).text
        return said

    if word in as_user(round_.identity, work):
        round_.escape("a rule by a bare name let the script of a clone run", f"{rule}\n{evil}")
    round_.tried()


_YES: Final = (True, "once", "always", "remember")


def _answers(round_: Round) -> list[object]:
    """What the code of a host may return that is no yes."""

    class Odd:
        def __bool__(self) -> bool:
            return True

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return hash(True)

    words = ["", "yes", "y", "ok", "true", "True", "ONCE", " once", "once ", "allow", "nobody", "\u043ence", "no\n"]
    others: list[object] = [1, 1.0, 0, -1, [], ["once"], {"answer": "once"}, ("once",), b"once", object(), Odd(), Odd]
    return round_.chance.sample([*words, *others, False, None, "no", lambda: True], 6)


def _answered(round_: Round, name: str) -> None:
    """Answers that are no yes, by plain and asynchronous functions, to plain and asynchronous callers."""
    place, skill = make(round_, name)
    (skill / "scripts" / "mark.sh").write_text("#!/bin/sh\necho it-ran\n")
    (skill / "scripts" / "mark.sh").chmod(0o755)
    place.hand_over()

    def ran(answer: object, *, asks_async: bool, calls_async: bool) -> bool:
        async def later(_: Request) -> object:
            return answer

        def now(_: Request) -> object:
            return answer

        approve: Any = later if asks_async else now
        session = place.discover().session(policy=ASKED, approve=approve, runner=probes.runner(), store="memory:")
        run = asyncio.run(session.arun("deploy", "scripts/mark.sh")) if calls_async else None
        return "it-ran" in (run or session.run("deploy", "scripts/mark.sh")).stdout

    def work() -> list[str]:
        wrong: list[str] = []
        for answer in _answers(round_):
            for way in ({"asks_async": a, "calls_async": c} for a in (False, True) for c in (False, True)):
                with contextlib.suppress(MetierError, TypeError):
                    if ran(answer, **way):
                        wrong.append(f"{answer!r} let a script run, {way}")
        with contextlib.suppress(TypeError):
            if ran(round_.chance.choice(_YES), asks_async=True, calls_async=False):
                wrong.append("a coroutine that nobody awaited let a script run")
        return wrong

    for wrong in as_user(round_.identity, work):
        round_.escape(wrong)
    round_.tried(25)
