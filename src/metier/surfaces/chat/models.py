"""Opens the model of a `ModelChoice`, asks its server which models it has, and explains its errors in one sentence.

Every turn opens and closes its own connection, so changed settings, changed keys and dead connections never affect the
next turn. Redirects are not followed, because only the configured address was checked, and a key goes nowhere else.
"""

import contextlib
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

import httpx2
from pydantic_ai import exceptions
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from metier.errors import MetierError, report_missing
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_items, is_table
from metier.surfaces.chat.demo_model import DemoModel
from metier.surfaces.chat.model_choice import ModelChoice, ModelUnavailable

CONNECT_SECONDS: Final = 15.0
REQUEST_SECONDS: Final = 1_800.0
"""For one whole answer of a model, even if it never falls silent."""

LIST_SECONDS: Final = 15.0
TEST_SECONDS: Final = 60.0
LIST_BYTES: Final = 4 << 20
LISTED: Final = 1_000

_DEFAULTS: Final[Mapping[str, str]] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}

_LENGTH: Final = re.compile(
    r"context.{0,20}(length|window|size)|too (long|many tokens|large)|maximum.{0,30}tokens", re.IGNORECASE
)
"""How servers say that a request is too long. There is no common code for it."""

_SHOWN: Final = 300
"""Characters of a server's own message that are shown."""


@contextlib.asynccontextmanager
async def opened(choice: ModelChoice, roles: Mapping[str, str], nothing: str = "") -> AsyncGenerator[Model]:
    """The model of a choice. `roles` maps the role of each tool to the name that the model is given.

    `nothing` is why there are no skills, if that is known.
    """
    if choice.provider == "offline":
        yield DemoModel(roles, nothing)
        return
    timeout = httpx2.Timeout(choice.timeout, connect=min(CONNECT_SECONDS, choice.timeout))
    # A model on this machine must not be reached through a proxy on another one.
    async with httpx2.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=not choice.local) as client:
        try:
            model = _model(choice, client)
        except ImportError as error:
            report_missing(error, f"a model of {choice.provider}", "models")
        yield model


def _model(choice: ModelChoice, client: httpx2.AsyncClient) -> Model:
    url = choice.base_url or None
    if choice.provider != "openai" or url is None:
        kind = "openai-chat" if choice.provider == "openai" else choice.provider
        provider: Callable[..., Provider[object]] = infer_provider_class(kind)
        given = {"api_key": choice.key or "none", "base_url": url, "http_client": client}
        return infer_model(f"{kind}:{choice.name}", lambda _: provider(**given))
    from openai.types.chat import ChatCompletionMessageParam
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    class CompatibleModel(OpenAIChatModel):
        """Sends what such servers take, too: a message with calls of tools and without text has an empty text."""

        def _map_model_response(self, message: ModelResponse) -> ChatCompletionMessageParam | None:
            mapped = super()._map_model_response(message)
            if mapped is not None and mapped["role"] == "assistant" and mapped.get("content") is None:
                mapped["content"] = ""  # null is allowed, but the server of llama-cpp-python refuses it
            return mapped

    compatible = OpenAICompatibleProvider("compatible", base_url=url, api_key=choice.key or None, http_client=client)
    return CompatibleModel(choice.name, provider=compatible)


def finished(response: ModelResponse, choice: ModelChoice) -> bool:
    """Whether the server marked its answer as complete. The client library only sees the end of the stream."""
    return choice.provider not in ("openai", "ollama") or "finish_reason" in (response.provider_details or {})


def refusal(response: ModelResponse) -> str:
    """What a person reads where the model or its server refused to answer; empty if neither did."""
    said: object = (response.provider_details or {}).get("refusal")
    if isinstance(said, str) and said.strip():
        return f"The model refused to answer: {said.strip()}"
    if response.finish_reason != "content_filter":
        return ""
    if any(isinstance(part, TextPart) and part.content.strip() for part in response.parts):
        return "The model's server withheld a part of the answer."
    return "The model refused to answer."


# --- which models there are, and whether one answers ---


async def model_names(choice: ModelChoice) -> list[str]:
    """The names of the provider's models, sorted. Raises `ModelUnavailable`."""
    if choice.provider == "offline":
        return []
    address, headers = _address(choice)
    try:
        async with (
            httpx2.AsyncClient(timeout=LIST_SECONDS, follow_redirects=False, trust_env=not choice.local) as client,
            client.stream("GET", address, headers=headers) as answer,
        ):
            data = b""
            async for piece in answer.aiter_bytes():
                data += piece
                if len(data) > LIST_BYTES:
                    raise ModelUnavailable(f"The server of {choice.provider} sent too long a list of models.")
    except httpx2.HTTPError as error:
        raise ModelUnavailable(explain(error, choice)) from error
    except (httpx2.InvalidURL, ValueError) as error:
        raise ModelUnavailable("The key or the address has characters that cannot be sent.") from error
    if answer.status_code != 200:
        raise ModelUnavailable(_explain(ConnectionError(), choice, answer.status_code))
    try:
        found = as_table(parse_json(data))
    except (ValueError, RecursionError) as error:
        raise ModelUnavailable(f"The server of {choice.provider} sent no list of models.") from error
    return _names(found)


def _address(choice: ModelChoice) -> tuple[str, dict[str, str]]:
    base = (choice.base_url or _DEFAULTS.get(choice.provider, "")).rstrip("/")
    if choice.provider == "anthropic":
        headers = {"anthropic-version": "2023-06-01", "x-api-key": choice.key}
        return f"{base.removesuffix('/v1')}/v1/models?limit=1000", headers
    if choice.provider == "google":
        return f"{base}/v1beta/models?pageSize=1000", {"x-goog-api-key": choice.key}
    return f"{base}/models", {"authorization": f"Bearer {choice.key}"} if choice.key else {}


def _names(found: Mapping[str, object]) -> list[str]:
    listed = found.get("data") or found.get("models") or ()
    names: set[str] = set()
    for one in listed if is_items(listed) else ():
        if is_table(one):
            name = one.get("id") or one.get("name")
            if isinstance(name, str) and name.isprintable() and len(name) <= 200:
                names.add(name.removeprefix("models/"))
    return sorted(names)[:LISTED]


async def answer_time(choice: ModelChoice) -> float:
    """Ask the model for a word, and return the seconds that it took. Raises `ModelUnavailable`."""
    began = time.monotonic()
    question = ModelRequest(parts=[UserPromptPart("Answer with the word: ok")])
    settings = ModelSettings(max_tokens=64, request_timeout=TEST_SECONDS, max_retries=0)
    try:
        async with (
            opened(choice, {}) as model,
            model_request_stream(model, [question], model_settings=settings) as stream,
        ):
            async for _ in stream:
                pass
    except MetierError:
        raise
    except Exception as error:
        raise ModelUnavailable(explain(error, choice)) from error
    return time.monotonic() - began


# --- errors ---


def explain(error: BaseException, choice: ModelChoice) -> str:
    """What went wrong with the model's server, and what to do about it. The text never contains the key."""
    text = _explain(error, choice)
    return text.replace(choice.key, "[key]") if choice.key else text


def _explain(error: BaseException, choice: ModelChoice, known: int | None = None) -> str:
    """The sentence for an error. `known` is the status where there is no error of the client library."""
    server = f"The server of {choice.label}"
    status = known if known is not None else status_of(error)
    if isinstance(error, exceptions.ModelRequestTimeout | exceptions.ModelTimeoutError | httpx2.TimeoutException):
        return f"{server} was silent for too long. Try again, or choose a faster model."
    if status in (401, 403):
        return f"{server} refuses the key (HTTP {status}). Check the key in the settings.{_message(error)}"
    if status == 404:
        return f"{server} does not know this model or address (HTTP 404). Check both in the settings.{_message(error)}"
    if status == 429:
        return f"{server} is overloaded, or the quota is used up (HTTP 429). Wait, then try again.{_message(error)}"
    if status is not None and 300 <= status < 400:
        return f"{server} redirects to another address (HTTP {status}), which is not followed. Set the right address."
    if status is not None:
        return f"{server} answered with an error (HTTP {status}).{_message(error)} Try again."
    if isinstance(error, exceptions.ModelConnectionError | httpx2.TransportError):
        return f"The connection to the server of {choice.label} failed or was cut off. Check the address; try again."
    if isinstance(error, exceptions.ModelAPIError | exceptions.UnexpectedModelBehavior | ValueError):
        return f"{server} sent an invalid answer. Try again."
    return f"{server} could not be asked ({type(error).__name__}). Try again."


def too_long(error: BaseException) -> bool:
    """Whether the server refuses a request because the conversation is longer than its model takes."""
    return status_of(error) == 413 or (status_of(error) == 400 and bool(_LENGTH.search(f"{_message(error)} {error}")))


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an error of the client library, or of the provider's library below it."""
    found: object = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    return found if isinstance(found, int) else None


def _message(error: BaseException) -> str:
    """The server's own message, if it has the usual shape. Nothing else of its answer is shown."""
    body: object = getattr(error, "body", None)
    if not is_table(body):
        return ""
    inner = body.get("error", body)
    if is_table(inner):
        inner = inner.get("message")
    line = " ".join(inner.split())[:_SHOWN] if isinstance(inner, str) else ""
    return f" It says: {line}" if line else ""
