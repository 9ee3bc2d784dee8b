"""Sessions to record: a catalog with something of everything, and a driver that asks for hundreds of things."""

import itertools
import random
from pathlib import Path
from typing import Any

from metier import MetierError, Skills
from metier.files.digests import digest_of
from metier.running.sandbox import Job, Outcome, WrittenFile
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from metier.testing import write_skill
from worlds import World

KINDS = ("load", "load", "read", "unload", *["call"] * 4, "search", "invoke", "compact", "end", "output", "run", "edit")
PROFILES = ("standard", "codelia", "omp", "mycodeagent", "rip", "remcochat")


class Counter:
    """Ids `event-0`, `event-1`, ... and a clock that ticks once per look, for a deterministic run."""

    def __init__(self) -> None:
        self._ids, self._ticks = itertools.count(), itertools.count()

    def ids(self) -> str:
        return f"event-{next(self._ids)}"

    def clock(self) -> int:
        return next(self._ticks)


def write_catalog(root: Path, count: int = 12) -> None:
    """Skills with files, hints, proposals, arguments and scripts, long ones and one that is no valid skill."""
    for number in range(count):
        write_skill(
            root / f"s{number}",
            body=f"# Body {number}\n$ARGUMENTS\n" + "x é 𝄞\n" * (number * 40),
            files={
                "references/a.md": f"reference {number}",
                "bin.dat": b"\0\1",
                "scripts/x.sh": f"#!/bin/sh\necho {number}\n",
            },
            model="large" if number % 3 == 0 else None,
            allowed_tools="Read Bash(git:*) skill_run" if number % 2 else None,
        )
    write_skill(root / "broken", text="---\nname: [\n---\n")


def discover(world: World, profile: str) -> Skills:
    root = world.project / "catalog"
    if not root.exists():
        write_catalog(root)
    return world.discover(profile, roots=[root], settings={"enabled": True})


def fake_runner(seed: int = 1) -> FakeRunner:
    """Prints, fails, writes files and hits limits, by turns."""
    chance = random.Random(seed)

    def answer(job: Job) -> Outcome:
        data = f"{job.script} {list(job.argv)}".encode()
        files = (WrittenFile("out.txt", len(data), digest_of(data), data),) if chance.random() < 0.5 else ()
        ended: Any = chance.choice(["exit", "exit", "timeout", "memory-limit"])
        return Outcome(
            chance.choice([0, 0, 3]), ended, 7, b"out \xff\xc3\xa9\n" + data, chance.choice([b"", b"err\n"]),
            files=files, protections=("namespaces",), notes=("a note",),
        )  # fmt: skip

    return FakeRunner(default=answer)


def answers(seed: int = 2) -> Any:
    chance = random.Random(seed)
    return lambda _: chance.choice([True, False, "once", "always", "no"])


def drive(session: Session, steps: int, seed: int = 0, edit: Path | None = None) -> int:
    """Ask for `steps` things of every kind, right and wrong ones; files below `edit` change now and then."""
    chance = random.Random(seed)
    tools = session.profile.tools
    names = [tools.load, tools.read, tools.search, tools.output, tools.run, tools.unload, "nothing", ""]
    failed = 0
    for step in range(steps):
        name = f"s{chance.randrange(14)}"
        paths = ["references/a.md", "../x", "/etc/passwd", "none", "bin.dat", "SKILL.md", "references", "%2e%2e/x"]
        arguments: list[Any] = [
            {"name": name}, {"name": name, "arguments": "a b", "args": "a b"}, {"query": "body"}, {}, None, [1],
            {"name": name, "path": chance.choice(paths)}, {"query": name, "limit": 2}, {"name": "broken"},
            {"path": f"skill://{name}/references/a.md"}, {"name": name, "parent": "s1"}, {"name": float("nan")},
            {"name": name, "script": "scripts/x.sh", "arguments": ["1", "é"]}, {"name": "\ud800"},
            {"ref": "skill-000000000000"},
        ]  # fmt: skip
        kind = chance.choice(KINDS)
        try:
            if kind == "load":
                session.load(name, arguments=chance.choice(["", "x y"]))
            elif kind == "unload":
                session.unload(name)
            elif kind == "read":
                session.read(name, chance.choice(paths))
            elif kind == "call":
                session.call(chance.choice(names), chance.choice(arguments))
            elif kind == "search":
                session.search(chance.choice(["one thing", name, ""]), limit=3)
            elif kind == "invoke":
                session.invoke(
                    chance.choice([f"/{name} a b", f"/skill:{name} q", f"use ${name}", f"/unload {name}", "hello"])
                )
            elif kind == "compact":
                session.compact(chance.choice([100, 3000, 40_000]))
            elif kind == "end":
                for budget in (400, 1_200):  # one of them forces a choice, whatever the format
                    session.prompt(message=f"{name} and its body", budget=budget)
                session.end_turn()
            elif kind == "output":
                loaded = session.state()["loaded"]
                session.output(loaded[-1]["ref"] if loaded else "none", start=2)
            elif kind == "run":
                session.run(name, chance.choice(["scripts/x.sh", "scripts/none.sh", "bin.dat"]), ["1"])
            elif edit is not None and step % 3 == 0:
                text = "---\nno yaml: [\n---\n" if chance.random() < 0.2 else None
                write_skill(edit / name, body=f"# New body {step}\n$ARGUMENTS\n", text=text)
                session.skills.refresh()
        except MetierError:
            failed += 1
    return failed
