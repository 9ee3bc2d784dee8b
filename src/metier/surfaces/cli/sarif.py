"""Findings about files as SARIF 2.1.0, the format in which code scanning services take them."""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from metier import __version__
from metier.catalog import validate
from metier.files.text import printable
from metier.values.skill import Diagnostic, Severity

_LEVEL: Final[dict[Severity, str]] = {"error": "error", "warning": "warning", "info": "note"}


class Remark(NamedTuple):
    """One remark about a file, and the hosts to which it applies. Without hosts, it is about the file alone."""

    code: str
    severity: Severity
    message: str
    path: str
    line: int
    column: int
    hosts: tuple[str, ...] = ()
    hint: str = ""
    certainty: tuple[str | None, ...] = ()
    """How sure the verdict of each of these hosts is."""

    @classmethod
    def of(cls, diagnostic: Diagnostic) -> "Remark":
        d = diagnostic
        return cls(d.code, d.severity, d.message, path=d.path, line=d.line, column=d.column, hint=d.hint)


def sarif_log(remarks: Sequence[Remark], base: str, command: str) -> dict[str, object]:
    """The remarks as a SARIF log. Paths below `base`, the project, are relative to it.

    `command` tells the runs of different commands apart, so that a service does not replace one by the other.
    """
    codes = list(dict.fromkeys(remark.code for remark in remarks))
    described = {code: text for table in validate.codes().values() for code, text in table.items()}
    rules = [{"id": code, "shortDescription": {"text": described.get(code, code)}} for code in codes]
    driver = {"name": "metier", "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"metier-{command}/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"PROJECT": {"uri": f"file://{_uri(base)}/"}},
        "results": [_result(remark, codes.index(remark.code), base) for remark in remarks],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _uri(path: str) -> str:
    return quote(os.fsencode(path))  # the name of a folder may contain bytes that are not UTF-8


def _result(remark: Remark, rule: int, base: str) -> dict[str, object]:
    inside = remark.path.startswith(f"{base.rstrip('/')}/")
    artifact = (
        {"uri": _uri(os.path.relpath(remark.path, base)), "uriBaseId": "PROJECT"}
        if inside
        else {"uri": f"file://{_uri(remark.path)}"}
    )
    region = {"startLine": max(remark.line, 1), "startColumn": max(remark.column, 1)}
    hint = f"; {remark.hint}" if remark.hint else ""
    hosts = f" ({', '.join(remark.hosts)})" if remark.hosts else ""
    result: dict[str, object] = {
        "ruleId": remark.code,
        "ruleIndex": rule,
        "level": _LEVEL[remark.severity],
        "message": {"text": f"{printable(remark.message + hint)}{hosts}"},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
    }
    if remark.hosts:
        sure = dict(zip(remark.hosts, remark.certainty, strict=True))
        result["properties"] = {"hosts": list(remark.hosts), "certainty": sure}
    return result
