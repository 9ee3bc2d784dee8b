"""Files over HTTP: those that a person adds to a chat, and those that scripts made.

A file is only ever bytes: it is sent back to be saved and never shown, whatever its name or content claims.
"""

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from metier.chat import ChatBusy, NoSuchChat
from metier.errors import BadArguments, ResourceError
from metier.files.digests import is_digest
from metier.record.made_files import made_files
from metier.web.endpoints import JSON, Conflict, Endpoint, NotFound, RequestRefused, query, raw_body
from metier.web.schemas import COUNT, TEXT, WHOLE, many, record
from metier.web.threads import run_in_threadpool

if TYPE_CHECKING:
    from metier.web.api import Api

BYTES: Final = "application/octet-stream"


async def add_file(api: "Api", request: Request) -> Response:
    name = query(request, "name") or ""
    data = await raw_body(request)
    try:
        item = await run_in_threadpool(api.chats.add_file, request.path_params["chat_id"], name, data)
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    except ChatBusy as error:
        raise Conflict(str(error)) from error
    except (BadArguments, ResourceError) as error:
        raise RequestRefused(str(error)) from error
    return api.answer(item.as_dict(), 201)


async def list_files(api: "Api", request: Request) -> Response:
    found = await run_in_threadpool(made_files, api.app.store, request.path_params["session_id"])
    return api.answer({"files": [one.as_dict() for one in found]})


async def fetch_file(api: "Api", request: Request) -> Response:
    session, digest = request.path_params["session_id"], request.path_params["digest"]
    found = await run_in_threadpool(made_files, api.app.store, session) if is_digest(digest) else []
    one = next((one for one in found if one.digest == digest), None)
    if one is None:
        raise NotFound("no script of this session made such a file")
    data = await run_in_threadpool(api.app.store.get_artifact, digest)
    name = quote(one.path.rpartition("/")[2], safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'",
        "cache-control": "private, no-store",
    }
    return Response(data, headers=headers, media_type=BYTES)


_MADE: Final = record(
    {**dict.fromkeys(("session", "skill", "script", "path", "digest"), TEXT), "size": COUNT, "at_ms": WHOLE}
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        method="POST",
        path="/api/chats/{chat_id}/files",
        summary="Add a file to a chat, whose scripts find it in their current folder; the body is the file",
        handler=add_file,
        query={"name": TEXT},
        required_query=("name",),
        body={},
        body_required=True,
        body_type=BYTES,
        answers={201: {JSON: record({"id": TEXT, "type": TEXT, "name": TEXT, "size": COUNT, "digest": TEXT})}},
    ),
    Endpoint(
        method="GET",
        path="/api/sessions/{session_id}/files",
        summary="The files that scripts of a session made, the latest first",
        handler=list_files,
        answers={200: {JSON: record({"files": many(_MADE)})}},
    ),
    Endpoint(
        method="GET",
        path="/api/sessions/{session_id}/files/{digest}",
        summary="A file that a script of a session made",
        handler=fetch_file,
        answers={200: {BYTES: TEXT}},
    ),
)
