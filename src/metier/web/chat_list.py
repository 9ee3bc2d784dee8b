"""Chats over HTTP, beyond what is said in them: their titles, which are pinned, and putting a removed one back."""

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from metier.chat import NoSuchChat
from metier.chat.chat_label import TITLE_CHARACTERS
from metier.web.endpoints import JSON, Endpoint, NotFound, RequestRefused, json_body
from metier.web.schemas import FLAG, TEXT, record
from metier.web.threads import run_in_threadpool

if TYPE_CHECKING:
    from metier.web.api import Api


async def change_chat(api: "Api", request: Request) -> Response:
    given = await json_body(request, CHANGE)
    changes: dict[str, object] = dict(given)
    if "title" in given:
        changes["title"] = " ".join(str(given["title"]).split())
        if len(str(changes["title"])) > TITLE_CHARACTERS:
            raise RequestRefused(f"a title may have at most {TITLE_CHARACTERS} characters")
    try:
        label = await run_in_threadpool(lambda: api.chats.store.change(request.path_params["chat_id"], **changes))
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    return api.answer({"title": label.title, "pinned": label.pinned})


async def restore_chat(api: "Api", request: Request) -> Response:
    try:
        await run_in_threadpool(api.chats.store.unhide, request.path_params["chat_id"])
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    return Response(status_code=204)


CHANGE: Final = Endpoint(
    method="PATCH",
    path="/api/chats/{chat_id}",
    summary="Rename or pin a chat; an empty title is the one that the chat gave itself",
    handler=change_chat,
    body=record({}, {"title": TEXT, "pinned": FLAG}),
    body_required=True,
    answers={200: {JSON: record({"title": TEXT, "pinned": FLAG})}},
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    CHANGE,
    Endpoint(
        method="POST",
        path="/api/chats/{chat_id}/restore",
        summary="Put a hidden chat back into the list",
        handler=restore_chat,
        answers={204: {}},
    ),
)
