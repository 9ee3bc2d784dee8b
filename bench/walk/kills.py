"""Two processes work on one session, and either is killed at a random moment, many times.

What they had acknowledged must be in the record, the other process must go on, and the record must verify and replay.
"""

import os
import time
from dataclasses import dataclass

from metier.testing import write_skill

from .processes import Json, Surroundings
from .session import Member, Plan, Report, Walk
from .world import SCRIPTS


@dataclass(slots=True)
class Sent:
    """A call whose answer may never come. Its token is in the record if it was acknowledged."""

    id: int
    method: str
    params: Json
    token: str


class Kills(Walk):
    """See the module."""

    def __init__(self, plan: Plan, count: int) -> None:
        super().__init__(plan)
        self.count, self.killed = count, 0
        self.tokens: list[str] = []
        """One for each call that was acknowledged."""
        self._tokens = 0

    def run(self) -> Report:
        os.makedirs(os.path.join(self.world.project, ".git"))
        os.makedirs(self.world.home)
        write_skill(os.path.join(self.world.roots[0], "s0"), body="Work on $ARGUMENTS.\n", files=SCRIPTS)
        self.world.names = ["s0"]
        self.members = [self.start("A"), self.start("B")]
        with self.watched():
            for member in self.members:
                self.create(member)
            while self.killed < self.count:
                self._round()
                self.report.steps += 1
            for member in self.members:
                self.ask(member, "session.load", {"session_id": self.session, "name": "s0", "arguments": "at the end"})
        self.check_record(self.tokens)
        self.report.kills, self.report.acknowledged = self.killed, len(self.tokens)
        return self.report

    def _round(self) -> None:
        """Have both work, kill one, and start it again."""
        victim, other = self.chance.sample(self.members, 2)
        sent = {member.name: [self._send(member) for _ in range(self.chance.randint(1, 6))] for member in self.members}
        time.sleep(self.chance.uniform(0, 0.06))
        answers = self._kill(victim)
        for one in sent[victim.name]:
            if one.id in answers:
                self._acknowledge(one, answers[one.id])
        for one in sent[other.name]:
            self._acknowledge(one, other.rpc.receive(one.id))
        place = self.members.index(victim)
        self.members[place] = self.start(victim.name)
        while self.killed < self.count and self.chance.random() < 0.25:  # some die while they open the session
            self.members[place].rpc.send("session.create", self._beginning())
            time.sleep(self.chance.uniform(0, 0.05))
            self._kill(self.members[place])
            self.members[place] = self.start(victim.name)
        self.create(self.members[place])

    def _kill(self, member: Member) -> dict[int, Json]:
        self.killed += 1
        self.note(f"kill {member.name}")
        return member.rpc.kill()

    def _beginning(self) -> Json:
        return {"session_id": self.session, "cwd": self.world.project}

    def _send(self, member: Member) -> Sent:
        self._tokens += 1
        token = f"token-{self._tokens}-"
        kind = self.chance.choice(("load", "load", "load", "search", "search", "call", "run", "run"))
        params: Json = {"session_id": self.session}
        if kind == "load":
            params |= {"name": "s0", "arguments": token}
        elif kind == "search":
            params |= {"query": token}
        elif kind == "call":
            params |= {"tool": "skill_load", "args": {"name": "s0", "arguments": token}}
        else:
            script = self.chance.choice(("scripts/say.sh", "scripts/slow.sh", "scripts/slow.sh"))
            params |= {"name": "s0", "script": script, "arguments": [token]}
        return Sent(member.rpc.send(f"session.{kind}", params), f"session.{kind}", params, token)

    def _acknowledge(self, one: Sent, answer: Json) -> None:
        self.note(f"{one.method} {one.token} -> {'ok' if 'result' in answer else answer}")
        self.look_at(one.method, one.params, answer)
        if "result" in answer:
            self.tokens.append(one.token)

    def surroundings(self) -> tuple[str, Surroundings]:
        return self.surroundings_of("full-auto", self.sandboxed)
