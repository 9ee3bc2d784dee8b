"""The chat over HTTP: chats, their turns as server-sent events, the model that answers, files, and commands.

The messages of a stream are `item` (a whole item, whenever it changes), `delta` (text to append to an item) and `end`.
A client may leave: the turn continues, and `GET .../stream` joins it again, through any server of the store.
"""

import functools
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NotRequired, Required, TypedDict, cast
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier.errors import BadArguments, ResourceError, report_missing
from metier.files.digests import is_digest
from metier.record.events import chat_stream
from metier.record.runs import MadeFile, made_files
from metier.surfaces.chat.chat_store import LABEL_CHARACTERS, LISTED
from metier.surfaces.chat.engine import MESSAGE_CHARACTERS
from metier.surfaces.chat.model_choice import ModelChoice, Provider
from metier.surfaces.web import sse
from metier.surfaces.web.endpoints import JSON, Endpoint, Problem, query
from metier.surfaces.web.site import Site, encode
from metier.values.results import Choice
from metier.values.value import Count, JsonObject, Name, Value

if TYPE_CHECKING:
    from metier.surfaces.chat.live import TurnMessage

COMMANDS: Final = 50
"""Commands that are offered at once."""

_TURN: Final = {200: {sse.EVENT_STREAM: str}}
_NOTHING: Final[dict[int, Any]] = {204: {}}
BYTES: Final = "application/octet-stream"
_UNCONFIRMED: Final = {409: "the address is on this machine, and was not confirmed"}


class ItemHead(TypedDict):
    """What every item of a chat has. What else it has depends on its type."""

    id: str
    type: str
    at_ms: int


class _Chat(Value, kw_only=True):
    id: str
    title: str
    skills: Sequence[str]
    model: str
    status: str


class ListedChat(_Chat, kw_only=True):
    created_ms: int
    updated_ms: int


class ListedChats(Value):
    chats: list[ListedChat]


class WholeChat(_Chat, kw_only=True):
    items: list[ItemHead]


class NewChat(Value):
    id: Name


class ChatLabel(Value):
    title: str
    pinned: bool


class ChangedLabel(TypedDict, total=False):
    """What a person changes of it."""

    title: str
    pinned: bool


class SentMessage(TypedDict):
    text: str
    replaces: NotRequired[str | None]


class GivenAnswer(TypedDict):
    answer: Choice


class PickedSkill(TypedDict):
    skill_id: str | None


class ModelShown(TypedDict):
    """A model, without its key."""

    provider: str
    model: str
    base_url: str
    has_key: bool
    tools: bool
    images: bool
    offline: bool


class NamedModel(TypedDict, total=False):
    provider: Required[Provider]
    model: str | None
    base_url: str | None
    api_key: str | None
    confirmed: bool
    chat: str


class WantedModel(NamedModel, total=False):
    tools: bool
    images: bool


class ModelNames(Value):
    models: Sequence[str]


class ToldMessage(Value):
    message: str


class ListedCommands(Value):
    commands: Sequence[JsonObject]


def _id(request: Request) -> str:
    return request.path_params["chat_id"]


# --- chats ---


@Endpoint("GET", "/api/chats", "The chats, the most recently used first", answers=ListedChats)
def list_chats(site: Site, request: Request, given: None) -> object:
    chats = [
        ListedChat(
            id=chat_id,
            title=head.title,
            created_ms=head.created_ms,
            updated_ms=head.updated_ms,
            skills=head.skills,
            model=head.model,
            status=head.shown_status,
        )
        for chat_id, head in site.chats.store.chats()[:LISTED]
    ]
    return ListedChats(chats)


@Endpoint("POST", "/api/chats", "Create a chat", answers={201: {JSON: NewChat}})
def create_chat(site: Site, request: Request, given: None) -> object:
    return NewChat(site.chats.store.create())


@Endpoint("GET", "/api/chats/{chat_id}", "A chat with its items", answers=WholeChat)
def read_chat(site: Site, request: Request, given: None) -> object:
    head, items = site.chats.read(_id(request))
    turn = site.chats.turn(_id(request))
    return WholeChat(
        id=_id(request),
        title=head.title,
        model=head.model,
        skills=turn.skills if turn is not None else head.skills,
        status=turn.status if turn is not None else head.shown_status,
        items=cast("list[ItemHead]", [item.as_dict() for item in items]),
    )


@Endpoint(
    "PATCH",
    "/api/chats/{chat_id}",
    "Rename or pin a chat; an empty title is the one that the chat gave itself",
    body=ChangedLabel,
    answers=ChatLabel,
)
def change_chat(site: Site, request: Request, given: dict[str, Any]) -> object:
    changes: dict[str, object] = dict(given)
    if "title" in given:
        changes["title"] = title = " ".join(str(given["title"]).split())
        if len(title) > LABEL_CHARACTERS:
            raise Problem(422, f"a title may have at most {LABEL_CHARACTERS} characters")
    label = site.chats.store.change(_id(request), **changes)
    return ChatLabel(str(label.get("title", "")), bool(label.get("pinned")))


@Endpoint("DELETE", "/api/chats/{chat_id}", "Hide a chat", answers=_NOTHING)
def hide_chat(site: Site, request: Request, given: None) -> None:
    site.chats.store.hide(_id(request))


@Endpoint("POST", "/api/chats/{chat_id}/restore", "Put a hidden chat back into the list", answers=_NOTHING)
def restore_chat(site: Site, request: Request, given: None) -> None:
    site.chats.store.unhide(_id(request))


# --- turns ---


@Endpoint(
    "POST",
    "/api/chats/{chat_id}/messages",
    "Send a message, or another one in the place of an earlier one; the answer is a stream",
    body=SentMessage,
    answers=_TURN,
)
async def send_message(site: Site, request: Request, given: dict[str, Any]) -> Response:
    text: str = given["text"]
    if not text.strip():
        raise Problem(422, "the message is empty")
    if len(text) > MESSAGE_CHARACTERS:
        raise Problem(422, f"a message may have at most {MESSAGE_CHARACTERS:,} characters")
    return await _begin(site, _id(request), text, given.get("replaces") or "")


@Endpoint("POST", "/api/chats/{chat_id}/retry", "Answer the last message again; the answer is a stream", answers=_TURN)
async def retry(site: Site, request: Request, given: None) -> Response:
    return await _begin(site, _id(request), None)


async def _begin(site: Site, chat_id: str, text: str | None, replaces: str = "") -> Response:
    try:
        turn = await site.chats.start(chat_id, text, replaces)
    except BadArguments as error:
        raise Problem(422, str(error)) from error
    return _stream(site, "", turn.live.follow)  # the turn runs here and wakes its followers itself


@Endpoint("GET", "/api/chats/{chat_id}/stream", "Follow the turn that is running", answers=_TURN)
async def join(site: Site, request: Request, given: None) -> Response:
    await run_in_threadpool(site.chats.store.head, _id(request))
    return _stream(site, chat_stream(_id(request)), functools.partial(site.chats.follow, _id(request)))


def _stream(
    site: Site, stream_id: str, source: "Callable[[sse.Subscriber], AsyncGenerator[TurnMessage | None]]"
) -> Response:
    async def write(message: "TurnMessage") -> bytes:
        return sse.message(message.event, encode(site.hide_paths(message.data)))

    return sse.respond(site.feed.follow(stream_id, source, write))


@Endpoint("POST", "/api/chats/{chat_id}/stop", "Stop the turn that is running", answers=_NOTHING)
async def stop(site: Site, request: Request, given: None) -> None:
    await site.chats.stop(_id(request))


@Endpoint(
    "POST",
    "/api/chats/{chat_id}/answers/{ask_id}",
    "Answer a question of the policy",
    body=GivenAnswer,
    answers=_NOTHING,
)
async def answer_ask(site: Site, request: Request, given: dict[str, Any]) -> None:
    if not await site.chats.answer(_id(request), request.path_params["ask_id"], given["answer"]):
        raise Problem(409, "this question does not wait for an answer")


@Endpoint(
    "POST",
    "/api/chats/{chat_id}/choices/{choice_id}",
    "Pick one of several skills that bear a name; null picks none",
    body=PickedSkill,
    answers=_NOTHING,
)
async def pick_skill(site: Site, request: Request, given: dict[str, Any]) -> None:
    if not await site.chats.answer(_id(request), request.path_params["choice_id"], given.get("skill_id") or ""):
        raise Problem(409, "no choice with this skill waits for an answer")


# --- the model ---


@Endpoint(
    "GET",
    "/api/model",
    "The model that answers, in all chats or in one",
    query={"chat": str},
    refusals={404: "there is no such chat"},
    answers=ModelShown,
)
def show_model(site: Site, request: Request, given: None) -> object:
    return site.chats.choice_of(query(request, "chat") or "").as_dict()


@Endpoint(
    "PUT",
    "/api/model",
    "Choose the model that answers, in all chats or in one; an address on this machine must be confirmed",
    body=WantedModel,
    answers=ModelShown,
    refusals=_UNCONFIRMED,
)
def choose_model(site: Site, request: Request, given: dict[str, Any]) -> object:
    return site.chats.choose(given).as_dict()


async def _requested(site: Site, given: dict[str, Any]) -> ModelChoice:
    """The model of a request. The same rules hold as for choosing one: which addresses a page may name."""
    given["model"] = given.get("model") or "any"
    return await run_in_threadpool(site.chats.requested, given)


@Endpoint(
    "POST",
    "/api/model/list",
    "The names of a provider's models",
    body=NamedModel,
    answers=ModelNames,
    refusals=_UNCONFIRMED,
)
async def list_models(site: Site, request: Request, given: dict[str, Any]) -> object:
    try:
        from metier.surfaces.chat.models import model_names
    except ImportError as error:
        report_missing(error, "the chat", "web")
    return ModelNames(await model_names(await _requested(site, given)))


@Endpoint(
    "POST", "/api/model/test", "Whether a model answers", body=NamedModel, answers=ToldMessage, refusals=_UNCONFIRMED
)
async def test_model(site: Site, request: Request, given: dict[str, Any]) -> object:
    try:
        from metier.surfaces.chat.models import answer_time
    except ImportError as error:
        report_missing(error, "the chat", "web")
    choice = await _requested(site, given)
    return ToldMessage(f"{choice.name} answered in {await answer_time(choice):.1f} seconds.")


# --- files ---
# A file is only ever bytes: it is sent back to be saved and never shown, whatever its name or content claims.


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
def add_file(site: Site, request: Request, given: bytes) -> object:
    try:
        return site.chats.add_file(request.path_params["chat_id"], query(request, "name") or "", given).as_dict()
    except (BadArguments, ResourceError) as error:
        raise Problem(422, str(error)) from error


@Endpoint(
    "GET",
    "/api/sessions/{session_id}/files",
    "The files that scripts of a session made, the latest first",
    answers=MadeFiles,
)
def list_files(site: Site, request: Request, given: None) -> object:
    return MadeFiles(made_files(site.app.store, request.path_params["session_id"]))


@Endpoint(
    "GET",
    "/api/sessions/{session_id}/files/{digest}",
    "A file that a script of a session made",
    answers={200: {BYTES: str}},
)
def fetch_file(site: Site, request: Request, given: None) -> Response:
    session, digest = request.path_params["session_id"], request.path_params["digest"]
    found = made_files(site.app.store, session) if is_digest(digest) else ()
    file = next((one for one in found if one.digest == digest), None)
    if file is None:
        raise Problem(404, "no script of this session made such a file")
    name = quote(file.path.rpartition("/")[2], safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'",
        "cache-control": "private, no-store",
    }
    return Response(site.app.store.get_artifact(digest), headers=headers, media_type=BYTES)


# --- commands ---


@Endpoint(
    "GET",
    "/api/commands",
    "Commands that begin with the typed text, then those that match it",
    query={"q": str},
    answers=ListedCommands,
)
def list_commands(site: Site, request: Request, given: None) -> object:
    typed = (query(request, "q") or "").lstrip("/").strip()[:200]
    return ListedCommands(site.chats.commands(typed, COMMANDS))


ENDPOINTS: Final = (
    *(add_file, list_files, fetch_file),
    *(list_chats, create_chat, read_chat, hide_chat, send_message, retry, join, stop, answer_ask, pick_skill),
    *(show_model, choose_model, list_commands, change_chat, restore_chat, list_models, test_model),
)
