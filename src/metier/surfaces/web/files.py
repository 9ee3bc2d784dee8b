"""Files over HTTP: those that a person adds to a chat, and those that scripts made.

A file is only ever bytes: it is sent back to be saved and never shown, whatever its name or content claims.
"""

from typing import TYPE_CHECKING, Final, TypedDict
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from metier.errors import BadArguments, ResourceError
from metier.files.digests import is_digest
from metier.record.made_files import MadeFile, made_files
from metier.surfaces.web.endpoints import JSON, Endpoint, NotFound, RequestRefused, query
from metier.values.value import Count, Value

if TYPE_CHECKING:
    from metier.surfaces.web.api import Api

BYTES: Final = "application/octet-stream"


class AddedFile(TypedDict):
    id: str
    type: str
    name: str
    size: Count
    digest: str


class MadeFiles(Value):
    files: list[MadeFile]


@Endpoint(
    "POST",
    "/api/chats/{chat_id}/files",
    "Add a file to a chat, for its model and its scripts; the body is the file",
    query={"name": str},
    required_query=("name",),
    body={},
    body_type=BYTES,
    answers={201: {JSON: AddedFile}},
)
def add_file(api: "Api", request: Request, given: bytes) -> object:
    try:
        return api.chats.add_file(request.path_params["chat_id"], query(request, "name") or "", given).as_dict()
    except (BadArguments, ResourceError) as error:
        raise RequestRefused(str(error)) from error


@Endpoint(
    "GET",
    "/api/sessions/{session_id}/files",
    "The files that scripts of a session made, the latest first",
    answers=MadeFiles,
)
def list_files(api: "Api", request: Request, given: None) -> object:
    return MadeFiles(made_files(api.app.store, request.path_params["session_id"]))


@Endpoint(
    "GET",
    "/api/sessions/{session_id}/files/{digest}",
    "A file that a script of a session made",
    answers={200: {BYTES: str}},
)
def fetch_file(api: "Api", request: Request, given: None) -> Response:
    session, digest = request.path_params["session_id"], request.path_params["digest"]
    found = made_files(api.app.store, session) if is_digest(digest) else ()
    file = next((one for one in found if one.digest == digest), None)
    if file is None:
        raise NotFound("no script of this session made such a file")
    name = quote(file.path.rpartition("/")[2], safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'",
        "cache-control": "private, no-store",
    }
    return Response(api.app.store.get_artifact(digest), headers=headers, media_type=BYTES)


ENDPOINTS: Final = (add_file, list_files, fetch_file)
