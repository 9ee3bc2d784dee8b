"""Shows files of a chat: those that a person added, and those that scripts made.

A file is untrusted. Text and tables are text of our page. An image is served as one only if its bytes are one. SVG is
only ever the source of an `<img>`, where nothing in it runs. HTML is shown in a frame without scripts and with an
origin of its own, which both the frame and the headers of its answer demand.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier.errors import ResourceNotFound
from metier.files.digests import is_digest
from metier.files.media import FileKind, image_type, kind_of, text_of
from metier.record.runs import made_files
from metier.surfaces.chat.items import files_of
from metier.surfaces.web.site import CSP, Site

TEXT_CHARACTERS: Final = 200_000
ROWS: Final = 200
COLUMNS: Final = 40
CELL_CHARACTERS: Final = 300
FRAME: Final = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
"""What the frame of an HTML file may do: show it. It has no scripts, no origin and no connections."""
IMAGE: Final = "sandbox; default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class PreviewedFile:
    """A file of a chat, and its bytes."""

    name: str
    data: bytes
    is_made: bool
    """Whether a script made it; else the user added it."""

    @property
    def kind(self) -> FileKind:
        return kind_of(self.name, self.data)


def show(site: Site, request: Request) -> Response:
    found = _find(site, request)
    kind = found.kind
    text = (text_of(found.data) or "") if kind != "image" else ""
    rows, wide = _rows(text, found.name) if kind == "table" else ((), False)
    answer = site.page(
        request,
        "files/preview.html",
        chat_id=request.path_params["chat_id"],
        digest=request.path_params["digest"],
        file=found,
        kind=kind,
        text=text[:TEXT_CHARACTERS],
        cut=len(text) > TEXT_CHARACTERS or wide,
        rows=rows,
        size_bytes=len(found.data),
    )
    answer.headers["content-security-policy"] = f"{CSP}; frame-src 'self'"
    return answer


def image(site: Site, request: Request) -> Response:
    found = _find(site, request)
    kind = "image/svg+xml" if found.kind == "svg" else image_type(found.data)
    if not kind:
        return Response(status_code=404)
    return _answer(found.data, kind, {"content-disposition": "attachment", "content-security-policy": IMAGE})


def frame(site: Site, request: Request) -> Response:
    found = _find(site, request)
    if found.kind != "html":
        return Response(status_code=404)
    headers = {"content-security-policy": FRAME, "x-frame-options": "SAMEORIGIN"}
    return _answer(found.data, "text/html; charset=utf-8", headers)


def _find(site: Site, request: Request) -> PreviewedFile:
    chat_id, digest = request.path_params["chat_id"], request.path_params["digest"]
    if not is_digest(digest):
        raise ResourceNotFound("this file")
    store = site.app.store
    made = next((one for one in made_files(store, chat_id) if one.digest == digest), None)
    if made is not None:
        return PreviewedFile(made.path, store.get_artifact(digest), is_made=True)
    _, kept = site.chats.read(chat_id)
    added = next((one for one in files_of(kept).values() if one.digest == digest), None)
    if added is None:
        raise ResourceNotFound("this file")
    return PreviewedFile(added.name, store.get_artifact(digest), is_made=False)


def _answer(data: bytes, media_type: str, headers: dict[str, str]) -> Response:
    return Response(data, headers={"cache-control": "private, no-store", **headers}, media_type=media_type)


def _rows(text: str, name: str) -> tuple[Sequence[Sequence[str]], bool]:
    """The first rows of a table, and whether there is more than is shown."""
    head = text.partition("\n")[0]
    separator = "\t" if name.lower().endswith(".tsv") else ";" if head.count(";") > head.count(",") else ","
    rows: list[list[str]] = []
    wide = False
    try:
        for row in csv.reader(io.StringIO(text), delimiter=separator):
            if len(rows) >= ROWS:
                return rows, True
            wide = wide or len(row) > COLUMNS
            rows.append([cell[:CELL_CHARACTERS] for cell in row[:COLUMNS]])
    except csv.Error:
        return rows, True
    return rows, wide
