"""Messages that no client should send, the same ones on each run: for JSON-RPC, HTTP, MCP and a model's tool calls.

Each is a well-formed call in which one value or more is not what it should be: NULs, controls, halves of surrogate
pairs, texts of five megabytes, numbers that are none, deep nesting, other types, and names that are paths.
"""

import json
import random
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from metier.session.operation import parameters
from metier.session.operations import OPERATIONS, Call, tool_fields
from metier.surfaces.rpc import BeginOptions
from metier.values.skill import Role
from metier.values.value import Schema, mismatch, schema_of

JsonObject = dict[str, Any]

BEGIN: Final[Mapping[str, Schema]] = schema_of(BeginOptions)["properties"]
FLAG: Final = schema_of(bool)
TEXT: Final = schema_of(str)

TEXTS: Final = (
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "a\udfffb",
    "\udce9",
    "\x01\x07\x1b[2J\x7f\x9b",
    "\u2028\u2029",
    "\ufeff",
    "\u202e\u2066",
    "\U000e0041",
    "\uffff\U0010ffff",
    "../../etc/passwd",
    "/etc/passwd",
    "~root/.ssh",
    "C:\\x",
    "a/" * 3_000,
    "x" * 10_000,
    "é" * 70_000,
    "skill://notes/%00",
    "skill://notes/%ff",
    "skill://notes/\ud800",
    "skill://\0/SKILL.md",
    "$(reboot)",
    "'; drop table events; --",
    "{}",
    "notes\n",
    "%s%n",
)
"""Texts for any place where a text is expected."""

GOOD: Final[Mapping[str, tuple[object, ...]]] = {
    "name": ("notes", "notes", "notes", "skill://notes/SKILL.md"),
    "path": ("references/a.md", "SKILL.md"),
    "script": ("scripts/say.sh",),
    "arguments": ("some words", ["one"]),
    "by": ("user", "model"),
    "tool": ("skill_load", "Bash"),
    "ref": ("skill-000000000000",),
    "query": ("notes",),
    "message": ("/notes", "hello"),
}
"""Values with which a message gets far enough for the others to matter."""

TOOLS: Final = ("skill_load", "skill_read", "skill_search", "skill_run", "skill_output")
"""The tools of the profile `standard`."""

_RUN: Final[JsonObject] = {"name": "notes", "script": "scripts/say.sh"}

KNOWN: Final[tuple[tuple[str, JsonObject], ...]] = (
    ("run", {**_RUN, "arguments": ["a\0b"]}),
    ("run", {**_RUN, "arguments": ["\ud800"]}),
    ("run", {**_RUN, "stdin": "\udce9"}),
    ("load", {"name": "notes", "arguments": "\ud800"}),
    ("load", {"name": "notes", "arguments": "<long>"}),
    ("load", {"name": "notes", "parent": "\ud800"}),
    ("invoke", {"message": "/notes \ud800"}),
    ("search", {"query": "\ud800"}),
)
"""Mistakes that once ended a process, or left a step that its record could not hold."""

_WORDS: Final[Mapping[str, str]] = {
    "<infinity>": "1e999",
    "<digits>": "9" * 5_000,
    "<depth>": "[" * 20_000 + "]" * 20_000,
    "<nest>": '{"a":' * 40 + "1" + "}" * 40,
    "<long>": '"' + "5" * 5_000_000 + '"',
}
"""What JSON can say and Python's encoder cannot, or not as cheaply."""


class Nasty:
    """A source of messages. The same seed gives the same messages."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    # --- values ---

    def text(self) -> str:
        return self.chance.choice(TEXTS)

    def value(self, depth: int = 0) -> object:
        """Any JSON value, and some that JSON does not have."""
        kind = self.chance.randrange(9 if depth < 3 else 7)
        if kind < 4:
            return self.text()
        if kind < 6:
            return self.chance.choice([None, True, -1, 0, 2**63, 2**2000, 1e308, 0.5, float("nan"), [], {}])
        if kind == 6:
            rare = self.chance.random() < 0.05
            return self.chance.choice(["<infinity>", "<digits>", "<depth>", "<nest>"] if not rare else ["<long>"])
        if kind == 7:
            return [self.value(depth + 1) for _ in range(self.chance.randrange(4))]
        return {self.text(): self.value(depth + 1) for _ in range(self.chance.randrange(4))}

    def fitting(self, schema: Schema) -> object:
        """A value of the right type that is bad all the same."""
        kind = schema.get("type")
        if kind == "array":
            return [self.text() for _ in range(self.chance.randrange(1, 4))]
        if kind == "object":
            return {self.text(): self.value(2)}
        if kind == "integer":
            return self.chance.choice([-1, 0, 1, 2**31, 2**63, 2**64, 2**2000, 1.0, 1e300])
        if kind == "boolean":
            return self.chance.choice([True, False])
        return "<long>" if self.chance.random() < 0.01 else self.text()

    def fields(self, known: Mapping[str, Schema]) -> JsonObject:
        """A value for most fields: a good one, a bad one of the right type, or any. At least one is not good."""
        given: JsonObject = {}
        bad = self.chance.choice(list(known)) if known else ""
        for name, schema in known.items():
            luck = self.chance.random()
            good = [value for value in GOOD.get(name, ()) if not mismatch(value, schema, name)]
            if name == bad or luck < 0.1:
                given[name] = self.fitting(schema) if self.chance.random() < 0.7 else self.value()
            elif good and luck < 0.9:
                given[name] = self.chance.choice(good)
        if self.chance.random() < 0.03:
            given[self.text()] = self.value()
        return given

    def operation(self) -> tuple[str, JsonObject]:
        """The name of an operation, and its fields."""
        if self.chance.random() < 0.1:
            name, given = self.chance.choice(KNOWN)
            return name, dict(given)
        kind = OPERATIONS[self.chance.choice([*OPERATIONS, "run", "run", "run", "load"])]
        if kind is Call:
            tool, arguments = self.call()
            return "call", {"tool": tool, "args": arguments}
        return kind.operation, self.fields(parameters(kind))

    def call(self) -> tuple[object, object]:
        """A tool and what a model sends it."""
        if self.chance.random() < 0.1:
            name, given = self.chance.choice([one for one in KNOWN if f"skill_{one[0]}" in TOOLS])
            return f"skill_{name}", dict(given)
        if self.chance.random() < 0.1:
            return self.value(), self.value()
        tool = self.chance.choice(TOOLS)
        if self.chance.random() < 0.1:
            return tool, self.value()
        return tool, self.fields(tool_fields(cast("Role", tool.removeprefix("skill_"))))


def as_python(value: object) -> object:
    """The same value as Python has it, for a caller in the same process."""
    if isinstance(value, dict):
        return {key: as_python(item) for key, item in cast("JsonObject", value).items()}
    if isinstance(value, list):
        return [as_python(item) for item in cast("list[object]", value)]
    return _OBJECTS[value]() if isinstance(value, str) and value in _OBJECTS else value


def _nested() -> object:
    value: object = 1
    for _ in range(20_000):
        value = [value]
    return value


def _circular() -> object:
    value: JsonObject = {}
    value["a"] = [value]
    return value


_OBJECTS: Final[Mapping[str, Callable[[], object]]] = {
    "<infinity>": lambda: float("inf"),
    "<digits>": lambda: 10**5_000,
    "<depth>": _nested,
    "<nest>": _circular,
    "<long>": lambda: "5" * 5_000_000,
    "%s%n": lambda: b"bytes",
    "C:\\x": lambda: {"a", "set"},
    "$(reboot)": object,
}


def encode(message: object) -> bytes:
    """A message as JSON. Halves of surrogate pairs are escapes, as a client's encoder writes them."""
    text = json.dumps(message)
    for word, value in _WORDS.items():
        text = text.replace(f'"{word}"', value)
    return text.encode()


# --- messages of each surface ---


def rpc_message(nasty: Nasty, number: int, session: str) -> bytes:
    """A request over JSON-RPC with this number as its id. Now and then it is one that no parser takes."""
    chance = nasty.chance
    luck = chance.random()
    if luck < 0.03:
        return chance.choice([b"{", b"\xff\xfe", b'"\\ud800"', b"[" * 50_000, b"null", b"[]", b"[1,2]", b"\0", b"{}"])
    if luck < 0.15:
        method, params = "session.create", nasty.fields({**BEGIN, "session_id": TEXT})
    elif luck < 0.25:
        method = chance.choice(["skills.list", "context.inspect"])
        params = nasty.fields({"cwd": TEXT, "force_reload" if method == "skills.list" else "include_skills": FLAG})
    elif luck < 0.3:
        method, params = chance.choice(["session.state", "session.events"]), nasty.fields({"session_id": TEXT})
    elif luck < 0.35:
        method, params = nasty.text(), nasty.fields({"name": TEXT})
    else:
        name, params = nasty.operation()
        method = f"session.{name}"
        if chance.random() < 0.8:
            params["session_id"] = session if chance.random() < 0.9 else nasty.value()
    message: JsonObject = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    if chance.random() < 0.03:
        message["params"] = nasty.value()
    return encode(message)


def mcp_message(nasty: Nasty, number: int) -> bytes:
    """A request over MCP with this number as its id."""
    chance = nasty.chance
    luck = chance.random()
    params: JsonObject
    if luck < 0.4:
        tool, arguments = nasty.call()
        method, params = "tools/call", {"name": tool, "arguments": arguments}
    elif luck < 0.7:
        name, params = nasty.operation()
        method = f"metier/{name}"
    elif luck < 0.95:
        method, names = chance.choice(
            [
                ("resources/read", ["uri"]),
                ("skills/get", ["uri"]),
                ("resources/directory/read", ["uri", "cursor"]),
                ("prompts/get", ["name", "arguments"]),
                ("prompts/get", ["arguments"]),
                ("completion/complete", ["ref", "argument", "context"]),
                ("tools/list", ["cursor"]),
                ("skills/list", ["cursor"]),
                ("ping", ["_meta"]),
            ]
        )
        params = nasty.fields(dict.fromkeys(names, TEXT))
        if method == "prompts/get" and names == ["arguments"]:
            params = {"name": "notes", "arguments": {"arguments": params.get("arguments")}}
        if method == "completion/complete" and chance.random() < 0.7:
            params = {
                "ref": {"type": "ref/prompt", "name": nasty.text()},
                "argument": nasty.fields({"name": TEXT, "value": TEXT}),
            }
    else:
        method, params = nasty.text(), nasty.fields({"name": TEXT})
    return encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def http_request(nasty: Nasty, session: str, chat: str) -> tuple[str, str, bytes]:
    """A request over HTTP: its method, its path with the query, and its body."""
    chance = nasty.chance
    luck = chance.random()
    if luck < 0.1:
        return "POST", "/api/sessions", encode(nasty.fields(BEGIN))
    if luck < 0.2:
        wanted = {"q": nasty.text(), "limit": str(nasty.value(3)), "scope": nasty.text()}
        some = {key: value[:3_000] for key, value in wanted.items() if chance.random() < 0.7}
        return "GET", f"/api/search?{urllib.parse.urlencode(some, errors='surrogatepass')}", b""
    if luck < 0.3:
        hostile = _quoted(nasty.text()[:3_000])
        method, path = chance.choice(
            [
                ("GET", f"/api/skills/{hostile}"),
                ("GET", f"/api/sessions/{hostile}/events"),
                ("GET", f"/api/sessions/{session}/events?after={hostile}&limit={hostile}"),
                ("POST", f"/api/sessions/{hostile}/load"),
                ("POST", f"/api/sessions/{hostile}/state"),
                ("GET", f"/api/chats/{hostile}"),
                ("POST", f"/api/chats/{hostile}/messages"),
                ("POST", f"/api/chats/{chat}/answers/{hostile}"),
                ("GET", f"/api/commands?q={hostile}"),
                ("GET", f"/skills/{hostile}"),
                ("GET", f"/activity/{hostile}"),
            ]
        )
        return (
            method,
            path,
            encode(nasty.fields({"name": TEXT, "text": TEXT, "answer": TEXT})) if method == "POST" else b"",
        )
    if luck < 0.36:
        return "POST", f"/api/chats/{chat}/messages", encode({"text": nasty.value()} if luck < 0.34 else nasty.value())
    if luck < 0.4:
        model = nasty.fields({"provider": TEXT, "model": TEXT, "base_url": TEXT, "api_key": TEXT, "tools": FLAG})
        return "PUT", "/api/model", encode(model)
    if luck < 0.5:
        return "POST", "/rpc", rpc_message(nasty, 1, session)
    name, fields = nasty.operation()
    return "POST", f"/api/sessions/{session}/{name}", encode(fields if chance.random() < 0.95 else nasty.value())


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="", errors="surrogatepass") or "%20"
