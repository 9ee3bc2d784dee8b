"""The shapes of what the HTTP API takes and answers, as JSON Schema: data only, one name for each shape."""

from collections.abc import Mapping
from typing import Any, Final

from metier.model import MODES

Schema = Mapping[str, Any]


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these fields; others may join them."""
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
NUMBER: Final[Schema] = {"type": "number"}
OBJECT: Final[Schema] = {"type": "object"}
BY: Final[Schema] = {"enum": ["user", "model"]}
"""Who asks."""

ERROR: Final = record({"error": record({"code": TEXT, "message": TEXT})})

SKILL: Final = record(
    {
        "id": TEXT, "name": TEXT, "description": TEXT, "path": TEXT, "dir": TEXT, "scope": TEXT, "source": TEXT,
        "mtime_ms": WHOLE, "license": MAYBE, "compatibility": MAYBE, "metadata": OBJECT, "allowed_tools": many(TEXT),
        "extra": OBJECT, "enabled": FLAG, "mode": {"enum": list(MODES)}, "trusted": FLAG, "model_invocable": FLAG,
        "user_invocable": FLAG,
    }
)  # fmt: skip
CATALOG: Final = record(
    {
        "profile": TEXT,
        "skills": many(SKILL),
        "errors": many(record({"path": TEXT, "message": TEXT})),
        "counts": record(dict.fromkeys(("found", "loaded", "shadowed", "skipped", "errors"), COUNT)),
    }
)
FOUND: Final = record(
    {
        "query": TEXT,
        "count": COUNT,
        "truncated": FLAG,
        "results": many(record({"skill": SKILL, "score": NUMBER, "reason": TEXT})),
    }
)
FRAME: Final = record({"type": TEXT, "seq": COUNT, "id": TEXT, "session_id": TEXT, "timestamp_ms": WHOLE})
CALLED: Final = record({"ok": FLAG, "code": MAYBE, "text": TEXT, "result": OBJECT})
LOADED: Final = record(
    {
        "skill": SKILL, "text": TEXT, "ref": TEXT, "digest": TEXT, "files": many(TEXT), "files_truncated": FLAG,
        "already_loaded": FLAG, "truncated": FLAG,
    }
)  # fmt: skip
RESOURCE: Final = record({"skill": TEXT, "path": TEXT, "mime": TEXT, "size": COUNT, "text": TEXT, "truncated": FLAG})
RUN: Final = record(
    {
        "skill": TEXT, "script": TEXT, "exit_code": WHOLE, "stdout": TEXT, "stderr": TEXT, "duration_ms": COUNT,
        "ended": TEXT, "artifacts": many(record({"path": TEXT, "digest": TEXT, "size": COUNT})),
        "protections": many(TEXT), "notes": many(TEXT),
    }
)  # fmt: skip
INVOKED: Final = record(
    {"skill": MAYBE, "message": TEXT, "loaded": {"type": ["object", "null"]}, "ambiguous": many(TEXT)}
)
PROMPT: Final = record({"text": TEXT, "shown": COUNT, "total": COUNT, "truncated": FLAG})
COMPACTED: Final = record({"text": TEXT, "restored": many(TEXT), "referenced": many(TEXT)})
TOOLS: Final = many(record({"name": TEXT, "description": TEXT, "input_schema": OBJECT}))
STATE: Final = record({"version": WHOLE, "id": TEXT})
INDEX: Final = record(
    {
        "$schema": TEXT,
        "skills": many(record(dict.fromkeys(("name", "type", "description", "url", "digest"), TEXT))),
    }
)
