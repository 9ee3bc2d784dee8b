"""What a walk asks for: one random operation at a time, right or wrong, as a JSON-RPC call or as a command."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metier.hosts.schema import Profile

from .processes import Json
from .world import PATHS, SCRIPTS, WORDS, World

NO_REF: Final = "skill-000000000000"
"""A ref that nobody gave."""

RECORDED: Final = ("load", "unload", "read", "search", "run", "output", "compact", "invoke", "end_turn", "call")
"""The operations that the record has."""

_WEIGHTS: Final = {
    "load": 22,
    "call": 20,
    "read": 12,
    "output": 10,
    "run": 8,
    "search": 6,
    "invoke": 6,
    "compact": 4,
    "unload": 4,
    "end_turn": 4,
    "prompt": 2,
    "system_prompt": 2,
    "may_use": 2,
    "tools": 1,
    "commands": 1,
    "state": 1,
    "events": 1,
}
_WRONG: Final[tuple[Any, ...]] = ({}, None, [1], "text", {"name": 7}, {"name": ""}, {"x": {"y": [None]}}, {"query": []})


@dataclass(slots=True)
class Asked:
    """One operation with its parameters."""

    name: str
    params: Json = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Chooser:
    """Chooses operations on the skills of a world and the refs that were seen."""

    world: World
    profile: Profile
    chance: random.Random
    refs: list[str] = field(default_factory=list[str])

    def name(self) -> str:
        return "missing" if self.chance.random() < 0.04 else self.chance.choice(self.world.names)

    def text(self) -> str:
        chance = self.chance
        if chance.random() < 0.02:
            return chance.choice(("a\0b", "half \ud800 a pair", "x" * 20_000, "long " * 60_000))
        return chance.choice(("", "", "first", "second thing", f"number {chance.randrange(100)}", "é 𝄞"))

    def script(self) -> str:
        return self.chance.choice((*SCRIPTS, "scripts/none.sh", "references/a.md"))

    def ref(self) -> str:
        if not self.refs or self.chance.random() < 0.05:
            return NO_REF
        return self.chance.choice(self.refs)

    def operation(self) -> Asked:
        return self.of(self.chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0])

    def of(self, kind: str) -> Asked:
        chance = self.chance
        by: Json = {"by": chance.choice(("user", "model"))} if chance.random() < 0.5 else {}
        params: Json = {}
        if kind == "load":
            params = {"name": self.name(), **by}
            if chance.random() < 0.5:
                params["arguments"] = self.text()
            if chance.random() < 0.15:
                params["parent"] = self.name()
        elif kind == "read":
            params = {"name": self.name(), "path": chance.choice(PATHS), **by}
            if chance.random() < 0.1:
                params = {"name": f"skill://{params['name']}/{params['path']}", **by}
            if chance.random() < 0.1:
                params["raw"] = True
        elif kind == "search":
            params = {"query": chance.choice((*WORDS, self.name(), "nothing like it", "")), **by}
            if chance.random() < 0.3:
                params["limit"] = chance.randint(1, 4)
        elif kind == "run":
            params = {"name": self.name(), "script": self.script(), **by}
            if chance.random() < 0.5:
                params["arguments"] = [self.text() for _ in range(chance.randint(0, 2))]
            if chance.random() < 0.2:
                params["stdin"] = self.text()
        elif kind == "output":
            params = {"ref": self.ref()}
            if chance.random() < 0.3:
                params |= chance.choice(({"start": 2}, {"start": 1, "end": 2}, {"grep": "version"}))
        elif kind == "unload":
            params = {"name": self.name(), **by}
        elif kind == "compact":
            params = {"budget": chance.choice((0, 100, 3_000, 100_000))}
        elif kind == "invoke":
            form = chance.choice((*self.profile.invocation.forms, "/name", "$name"))
            params = {"message": chance.choice(("please use ", "")) + form.replace("name", self.name()) + " now"}
        elif kind in ("prompt", "system_prompt"):
            params = {"message": chance.choice(WORDS)} if chance.random() < 0.5 else {}
            if kind == "system_prompt":
                params["base"] = "You are an agent."
        elif kind == "may_use":
            params = {"tool": chance.choice(("Read", "Bash", "Write")), "command": chance.choice(("", "git status"))}
        elif kind == "call":
            params = self._call()
        return Asked(kind, params)

    def _call(self) -> Json:
        chance = self.chance
        tools = list(self.profile.tools.by_role().items())
        if not tools or chance.random() < 0.05:
            return {"tool": chance.choice(("nothing", "", "skill_load")), "args": {"name": self.name()}}
        role, tool = chance.choice(tools)
        if chance.random() < 0.15:
            return {"tool": tool, "args": chance.choice(_WRONG)}
        args = {key: value for key, value in self.of(role).params.items() if key not in ("by", "raw", "parent")}
        if "arguments" in args and role == "load" and chance.random() < 0.5:
            args["args"] = args.pop("arguments")
        return {"tool": tool, "args": args}


def command_of(asked: Asked, chance: random.Random) -> Sequence[str] | None:
    """The same operation on the command line. `None` where a command cannot say it, such as a NUL."""
    import json

    params = asked.params
    flags = [f"--by={params['by']}"] if "by" in params else []
    match asked.name:
        case "load":
            words = ["load", *flags, f"--args={params.get('arguments', '')}"]
            words += [f"--parent={params['parent']}"] if "parent" in params else []
            words += ["--", params["name"]]
        case "read":
            words = ["read", *flags, "--", params["name"], *([params["path"]] if "path" in params else [])]
        case "search":
            words = ["search", *flags, "--", params["query"]]
        case "run":
            yes = ["--yes"] if chance.random() < 0.6 else []
            words = ["run", *flags, *yes, params["name"], params["script"], "--", *params.get("arguments", ())]
        case "output":
            words = ["session", "output", "--", params["ref"]]
        case "unload":
            words = ["session", "unload", *flags, "--", params["name"]]
        case "compact":
            words = ["session", "compact", f"--budget={params['budget']}"]
        case "invoke":
            words = ["session", "invoke", "--", params["message"]]
        case "end_turn":
            words = ["session", "end-turn"]
        case "call":
            words = ["session", "call", "--", params["tool"], json.dumps(params["args"])]
        case "prompt":
            words = ["prompt"]
        case "may_use":
            words = ["session", "may-use", f"--command={params['command']}", "--", params["tool"]]
        case _:
            words = ["session", "tools"]
    try:
        whole = "".join(words).encode()
    except UnicodeEncodeError:
        return None
    return None if b"\0" in whole else words
