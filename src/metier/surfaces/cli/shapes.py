"""What each command prints with `--json`, as JSON Schema. This module is data, and a test compares it with the output.

Shapes that HTTP answers with as well are those of `metier.surfaces.web.schemas`. A program must accept keys that
it does not know, because later versions may add some.
"""

from collections.abc import Mapping
from typing import Final

import click

from metier.surfaces.cli.failure import CODES
from metier.surfaces.web.schemas import (
    CATALOG,
    COUNT,
    COUNTS,
    DIAGNOSTIC,
    FLAG,
    FOUND,
    FRAME,
    LOADED,
    MAYBE,
    OBJECT,
    RESULTS,
    SKILL,
    TEXT,
    USAGE,
    WHOLE,
    many,
    record,
)
from metier.values.skill import MODES
from metier.values.value import Schema

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def _besides(schema: Schema, required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """A shape with more fields."""
    properties = {**schema["properties"], **required, **(optional or {})}
    return {**schema, "required": list(dict.fromkeys((*schema["required"], *required))), "properties": properties}


def _open(schema: Schema) -> Schema:
    """A shape whose further fields are documented elsewhere."""
    return {**schema, "additionalProperties": True}


def _either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _lines(schema: Schema) -> Schema:
    return {"description": "One such object per line.", **schema}


_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": TEXT}

ERROR: Final = record(
    {"error": _open(record({"code": {"enum": [*CODES]}, "message": TEXT, "exit_code": {"type": "integer"}}))}
)
"""An error, on stderr."""
WARNING: Final = record({"warning": record({"message": TEXT})})
"""A warning, on stderr."""

_ROOT: Final = record({"path": TEXT, "source": TEXT, "exists": FLAG}, {"scope": TEXT, "count": COUNT})
_SHADOWED: Final = _besides(SKILL, {"shadowed_by": TEXT, "identical": FLAG})
_CATALOG: Final = _besides(
    CATALOG,
    {
        "roots": many(_ROOT),
        "shadowed": many(_SHADOWED),
        "skipped": many(record({"path": TEXT, "reason": TEXT, "detail": TEXT})),
        "truncated": FLAG,
    },
)
_WATCHED: Final = _either(
    record({"event": {"const": "catalog"}, "profile": TEXT, "skills": many(SKILL), "errors": many(DIAGNOSTIC)}),
    record(
        {
            "event": {"const": "changed"},
            "added": many(SKILL),
            "removed": many(TEXT),
            "changed": many(SKILL),
            "errors": many(DIAGNOSTIC),
        }
    ),
)
_SHOWN: Final = _besides(
    SKILL,
    {
        "files": many(TEXT),
        "files_truncated": FLAG,
        "files_left_out": COUNT,
        "shadowed_by": MAYBE,
        "diagnostics": many(DIAGNOSTIC),
    },
)
_EXPLAINED: Final = _besides(
    FOUND, {"results": many(_besides(FOUND["properties"]["results"]["items"], {}, {"matched": many(TEXT)}))}
)
_PACKAGE: Final = record({"name": TEXT, "version": TEXT, "size": COUNT})
_LOCK: Final = record({"digest": TEXT, "source": TEXT, "packages": many(_PACKAGE)})
_VERDICT: Final = record(
    {
        "profile": TEXT,
        "path": TEXT,
        "status": TEXT,
        "found": FLAG,
        "shown": FLAG,
        "why": MAYBE,
        "put": many(TEXT),
        "name": TEXT,
        "description": TEXT,
        "root": MAYBE,
        "model": FLAG,
        "user": FLAG,
        "called": MAYBE,
        "cuts": many(TEXT),
        "ignored": many(TEXT),
        "notes": many(TEXT),
        "certainty": TEXT,
        "assumed": many(record({"rule": TEXT, "why": TEXT})),
        "diagnostics": many(DIAGNOSTIC),
    }
)
_FIX: Final = record({"path": TEXT, "changes": many(TEXT)})
_UNFIXED: Final = record({"path": TEXT, "reason": TEXT})
_FIXABLE: Final = record({"fixable": many(_besides(_FIX, {"diff": TEXT})), "refused": many(_UNFIXED)})
_MADE: Final = record({"made": many(TEXT), "kept": many(TEXT)})
_MODE: Final = record(
    {"name": TEXT, "path": TEXT, "enabled": FLAG, "mode": {"enum": list(MODES)}, "level": {"enum": ["user", "project"]}}
)
_OFFER: Final = record(
    {
        "name": TEXT,
        "description": TEXT,
        "source": TEXT,
        "path": TEXT,
        "digest": TEXT,
        "artifact": TEXT,
        "files": many(record({"path": TEXT, "size": COUNT, "executable": FLAG})),
        "replaced": FLAG,
        "left_out": many(TEXT),
        "diagnostics": many(DIAGNOSTIC),
    }
)
_VERIFIED: Final = record(
    {
        "unchanged": FLAG,
        "skills": many(
            record({"scope": {"enum": ["user", "project"]}, "name": TEXT, "unchanged": FLAG, "problems": many(TEXT)})
        ),
    }
)
_RULE: Final = record(
    {"tool": TEXT},
    dict.fromkeys(
        ("name", "skill_name", "path", "command", "digest", "folder", "scope", "source", "given", "host"), TEXT
    ),
)
_POLICY: Final = record(
    {"profile": TEXT, "redact": FLAG, "warnings": many(TEXT)},
    {"unasked": TEXT, **dict.fromkeys(("allow", "deny", "ask"), many(_RULE)), "tools": many(TEXT)}
    | {"applies": many(TEXT)},
)
_LISTED: Final = _besides(_RULE, {"verdict": {"enum": ["deny", "allow", "ask"]}, "origin": TEXT}, {"id": TEXT})
_PLACE: Final = {"enum": ["keyring", "file"]}
_SECRET_USER: Final = record({"skill": TEXT, "holds": FLAG, "why": TEXT})
_NAMED: Final = record({"name": TEXT, "where": many(TEXT)}, {"kind": TEXT})
_COUNTED: Final[Schema] = {"type": "object", "additionalProperties": COUNT}
_NEEDS: Final = record(
    {
        "skill": TEXT,
        "path": TEXT,
        "ready": FLAG,
        "needs": many(
            record(
                {
                    "kind": {"enum": ["interpreter", "program", "secret", "package"]},
                    "name": TEXT,
                    "state": {"enum": ["here", "missing", "hidden", "not-given", "wanted"]},
                    "where": many(TEXT),
                    "help": TEXT,
                }
            )
        ),
    }
)
_PROFILE: Final = _open(
    record({"name": TEXT, "summary": TEXT, "enabled": FLAG, "documentation": {"type": ["object", "null"]}})
)
_CLIENT: Final = record(
    {
        "host": TEXT,
        "action": TEXT,
        "name": TEXT,
        "scope": TEXT,
        "file": TEXT,
        "entry": {"type": ["object", "null"]},
        "lines": many(TEXT),
        "written": FLAG,
    }
)
_STORED: Final = record(
    {
        **dict.fromkeys(("kind", "location"), TEXT),
        **dict.fromkeys(("schema", "sessions", "streams", "events", "artifacts", "artifact_bytes"), COUNT),
        **dict.fromkeys(("states", "bytes", "content_bytes", "store_days", "store_megabytes"), COUNT),
        "latest": many(record({"id": TEXT, "first_ms": WHOLE, "last_ms": WHOLE, "events": COUNT})),
    }
)

SHAPES: Final[Mapping[str, Schema]] = {
    "list": _either(_CATALOG, {"description": "With --watch, one such object per line.", **_WATCHED}),
    "show": _SHOWN,
    "search": _EXPLAINED,
    "pick": _either(SKILL, LOADED),
    "load": RESULTS["load"],
    "read": RESULTS["read"],
    "run": _besides(RESULTS["run"], {}, {"session": TEXT, "written": many(TEXT), "not_written": many(TEXT)}),
    "artifacts": many(
        record({**dict.fromkeys(("session", "skill", "script", "path", "digest"), TEXT), "size": COUNT, "at_ms": WHOLE})
    ),
    "invoke": RESULTS["invoke"],
    "prompt": RESULTS["prompt"],
    "init": _MADE,
    "new": _MADE,
    "validate": _either(
        record(
            {"valid": FLAG, "skills": many(record({"path": TEXT, "valid": FLAG, "diagnostics": many(DIAGNOSTIC)}))},
            {"fixed": many(_FIX), "refused": many(_UNFIXED)},
        ),
        {"description": "With --diff.", **_FIXABLE},
    ),
    "check": record(
        {"hosts": many(TEXT), "passed": FLAG, "skills": many(record({"path": TEXT, "verdicts": many(_VERDICT)}))}
    ),
    "schema": {"description": "A JSON Schema.", **OBJECT},
    "install": _either(_OFFER, {"description": "With --verify.", **_VERIFIED}),
    "enable": _MODE,
    "disable": _MODE,
    "mode": _MODE,
    "policy show": _POLICY,
    "policy explain": record(
        {"verdict": {"enum": ["deny", "allow", "ask"]}, "why": TEXT, "rule": {**_RULE, "type": ["object", "null"]}}
    ),
    "policy list": record({"policy": TEXT, "unasked": TEXT, "rules": many(_LISTED), "warnings": many(TEXT)}),
    "policy revoke": record({"revoked": many(_besides(_RULE, {"id": TEXT}))}),
    "secret set": record({"name": TEXT, "place": _PLACE, "where": TEXT, "why": TEXT}),
    "secret remove": record({"name": TEXT, "removed": FLAG, "revoked": COUNT}),
    "secret allow": record({"name": TEXT, "skill": TEXT, "digest": TEXT, "id": TEXT, "set": FLAG}),
    "secret list": record(
        {
            "secrets": many(
                record({"name": TEXT, "place": {"enum": ["keyring", "file", None]}, "users": many(_SECRET_USER)})
            ),
            "keyring": MAYBE,
            "why": TEXT,
            "folder": TEXT,
        }
    ),
    "caps": record(
        {
            **dict.fromkeys(("skill", "path", "digest"), TEXT),
            "names": record(
                dict.fromkeys(("imports", "hosts", "programs", "files", "secrets", "commands"), many(_NAMED))
            ),
            "runs": record({"verdict": {"enum": ["deny", "allow", "ask"]}, "why": TEXT}),
            "given": many(_besides(_RULE, {"verdict": {"enum": ["deny", "allow"]}})),
            "used": record(
                {
                    **dict.fromkeys(("runs", "refused", "unsandboxed"), COUNT),
                    "last_ms": {"type": ["integer", "null"]},
                    "scripts": many(record({"script": TEXT, "runs": COUNT, "exit_codes": _COUNTED, "last_ms": WHOLE})),
                    **dict.fromkeys(("grants", "secrets", "hosts"), _COUNTED),
                }
            ),
        }
    ),
    "trust": record({"project": TEXT, "trusted": FLAG}),
    "serve": record({"address": TEXT, "link": MAYBE}),
    "mcp add": _CLIENT,
    "mcp remove": _CLIENT,
    "events": _lines(_open(FRAME)),
    "usage": USAGE,
    "replay": record(
        {
            "session": TEXT,
            "frames": COUNT,
            "not_compared": COUNT,
            "identical": FLAG,
            "differences": many(
                record({"index": WHOLE, "kind": TEXT, "detail": TEXT, "expected": TEXT, "found": TEXT})
            ),
        }
    ),
    "store stats": _STORED,
    "store prune": record(dict.fromkeys(("sessions", "events", "artifacts", "artifact_bytes"), COUNT)),
    "store export": _lines(OBJECT),
    "store import": record(dict.fromkeys(("events", "artifacts", "states"), COUNT)),
    "env show": _either(
        record({"folder": TEXT, "bytes": COUNT, "locks": many(_besides(_LOCK, {"folder": TEXT, "bytes": COUNT}))}),
        {
            "description": "With a skill.",
            **record(
                {
                    "skill": TEXT,
                    "scripts": many(
                        _besides(
                            _LOCK,
                            {
                                "script": TEXT,
                                "wants": many(TEXT),
                                "inferred": FLAG,
                                "folder": TEXT,
                                "notes": many(TEXT),
                            },
                        )
                    ),
                }
            ),
        },
    ),
    "env lock": record(
        {
            "skill": TEXT,
            "scripts": many(_besides(_LOCK, {"script": TEXT, "notes": many(TEXT)})),
        }
    ),
    "env clear": record(dict.fromkeys(("environments", "bytes", "locks"), COUNT)),
    "tools": RESULTS["tools"],
    "call": {"description": "The answer in the shape of the host, which the profile decides.", **OBJECT},
    "commands": RESULTS["commands"],
    "may-use": RESULTS["may_use"],
    "output": RESULTS["output"],
    "compact": RESULTS["compact"],
    "end-turn": RESULTS["end_turn"],
    "doctor": _either(
        record(
            {
                **dict.fromkeys(("version", "python", "platform", "profile", "cwd", "project", "home", "config"), TEXT),
                "parts": many(record({"name": TEXT, "works": FLAG, "about": TEXT})),
                "sandbox": many(_open(record({"promise": TEXT, "held": FLAG}))),
                "settings": _TEXTS,
                "roots": many(_ROOT),
                "counts": COUNTS,
                "diagnostics": many(DIAGNOSTIC),
            }
        ),
        {"description": "With a SKILL.", **_NEEDS},
    ),
    "profiles": _either(_PROFILE, many(_PROFILE), {"description": "With --compare.", **many(_TEXTS)}),
    "completion": record({"shell": TEXT, "script": TEXT}),
    "help": record({"text": TEXT}),
}
"""The shape of each command."""

PROTOCOLS: Final[Mapping[str, str]] = {
    "mcp": "it speaks MCP on standard output",
    "rpc": "it speaks JSON-RPC on standard output",
}
"""The commands without a shape of their own, and why."""


def schema_of(command: str) -> Schema:
    """The schema of a command, or of all commands of a group. Empty is `metier` itself: everything."""
    if command in SHAPES:
        return {"$schema": _DRAFT, "title": f"metier {command} --json", **SHAPES[command]}
    if not command:
        return {"$schema": _DRAFT, "$defs": {**SHAPES, "error": ERROR, "warning": WARNING}}
    inner = {name: shape for name, shape in SHAPES.items() if name.startswith(f"{command} ")}
    if not inner:
        raise click.UsageError(f"`metier {command}` has no JSON Schema: {PROTOCOLS.get(command, 'it prints none')}")
    return {"$schema": _DRAFT, "$defs": inner}
