"""One session of a walk: two processes and some commands work on it by turns and at once; then it is checked."""

import json
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from metier.files.digests import digest_of, digits
from metier.record.state import ref_of

from . import checks
from .processes import Child, Done, Gone, Json, Rpc, Surroundings, command, in_child, read_all
from .steps import NO_REF, RECORDED, Asked, Chooser, command_of
from .world import World, profile_of

POLICIES: Final = {
    "default": "",
    "full-auto": 'profile = "full-auto"\n',
    "read-only": 'profile = "read-only"\n',
    "runs": '[[permissions.allow]]\ntool = "skill_run"\n',
    "denies": '[[permissions.deny]]\ntool = "skill_load"\nskill_name = "s1"\n',
    "asks": '[[permissions.ask]]\ntool = "skill_load"\nskill_name = "s2"\n',
}
_CHOSEN: Final = ("default", "default", "full-auto", "full-auto", "runs", "runs", "read-only", "denies", "asks")

_KINDS: Final = {
    "one": 58,
    "both": 14,
    "edit": 13,
    "command": 4,
    "command-and-call": 1,
    "restart": 5,
    "mode": 1,
    "rescan": 3,
    "drop": 5,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What one session of a walk is made of."""

    number: int
    seed: int
    steps: int
    profile: str
    folder: str
    drops: bool = True
    sandbox: float = 0.25
    """The share of sessions whose processes have a sandbox; where they have none, scripts are refused."""


@dataclass(slots=True)
class Report:
    """What one session gave: the things that are wrong, each with its kind, and what was counted."""

    number: int
    profile: str
    steps: int = 0
    frames: int = 0
    not_compared: int = 0
    kills: int = 0
    acknowledged: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def as_dict(self) -> Json:
        return {key: getattr(self, key) for key in self.__slots__}


@dataclass(slots=True)
class Member:
    """One of the processes that stay, with the options it was started with."""

    name: str
    rpc: Rpc
    options: str


class Walk:
    """See the module."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(f"{plan.seed}-{plan.number}")
        self.answers = random.Random(f"answers-{plan.seed}-{plan.number}")
        self.report = Report(plan.number, plan.profile)
        profile = profile_of(plan.profile)
        self.world = World(plan.folder, profile, self.chance)
        self.chooser = Chooser(self.world, profile, self.chance)
        self.session = f"walk-{plan.number}"
        self.sandboxed = self.chance.random() < plan.sandbox
        self.drops_always = plan.drops and self.chance.random() < 0.1
        self.snapshot_events = self.chance.choice((1, 5, 20, 200))
        self.texts: dict[str, str] = {}
        """What was given under each ref."""
        self.acknowledged: Counter[str] = Counter()
        self.members: list[Member] = []
        self.log: list[str] = []

    # --- processes ---

    @property
    def store(self) -> str:
        return os.path.join(self.plan.folder, "store.db")

    @property
    def errors(self) -> str:
        return os.path.join(self.plan.folder, "stderr")

    def surroundings(self) -> tuple[str, Surroundings]:
        """A policy, and a sandbox or none: the processes of a session need not agree."""
        return self.surroundings_of(self.chance.choice(_CHOSEN), self.sandboxed and self.chance.random() < 0.8)

    def surroundings_of(self, policy: str, sandbox: bool) -> tuple[str, Surroundings]:
        folder = os.path.join(self.plan.folder, f"config-{policy}")
        os.makedirs(os.path.join(folder, "metier"), exist_ok=True)
        with open(os.path.join(folder, "metier", "config.toml"), "w", encoding="utf-8") as stream:
            text = POLICIES[policy]
            stream.write(text if text.startswith("[[") or not text else f"[permissions]\n{text}")
        env = {"HOME": self.world.home, "XDG_CONFIG_HOME": folder, "METIER_ENABLED": "1", "NO_COLOR": "1"}
        if not sandbox:
            env["PATH"] = os.path.join(self.plan.folder, "no-programs")
        described = f"{policy}{', sandbox' if sandbox else ''}"
        return described, Surroundings(self.world.project, env, self.errors, self.snapshot_events)

    def answer_question(self, message: Json) -> Json:
        """Say yes or no to what a process asks."""
        answer = self.answers.choice(("once", "once", "always", "no"))
        self.note(f"asked {_short(message.get('params'))} -> {answer}")
        return {"answer": answer}

    def options(self) -> list[str]:
        return ["--profile", self.plan.profile, "--store", self.store]

    def start(self, name: str) -> Member:
        described, surroundings = self.surroundings()
        member = Member(name, Rpc.start(self.options(), surroundings, self.answer_question), described)
        self.note(f"{name} starts: {described}")
        return member

    def create(self, member: Member, first: bool = False) -> None:
        """Open the session in a process. The first one decides how the session begins; any may be asked questions."""
        params: Json = {"session_id": self.session, "cwd": self.world.project}
        more: Json = {}
        if first and self.chance.random() < 0.2:
            more = self.chance.choice(
                ({"preload": ["s0"]}, {"only": ["s0", "s1", "s2"]}, {"has_read_tool": False}, {"tools": False})
            )
        if self.chance.random() < 0.25:
            more = {**more, "asks": True}
        if "error" in self.ask(member, "session.create", params | more) and more:
            self.ask(member, "session.create", params)

    def restart(self, member: Member) -> None:
        self.finish(member)
        self.members[self.members.index(member)] = new = self.start(member.name)
        if self.chance.random() < 0.7:  # else it is asked for a session that it did not open
            self.create(new)

    def finish(self, member: Member) -> None:
        code = member.rpc.end()
        if code:
            self.wrong("process-died", f"{member.name} ended with {code}: {self.said_last()}")

    # --- what is noted ---

    def note(self, text: str) -> None:
        self.log.append(text)

    def wrong(self, kind: str, detail: str) -> None:
        self.note(f"WRONG {kind}: {detail}")
        self.report.wrong.append((kind, detail))

    # --- calls ---

    def ask(self, member: Member, method: str, params: Json) -> Json:
        return self.answer(member, method, params, member.rpc.send(method, params))

    def answer(self, member: Member, method: str, params: Json, id_: int) -> Json:
        """Wait for an answer, and look at it."""
        answer = member.rpc.receive(id_)
        self.note(f"{member.name} {method} {_short(params)} -> {_short(answer)}")
        self.look_at(method, params, answer)
        return answer

    def look_at(self, method: str, params: Json, answer: Json) -> None:
        """Note an answer that must not be, and keep what it acknowledges."""
        error = answer.get("error")
        if error is not None:
            self._judge(f"{method} {_short(params)}", error)
            return
        operation = method.removeprefix("session.")
        self._learn(operation, params, answer["result"])
        if operation in RECORDED:
            self.acknowledged[operation] += 1

    def _judge(self, what: str, error: Json) -> None:
        message = str(error.get("message"))
        data = error.get("data")
        kind = str(data.get("type", "")) if isinstance(data, dict) else ""
        if error.get("code") == -32603:
            self.wrong("internal-error", f"{what}: {message}")
        elif kind in ("StoreError", "StateConflict"):
            self.wrong("store-error", f"{what}: {message}")
        elif "there is no session" in message:
            self.wrong("session-lost", f"{what}: {message}")

    def _learn(self, operation: str, params: Json, result: Any) -> None:
        """Remember refs with their texts, and compare texts that come again."""
        for found in _with_refs(result) if operation in ("load", "call", "invoke") else ():
            ref, text = found["ref"], found.get("text")
            if ref not in self.chooser.refs:
                self.chooser.refs.append(ref)
            if isinstance(text, str) and ref == f"skill-{digits(digest_of(text.encode()))[:12]}":
                self._same(ref, text)  # else it is only a reminder that the skill is loaded
        if operation == "output" and set(params) <= {"ref", "session_id"}:
            self._same(params["ref"], result["text"])

    def _same(self, ref: str, text: str) -> None:
        known = self.texts.setdefault(ref, text)
        if text != known:
            self.wrong("ref-changed", f"{ref} was {_short(known)} and is {_short(text)}")

    def params(self, asked: Asked) -> Json:
        return asked.params | {"session_id": self.session}

    def send(self, member: Member, asked: Asked) -> int:
        return member.rpc.send(f"session.{asked.name}", self.params(asked))

    # --- commands ---

    def begin_command(self, words: list[str]) -> tuple[list[str], Child]:
        described, surroundings = self.surroundings()
        self.note(f"command ({described}): {' '.join(words)[:200]}")
        return words, command(words, surroundings)

    def session_command(self) -> tuple[list[str], Child] | None:
        """Start a command on the session, unless what was chosen cannot be said in one."""
        asked = self.chooser.operation()
        words = command_of(asked, self.chance)
        if words is None:
            return None
        shared = [*self.options(), "--session", self.session, "--cwd", self.world.project, "--json"]
        return self.begin_command([*shared, *words])

    def end_command(self, words: list[str], child: Child) -> None:
        done = read_all(child)
        self.note(f"  -> {done.code} {done.out[:200]!r}")
        if done.code < 0 or done.code > 125:
            self.wrong("process-died", f"{' '.join(words)[:200]} ended with {done.code}")
        for value in _json_of(done):
            for found in _with_refs(value):
                if found["ref"] not in self.chooser.refs:
                    self.chooser.refs.append(found["ref"])

    # --- steps ---

    def run(self) -> Report:
        """Walk, check, and clean up."""
        self.world.build()
        with self.watched():
            self.members = [self.start("A"), self.start("B")]
            for number, member in enumerate(self.members):
                self.create(member, first=number == 0)
            for _ in range(self.plan.steps):
                if self.drops_always:
                    self.drop()
                self.step()
                self.report.steps += 1
        self.check_record()
        return self.report

    @contextmanager
    def watched(self) -> Generator[None, None, None]:
        """Work with the processes; at the end they are compared and ended, also where one died."""
        try:
            yield
            self.check_refs()
            self.check_state()
            for member in self.members:
                self.finish(member)
        except Gone as error:
            self.wrong("process-died", f"{error}: {self.said_last()}")
        finally:
            for member in self.members:
                member.rpc.child.kill()
        self.check_errors()

    def step(self) -> None:
        chance = self.chance
        kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
        member = chance.choice(self.members)
        if kind == "one":
            asked = self.chooser.operation()
            self.answer(member, f"session.{asked.name}", self.params(asked), self.send(member, asked))
        elif kind == "both":
            self._both()
        elif kind == "edit":
            self.note(f"edit: {self.world.edit()}")
        elif kind in ("command", "command-and-call"):
            started = self.session_command()
            if kind == "command-and-call":
                asked = self.chooser.operation()
                self.answer(member, f"session.{asked.name}", self.params(asked), self.send(member, asked))
            if started is not None:
                self.end_command(*started)
        elif kind == "restart":
            self.restart(member)
        elif kind == "mode":
            mode = chance.choice(("pinned", "auto", "off", "manual", "name-only"))
            words = ["mode", *self.options(), *(["--project"] if chance.random() < 0.7 else [])]
            self.end_command(*self.begin_command([*words, "--", chance.choice(self.world.names), mode]))
        elif kind == "rescan":
            self.ask(member, "skills.list", {"cwd": self.world.project, "force_reload": True})
        elif self.plan.drops:
            self.drop()

    def _both(self) -> None:
        """Two operations at once, one of them often a script."""
        first = self.chooser.of("run") if self.chance.random() < 0.5 else self.chooser.operation()
        asked = [first, self.chooser.operation()]
        self.note("at once:")
        sent = [self.send(member, one) for member, one in zip(self.members, asked, strict=True)]
        for member, one, id_ in zip(self.members, asked, sent, strict=True):
            self.answer(member, f"session.{one.name}", self.params(one), id_)

    def drop(self) -> None:
        """Take the stored snapshot away."""
        self.note("drop")
        with sqlite3.connect(self.store, timeout=30) as connection:
            connection.execute("DELETE FROM states WHERE key IN ('session', 'snapshot')")
        connection.close()

    # --- at the end ---

    def check_refs(self) -> None:
        """Every ref that was given answers, in either process, with the same text, unless its skill was unloaded."""
        gone = self._unloaded_refs()
        for number, ref in enumerate(self.chooser.refs):
            member = self.members[number % len(self.members)]
            answer = self.ask(member, "session.output", {"session_id": self.session, "ref": ref})
            if "error" in answer and ref not in gone:
                self.wrong("ref-lost", f"{ref}: {answer['error'].get('message')}")
            elif "error" not in answer and ref in gone:
                self.wrong("ref-of-unloaded", ref)

    def _unloaded_refs(self) -> set[str]:
        """The refs of texts that only skills had which were unloaded since, by the record."""
        answer = self.ask(self.members[0], "session.events", {"session_id": self.session})
        paths = dict[str, set[str]]()
        for frame in answer["result"]:
            if frame["type"] == "skill_loaded" and not frame.get("already_loaded"):
                paths.setdefault(ref_of(frame["output"]), set()).add(frame["path"])
            elif frame["type"] == "skill_unloaded":
                for bearers in paths.values():
                    bearers.discard(frame.get("path", ""))
        return {ref for ref, bearers in paths.items() if not bearers}

    def check_state(self) -> None:
        """All processes know the same, and so do new ones, one that finds a snapshot and one that finds none."""
        for name in ("C", "D"):
            if name == "D" and self.plan.drops:
                self.drop()
            fresh = self.start(name)
            self.members.append(fresh)
            self.create(fresh)
        params: Json = {"session_id": self.session}
        asked: list[Json] = [self.ask(one, "session.state", params).get("result") or {} for one in self.members]
        for member, state in zip(self.members[1:], asked[1:], strict=True):
            if state != asked[0]:
                keys = sorted(key for key in {*state, *asked[0]} if state.get(key) != asked[0].get(key))
                detail = f"A and {member.name} differ in {', '.join(keys)}"
                shown = {key: (asked[0].get(key), state.get(key)) for key in keys}
                self.wrong(f"state-differs in {', '.join(keys)}", f"{detail}: {_short(shown, 800)}")

    def said(self) -> str:
        """The standard error of all processes."""
        if not os.path.exists(self.errors):
            return ""
        with open(self.errors, encoding="utf-8", errors="replace") as stream:
            return stream.read()

    def said_last(self) -> str:
        return " | ".join(self.said().strip().splitlines()[-3:])

    def check_errors(self) -> None:
        """No traceback on standard error."""
        text = self.said()
        for sign in ("Traceback", "this is a bug"):
            place = text.find(sign)
            if place >= 0:
                last = text[place:].strip().splitlines()
                self.wrong("traceback", f"{last[0] if sign != 'Traceback' else last[-1]}")

    def check_record(self, tokens: Sequence[str] = ()) -> None:
        """The record verifies and replays, and has everything that was acknowledged: operations, and these texts."""
        surroundings = Surroundings(self.plan.folder, {"HOME": self.plan.folder}, f"{self.errors}-check")
        self.world.hide()
        try:
            found = in_child(lambda: checks.check(self.store, self.session, self.plan.folder, tokens), surroundings)
        except Gone as error:
            self.wrong("check-failed", str(error)[-300:])
            return
        self.report.frames, self.report.not_compared = found["frames"], found["not_compared"]
        for kind, detail in found["wrong"]:
            self.wrong(kind, detail)
        for operation, count in self.acknowledged.items():
            if found["returned"].get(operation, 0) < count:
                self.wrong("lost-operation", f"{count} times {operation}, of which {found['returned'].get(operation)}")
        if self.plan.number % 20 == 0 and not self.report.wrong:
            done = read_all(
                command(["replay", "--verify", os.path.join(self.plan.folder, "record.jsonl")], surroundings)
            )
            if done.code:
                self.wrong("command-replay", done.out)


def _with_refs(value: Any) -> Iterator[Json]:
    """All objects with a ref of a skill, at any depth."""
    if isinstance(value, dict):
        ref = value.get("ref")
        if isinstance(ref, str) and ref.startswith("skill-") and ref != NO_REF:
            yield value
        for item in value.values():
            yield from _with_refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _with_refs(item)


def _json_of(done: Done) -> Iterator[Any]:
    try:
        yield json.loads(done.out)
    except ValueError:
        return


def _short(value: object, length: int = 300) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= length else f"{text[: length - 60]}...{text[-50:]}"
