"""JSON Schemas for the requests and answers of the HTTP API. This module is data only, with one name per schema.

The command line prints many of the same shapes; see `metier.surfaces.cli.shapes`.
"""

from collections.abc import Mapping
from typing import Final

from metier.values.skill import MODES
from metier.values.value import Schema


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these fields. Other fields are allowed."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties}


def many(items: Schema) -> Schema:
    return {"type": "array", "items": items}


TEXT: Final[Schema] = {"type": "string"}
NAME: Final[Schema] = {"type": "string", "minLength": 1}
MAYBE: Final[Schema] = {"type": ["string", "null"]}
FLAG: Final[Schema] = {"type": "boolean"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
WHOLE: Final[Schema] = {"type": "integer"}
MAYBE_WHOLE: Final[Schema] = {"type": ["integer", "null"]}
NUMBER: Final[Schema] = {"type": "number"}
OBJECT: Final[Schema] = {"type": "object"}

ERROR: Final = record({"error": record({"code": TEXT, "message": TEXT})})

SKILL: Final = record(
    {
        "id": TEXT,
        "name": TEXT,
        "description": TEXT,
        "path": TEXT,
        "dir": TEXT,
        "base_dir": TEXT,
        "scope": TEXT,
        "source": TEXT,
        "source_dir": TEXT,
        "mtime": NUMBER,
        "mtime_ms": WHOLE,
        "version": MAYBE,
        "license": MAYBE,
        "compatibility": MAYBE,
        "metadata": OBJECT,
        "allowed_tools": many(TEXT),
        "extra": OBJECT,
        "enabled": FLAG,
        "mode": {"enum": list(MODES)},
        "trusted": FLAG,
        "model_invocable": FLAG,
        "user_invocable": FLAG,
    }
)
DIAGNOSTIC: Final = record(
    {"code": TEXT, "severity": TEXT, "path": TEXT, "message": TEXT},
    {"line": MAYBE_WHOLE, "column": MAYBE_WHOLE, "hint": MAYBE},
)
COUNTS: Final = record(dict.fromkeys(("found", "loaded", "shadowed", "skipped", "errors"), COUNT))
CATALOG: Final = record(
    {
        "profile": TEXT,
        "skills": many(SKILL),
        "errors": many(record({"path": TEXT, "message": TEXT})),
        "diagnostics": many(DIAGNOSTIC),
        "counts": COUNTS,
    }
)
HIT: Final = record(
    {"skill": SKILL, "score": NUMBER, "reason": TEXT},
    {"fit": TEXT, "file": TEXT, "shadowed_by": TEXT, "like": many(record({"name": TEXT, "path": TEXT}))},
)
FOUND: Final = record(
    {"query": TEXT, "count": COUNT, "truncated": FLAG, "results": many(HIT)},
    {"indexing": record({"done": COUNT, "total": COUNT})},
)
FRAME: Final = record({"type": TEXT, "seq": COUNT, "id": TEXT, "session_id": TEXT, "timestamp_ms": WHOLE})
CALLED: Final = record({"ok": FLAG, "code": MAYBE, "text": TEXT, "result": OBJECT})
LOADED: Final = record(
    {
        "skill": SKILL,
        "text": TEXT,
        "ref": TEXT,
        "digest": TEXT,
        "files": many(TEXT),
        "files_truncated": FLAG,
        "files_left_out": COUNT,
        "already_loaded": FLAG,
        "truncated": FLAG,
    }
)
RESOURCE: Final = record(
    {"skill": TEXT, "path": TEXT, "mime": TEXT, "size": COUNT, "text": TEXT, "truncated": FLAG}, {"base64": TEXT}
)
RUN: Final = record(
    {
        "skill": TEXT,
        "script": TEXT,
        "exit_code": WHOLE,
        "stdout": TEXT,
        "stderr": TEXT,
        "duration_ms": COUNT,
        "ended": TEXT,
        "artifacts": many(record({"path": TEXT, "digest": TEXT, "size": COUNT})),
        "protections": many(TEXT),
        "notes": many(TEXT),
        "changes": many(record({"path": TEXT, "kind": TEXT, "size": COUNT, "digest": TEXT})),
    }
)
_MENTIONED: Final = record({"skill_id": TEXT, "name": TEXT, "path": TEXT, "scope": TEXT})
INVOKED: Final = record(
    {
        "skill": MAYBE,
        "message": TEXT,
        "loaded": {**LOADED, "type": ["object", "null"]},
        "mentioned": many(_MENTIONED),
        "ambiguous": many(TEXT),
        "choices": many(record({"name": TEXT, "candidates": many(_MENTIONED)})),
    }
)
PROMPT: Final = record({"text": TEXT, "shown": COUNT, "total": COUNT, "truncated": FLAG, "stable": COUNT})
COMPACTED: Final = record({"text": TEXT, "restored": many(TEXT), "referenced": many(TEXT)})
TOOLS: Final = many(record({"name": TEXT, "description": TEXT, "input_schema": OBJECT}))
STATE: Final = record({"version": WHOLE, "id": TEXT})
INDEX: Final = record(
    {
        "$schema": TEXT,
        "skills": many(record(dict.fromkeys(("name", "type", "description", "url", "digest"), TEXT))),
    }
)
SKILL_USAGE: Final = record(
    {
        "name": TEXT,
        **dict.fromkeys(
            (
                "sessions", "offered", "found", "loaded", "loaded_by_model", "loaded_by_user", "preloaded",
                "loaded_again", "unoffered", "read", "ran", "run_refused", "refused", "tokens",
            ),
            COUNT,
        ),
        "characters": record(dict.fromkeys(("description", "body", "resources", "output", "total"), COUNT)),
        "share": NUMBER,
        "last_used_ms": {"type": ["integer", "null"]},
    }
)  # fmt: skip
USAGE: Final = record(
    {
        **dict.fromkeys(
            ("sessions", "sessions_without_lists", "sessions_without_texts", "characters", "tokens"), COUNT
        ),
        "skills": many(SKILL_USAGE),
        "never_loaded": many(TEXT),
        "unoffered": many(TEXT),
    }
)

RESULTS: Final[Mapping[str, Schema]] = {
    "load": LOADED,
    "read": RESOURCE,
    "run": RUN,
    "search": FOUND,
    "invoke": INVOKED,
    "prompt": PROMPT,
    "system_prompt": record({"text": TEXT, "stable": COUNT}),
    "tools": TOOLS,
    "output": record({"text": TEXT}),
    "compact": COMPACTED,
    "end_turn": OBJECT,
    "commands": record({"commands": many(TEXT)}),
    "may_use": record({"allowed": FLAG}),
    "call": CALLED,
}
"""The answer of each session operation."""
