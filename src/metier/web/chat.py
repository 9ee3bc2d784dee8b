"""The chat over HTTP: chats, their turns as streams of server-sent events, the model that answers, and commands.

A message of a stream is `item` (a whole item, whenever it changes), `delta` (text to append to an item) or `end`. A
stream can be left; the turn goes on, and `GET .../stream` joins it again, also through another server of the store.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from metier.chat import Busy, NoSuchChat
from metier.chat.chat_store import stream_of
from metier.chat.engine import MESSAGE_CHARACTERS
from metier.chat.model_choice import PROVIDERS
from metier.errors import ConfigError
from metier.session.json_schema import Schema
from metier.web.endpoints import (
    JSON,
    Endpoint,
    NotFound,
    Problem,
    RequestRefused,
    ServerBusy,
    encode,
    json_body,
    query,
)
from metier.web.schemas import FLAG, MAYBE, NAME, OBJECT, TEXT, WHOLE, many, record

if TYPE_CHECKING:
    from metier.chat.live import Message
    from metier.web.api import Api

COMMANDS: Final = 50
"""Commands that are offered at once."""
_EVENT_STREAM: Final = "text/event-stream"


class Conflict(Problem):
    """The chat is being answered already."""

    status, code = 409, "CONFLICT"


# --- chats ---


async def list_chats(api: "Api", request: Request) -> Response:
    found = await run_in_threadpool(api.chats.shelf.chats)
    return api.answer(
        {
            "chats": [
                {
                    "id": chat_id,
                    "title": head.title,
                    "created_ms": head.created_ms,
                    "updated_ms": head.updated_ms,
                    "skills": list(head.skills),
                    "model": head.model,
                    "status": head.status if head.busy else "idle",
                }
                for chat_id, head in found
            ]
        }
    )


async def create_chat(api: "Api", request: Request) -> Response:
    return api.answer({"id": await run_in_threadpool(api.chats.shelf.create)}, 201)


async def read_chat(api: "Api", request: Request) -> Response:
    chat_id = _id(request)
    try:
        head, items = await run_in_threadpool(api.chats.read, chat_id)
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    turn = api.chats.turn(chat_id)
    status = turn.status if turn is not None else head.status if head.busy else "idle"
    return api.answer(
        {
            "id": chat_id,
            "title": head.title,
            "model": head.model,
            "skills": turn.skills if turn is not None else list(head.skills),
            "status": status,
            "items": [item.as_dict() for item in items],
        }
    )


async def hide_chat(api: "Api", request: Request) -> Response:
    try:
        await run_in_threadpool(api.chats.shelf.hide, _id(request))
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    except Busy as error:
        raise Conflict(str(error)) from error
    return Response(status_code=204)


# --- turns ---


async def send_message(api: "Api", request: Request) -> Response:
    given = await json_body(request, SEND)
    text: str = given["text"]
    if not text.strip():
        raise RequestRefused("the message is empty")
    if len(text) > MESSAGE_CHARACTERS:
        raise RequestRefused(f"a message may have {MESSAGE_CHARACTERS:,} characters")
    return await _begin(api, _id(request), text)


async def retry(api: "Api", request: Request) -> Response:
    return await _begin(api, _id(request), None)


async def _begin(api: "Api", chat_id: str, text: str | None) -> Response:
    try:
        turn = await api.chats.start(chat_id, text)
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    except Busy as error:
        if error.here:
            raise ServerBusy(str(error)) from error
        raise Conflict(str(error)) from error
    return _stream(api, turn.stage.follow())


async def join(api: "Api", request: Request) -> Response:
    chat_id = _id(request)
    try:
        await run_in_threadpool(api.chats.shelf.head, chat_id)
    except NoSuchChat as error:
        raise NotFound(str(error)) from error

    async def messages() -> AsyncIterator["Message"]:
        async with api.watcher.watching(stream_of(chat_id)) as news:
            async for message in api.chats.follow(chat_id, news):
                yield message
                if api.watcher.ending and message[0] == "still":
                    return

    return _stream(api, messages())


async def stop(api: "Api", request: Request) -> Response:
    try:
        await api.chats.stop(_id(request))
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    return Response(status_code=204)


async def answer_ask(api: "Api", request: Request) -> Response:
    given = await json_body(request, ANSWER)
    try:
        heard = await api.chats.answer(_id(request), request.path_params["ask_id"], given["answer"])
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    if not heard:
        raise Conflict("this question does not wait for an answer")
    return Response(status_code=204)


def _stream(api: "Api", messages: AsyncIterator["Message"]) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        async for event, data in messages:
            if event == "still":
                yield b": still here\n\n"
            else:
                yield b"event: " + event.encode() + b"\ndata: " + encode(api.veil(data)) + b"\n\n"

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(lines(), media_type=_EVENT_STREAM, headers=headers)


def _id(request: Request) -> str:
    return request.path_params["chat_id"]


# --- the model ---


async def show_model(api: "Api", request: Request) -> Response:
    return api.answer(api.chats.choice.as_dict())


async def choose_model(api: "Api", request: Request) -> Response:
    given = await json_body(request, CHOOSE)
    try:
        chosen = await run_in_threadpool(api.chats.choose, given)
    except ConfigError as error:
        raise RequestRefused(str(error)) from error
    return api.answer(chosen.as_dict())


# --- commands ---


async def list_commands(api: "Api", request: Request) -> Response:
    wanted = (query(request, "q") or "").lstrip("/").strip()[:200]
    found = await run_in_threadpool(api.chats.commands, wanted, COMMANDS)
    return api.answer({"commands": found})


# --- the table ---

ITEM: Final[Schema] = record({"id": TEXT, "type": TEXT, "at_ms": WHOLE})
_CHAT: Final = record({"id": TEXT, "title": TEXT, "skills": many(TEXT), "model": TEXT, "status": TEXT})
_MODEL: Final = record(
    {"provider": TEXT, "model": TEXT, "base_url": TEXT, "has_key": FLAG, "tools": FLAG, "offline": FLAG}
)
_LISTED: Final = record({**_CHAT["properties"], "created_ms": WHOLE, "updated_ms": WHOLE})
_WHOLE_CHAT: Final = record({**_CHAT["properties"], "items": many(ITEM)})
_TURN: Final = {200: {_EVENT_STREAM: TEXT}}

SEND: Final = Endpoint(
    "POST", "/api/chats/{chat_id}/messages", "Say something in a chat; the answer is a stream", send_message,
    body=record({"text": TEXT}), body_required=True, answers=_TURN,
)  # fmt: skip
ANSWER: Final = Endpoint(
    "POST", "/api/chats/{chat_id}/answers/{ask_id}", "Answer a question of the policy", answer_ask,
    body=record({"answer": {"enum": ["once", "always", "no"]}}), body_required=True, answers={204: {}},
)  # fmt: skip
CHOOSE: Final = Endpoint(
    "PUT", "/api/model", "Choose the model that answers, until the server ends", choose_model,
    body=record(
        {"provider": {"enum": list(PROVIDERS)}},
        {"model": MAYBE, "base_url": MAYBE, "api_key": MAYBE, "tools": FLAG},
    ),
    body_required=True, answers={200: {JSON: _MODEL}},
)  # fmt: skip

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        "GET", "/api/chats", "The chats, the one used last first", list_chats,
        answers={200: {JSON: record({"chats": many(_LISTED)})}},
    ),
    Endpoint("POST", "/api/chats", "Begin a chat", create_chat, answers={201: {JSON: record({"id": NAME})}}),
    Endpoint("GET", "/api/chats/{chat_id}", "A chat with its items", read_chat, answers={200: {JSON: _WHOLE_CHAT}}),
    Endpoint("DELETE", "/api/chats/{chat_id}", "Hide a chat", hide_chat, answers={204: {}}),
    SEND,
    Endpoint(
        "POST", "/api/chats/{chat_id}/retry", "Answer the last message again; the answer is a stream", retry,
        answers=_TURN,
    ),
    Endpoint("GET", "/api/chats/{chat_id}/stream", "Join the turn that is at work", join, answers=_TURN),
    Endpoint("POST", "/api/chats/{chat_id}/stop", "Stop the turn that is at work", stop, answers={204: {}}),
    ANSWER,
    Endpoint("GET", "/api/model", "The model that answers", show_model, answers={200: {JSON: _MODEL}}),
    CHOOSE,
    Endpoint(
        "GET", "/api/commands", "Commands that begin with, or fit, what was typed", list_commands, {"q": TEXT},
        answers={200: {JSON: record({"commands": many(OBJECT)})}},
    ),
)  # fmt: skip
