"""The models of a provider over HTTP: which there are, and whether one answers.

The same rules hold as for choosing a model: which addresses a page may name, and where a key goes.
"""

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from metier.chat import NoSuchChat
from metier.chat.model_choice import PROVIDERS, UnconfirmedAddress
from metier.errors import ConfigError, report_missing
from metier.web.endpoints import JSON, Conflict, Endpoint, NotFound, RequestRefused, json_body
from metier.web.schemas import FLAG, MAYBE, TEXT, many, record
from metier.web.threads import run_in_threadpool

if TYPE_CHECKING:
    from metier.chat.model_choice import ModelChoice
    from metier.web.api import Api


class ConfirmationNeeded(Conflict):
    """A person has to confirm the request; send it again with `confirmed`."""

    code = "CONFIRM"


async def requested(api: "Api", request: Request, endpoint: Endpoint) -> "ModelChoice":
    """The model of a request, or the error that says why a page may not ask for it."""
    given = await json_body(request, endpoint)
    given["model"] = given.get("model") or "any"
    return await checked(api, given, "requested")


async def checked(api: "Api", given: dict[str, object], method: str) -> "ModelChoice":
    """Choose a model, or only find out which one it would be, with the errors that HTTP has for it."""
    try:
        return await run_in_threadpool(getattr(api.chats, method), given)
    except UnconfirmedAddress as error:
        raise ConfirmationNeeded(error.message) from error
    except ConfigError as error:
        raise RequestRefused(str(error)) from error
    except NoSuchChat as error:
        raise NotFound(str(error)) from error


async def list_models(api: "Api", request: Request) -> Response:
    try:
        from metier.chat.model_list import ModelUnavailable, model_names
    except ImportError as error:
        report_missing(error, "the chat", "web")
    choice = await requested(api, request, LIST)
    try:
        return api.answer({"models": await model_names(choice)})
    except ModelUnavailable as error:
        raise RequestRefused(str(error)) from error


async def test_model(api: "Api", request: Request) -> Response:
    try:
        from metier.chat.model_list import ModelUnavailable, answer_time
    except ImportError as error:
        report_missing(error, "the chat", "web")
    choice = await requested(api, request, TEST)
    try:
        seconds = await answer_time(choice)
    except ModelUnavailable as error:
        raise RequestRefused(str(error)) from error
    return api.answer({"message": f"{choice.name} answered in {seconds:.1f} seconds."})


_GIVEN: Final = record(
    {"provider": {"enum": list(PROVIDERS)}},
    {"model": MAYBE, "base_url": MAYBE, "api_key": MAYBE, "confirmed": FLAG, "chat": TEXT},
)
LIST: Final = Endpoint(
    method="POST",
    path="/api/model/list",
    summary="The names of a provider's models",
    handler=list_models,
    body=_GIVEN,
    body_required=True,
    answers={200: {JSON: record({"models": many(TEXT)})}},
    refusals={409: "the address is on this machine, and was not confirmed"},
)
TEST: Final = Endpoint(
    method="POST",
    path="/api/model/test",
    summary="Whether a model answers",
    handler=test_model,
    body=_GIVEN,
    body_required=True,
    answers={200: {JSON: record({"message": TEXT})}},
    refusals={409: "the address is on this machine, and was not confirmed"},
)
ENDPOINTS: Final[tuple[Endpoint, ...]] = (LIST, TEST)
