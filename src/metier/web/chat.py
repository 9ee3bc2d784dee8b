"""The chat over HTTP: chats, their turns as server-sent events, the model that answers, and commands.

The messages of a stream are `item` (a whole item, whenever it changes), `delta` (text to append to an item) and `end`.
A client may leave: the turn continues, and `GET .../stream` joins it again, through any server of the store.
"""

import functools
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from metier.chat import ChatBusy, NoSuchChat
from metier.chat.chat_store import LISTED
from metier.chat.engine import MESSAGE_CHARACTERS
from metier.chat.model_choice import PROVIDERS
from metier.errors import BadArguments
from metier.record.streams import chat_stream
from metier.session.json_schema import Schema
from metier.web import files, model_api, sse
from metier.web.endpoints import (
    JSON,
    Conflict,
    Endpoint,
    NotFound,
    RequestRefused,
    ServerBusy,
    encode,
    json_body,
    query,
)
from metier.web.schemas import FLAG, MAYBE, NAME, OBJECT, TEXT, WHOLE, many, record
from metier.web.threads import run_in_threadpool

if TYPE_CHECKING:
    from metier.chat.live import TurnMessage
    from metier.web.api import Api

COMMANDS: Final = 50
"""Commands that are offered at once."""


# --- chats ---


async def list_chats(api: "Api", request: Request) -> Response:
    found = (await run_in_threadpool(api.chats.store.chats))[:LISTED]
    chats = [
        {
            "id": chat_id,
            "title": head.title,
            "created_ms": head.created_ms,
            "updated_ms": head.updated_ms,
            "skills": list(head.skills),
            "model": head.model,
            "status": head.shown_status,
        }
        for chat_id, head in found
    ]
    return api.answer({"chats": chats})


async def create_chat(api: "Api", request: Request) -> Response:
    return api.answer({"id": await run_in_threadpool(api.chats.store.create)}, 201)


async def read_chat(api: "Api", request: Request) -> Response:
    chat_id = _id(request)
    try:
        head, items = await run_in_threadpool(api.chats.read, chat_id)
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    turn = api.chats.turn(chat_id)
    return api.answer(
        {
            "id": chat_id,
            "title": head.title,
            "model": head.model,
            "skills": turn.skills if turn is not None else list(head.skills),
            "status": turn.status if turn is not None else head.shown_status,
            "items": [item.as_dict() for item in items],
        }
    )


async def hide_chat(api: "Api", request: Request) -> Response:
    try:
        await run_in_threadpool(api.chats.store.hide, _id(request))
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    except ChatBusy as error:
        raise Conflict(str(error)) from error
    return Response(status_code=204)


# --- turns ---


async def send_message(api: "Api", request: Request) -> Response:
    given = await json_body(request, SEND)
    text: str = given["text"]
    if not text.strip():
        raise RequestRefused("the message is empty")
    if len(text) > MESSAGE_CHARACTERS:
        raise RequestRefused(f"a message may have at most {MESSAGE_CHARACTERS:,} characters")
    return await _begin(api, _id(request), text, given.get("replaces") or "")


async def retry(api: "Api", request: Request) -> Response:
    return await _begin(api, _id(request), None)


async def _begin(api: "Api", chat_id: str, text: str | None, replaces: str = "") -> Response:
    try:
        turn = await api.chats.start(chat_id, text, replaces)
    except BadArguments as error:
        raise RequestRefused(str(error)) from error
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    except ChatBusy as error:
        if error.here:
            raise ServerBusy(str(error)) from error
        raise Conflict(str(error)) from error
    return _stream(api, chat_id, turn.live.follow)


async def join(api: "Api", request: Request) -> Response:
    chat_id = _id(request)
    try:
        await run_in_threadpool(api.chats.store.head, chat_id)
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    return _stream(api, chat_id, functools.partial(api.chats.follow, chat_id))


def _stream(
    api: "Api", chat_id: str, source: "Callable[[sse.Subscriber], AsyncGenerator[TurnMessage | None]]"
) -> Response:
    async def write(message: "TurnMessage") -> bytes:
        return sse.message(message.event, encode(api.hide_paths(message.data)))

    return sse.respond(api.feed.follow(chat_stream(chat_id), source, write))


async def stop(api: "Api", request: Request) -> Response:
    try:
        await api.chats.stop(_id(request))
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    return Response(status_code=204)


async def answer_ask(api: "Api", request: Request) -> Response:
    given = await json_body(request, ANSWER)
    try:
        answered = await api.chats.answer(_id(request), request.path_params["ask_id"], given["answer"])
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    if not answered:
        raise Conflict("this question does not wait for an answer")
    return Response(status_code=204)


async def pick_skill(api: "Api", request: Request) -> Response:
    given = await json_body(request, PICK)
    try:
        picked = await api.chats.pick(_id(request), request.path_params["choice_id"], given.get("skill_id") or "")
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    if not picked:
        raise Conflict("no choice with this skill waits for an answer")
    return Response(status_code=204)


def _id(request: Request) -> str:
    return request.path_params["chat_id"]


# --- the model ---


async def show_model(api: "Api", request: Request) -> Response:
    try:
        choice = await run_in_threadpool(api.chats.choice_of, query(request, "chat") or "")
    except NoSuchChat as error:
        raise NotFound(str(error)) from error
    return api.answer(choice.as_dict())


async def choose_model(api: "Api", request: Request) -> Response:
    chosen = await model_api.checked(api, await json_body(request, CHOOSE), "choose")
    return api.answer(chosen.as_dict())


# --- commands ---


async def list_commands(api: "Api", request: Request) -> Response:
    typed = (query(request, "q") or "").lstrip("/").strip()[:200]
    found = await run_in_threadpool(api.chats.commands, typed, COMMANDS)
    return api.answer({"commands": found})


# --- the table ---

ITEM: Final[Schema] = record({"id": TEXT, "type": TEXT, "at_ms": WHOLE})
_CHAT: Final = record({"id": TEXT, "title": TEXT, "skills": many(TEXT), "model": TEXT, "status": TEXT})
_MODEL: Final = record(
    {
        "provider": TEXT,
        "model": TEXT,
        "base_url": TEXT,
        "has_key": FLAG,
        **dict.fromkeys(("tools", "images", "offline"), FLAG),
    }
)
_LISTED: Final = record({**_CHAT["properties"], "created_ms": WHOLE, "updated_ms": WHOLE})
_WHOLE_CHAT: Final = record({**_CHAT["properties"], "items": many(ITEM)})
_TURN: Final = {200: {sse.EVENT_STREAM: TEXT}}

SEND: Final = Endpoint(
    method="POST",
    path="/api/chats/{chat_id}/messages",
    summary="Send a message, or another one in the place of an earlier one; the answer is a stream",
    handler=send_message,
    body=record({"text": TEXT}, {"replaces": MAYBE}),
    body_required=True,
    answers=_TURN,
)
ANSWER: Final = Endpoint(
    method="POST",
    path="/api/chats/{chat_id}/answers/{ask_id}",
    summary="Answer a question of the policy",
    handler=answer_ask,
    body=record({"answer": {"enum": ["once", "always", "no"]}}),
    body_required=True,
    answers={204: {}},
)
PICK: Final = Endpoint(
    method="POST",
    path="/api/chats/{chat_id}/choices/{choice_id}",
    summary="Pick one of several skills that bear a name; null picks none",
    handler=pick_skill,
    body=record({"skill_id": MAYBE}),
    body_required=True,
    answers={204: {}},
)
CHOOSE: Final = Endpoint(
    method="PUT",
    path="/api/model",
    summary="Choose the model that answers, in all chats or in one; an address on this machine must be confirmed",
    handler=choose_model,
    body=record(
        {"provider": {"enum": list(PROVIDERS)}},
        {
            **dict.fromkeys(("model", "base_url", "api_key"), MAYBE),
            **dict.fromkeys(("tools", "images", "confirmed"), FLAG),
            "chat": TEXT,
        },
    ),
    body_required=True,
    answers={200: {JSON: _MODEL}},
    refusals={409: "the address is on this machine, and was not confirmed"},
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *files.ENDPOINTS,
    Endpoint(
        method="GET",
        path="/api/chats",
        summary="The chats, the most recently used first",
        handler=list_chats,
        answers={200: {JSON: record({"chats": many(_LISTED)})}},
    ),
    Endpoint(
        method="POST",
        path="/api/chats",
        summary="Create a chat",
        handler=create_chat,
        answers={201: {JSON: record({"id": NAME})}},
    ),
    Endpoint(
        method="GET",
        path="/api/chats/{chat_id}",
        summary="A chat with its items",
        handler=read_chat,
        answers={200: {JSON: _WHOLE_CHAT}},
    ),
    Endpoint(method="DELETE", path="/api/chats/{chat_id}", summary="Hide a chat", handler=hide_chat, answers={204: {}}),
    SEND,
    Endpoint(
        method="POST",
        path="/api/chats/{chat_id}/retry",
        summary="Answer the last message again; the answer is a stream",
        handler=retry,
        answers=_TURN,
    ),
    Endpoint(
        method="GET",
        path="/api/chats/{chat_id}/stream",
        summary="Follow the turn that is running",
        handler=join,
        answers=_TURN,
    ),
    Endpoint(
        method="POST",
        path="/api/chats/{chat_id}/stop",
        summary="Stop the turn that is running",
        handler=stop,
        answers={204: {}},
    ),
    ANSWER,
    PICK,
    Endpoint(
        method="GET",
        path="/api/model",
        summary="The model that answers, in all chats or in one",
        handler=show_model,
        query={"chat": TEXT},
        refusals={404: "there is no such chat"},
        answers={200: {JSON: _MODEL}},
    ),
    CHOOSE,
    Endpoint(
        method="GET",
        path="/api/commands",
        summary="Commands that begin with the typed text, then those that match it",
        handler=list_commands,
        query={"q": TEXT},
        answers={200: {JSON: record({"commands": many(OBJECT)})}},
    ),
)
