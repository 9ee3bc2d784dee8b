"""A choice becomes a model that can be asked, and whatever goes wrong with its server becomes one sentence.

Each turn opens its own connection and closes it, so that a changed setting, a changed key or a dead connection never
reaches into the next one. Redirects are not followed: an address was checked, and another one would not be.
"""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, cast

import httpx2
from pydantic_ai import exceptions
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from metier.chat.demo_model import Guide
from metier.chat.model_choice import Choice
from metier.errors import MissingExtra

CONNECT_SECONDS: Final = 15.0
REQUEST_SECONDS: Final = 1_800.0
"""For one whole answer of a model, however steadily it talks."""

_SHOWN: Final = 300
"""Characters of a server's own words that are shown."""


@contextlib.asynccontextmanager
async def opened(choice: Choice, roles: Mapping[str, str]) -> AsyncGenerator[Model]:
    """The model of a choice. `roles` are the names of the tools as the model is told them."""
    if choice.provider == "offline":
        yield Guide(roles)
        return
    timeout = httpx2.Timeout(choice.timeout, connect=min(CONNECT_SECONDS, choice.timeout))
    # What is on this machine is not to be asked for through a proxy that stands elsewhere.
    async with httpx2.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=not choice.local) as client:
        try:
            model = _model(choice, client)
        except ImportError as error:
            raise MissingExtra(f"a model of {choice.provider}", "models") from error
        yield model


def settings(choice: Choice) -> ModelSettings:
    return ModelSettings(first_event_timeout=choice.timeout, request_timeout=REQUEST_SECONDS, max_retries=1)


def _model(choice: Choice, client: httpx2.AsyncClient) -> Model:
    key, url = choice.key or None, choice.base_url or None
    if choice.provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(
            choice.name, provider=AnthropicProvider(api_key=key or "none", base_url=url, http_client=client)
        )
    if choice.provider == "google":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(
            choice.name, provider=GoogleProvider(api_key=key or "none", base_url=url, http_client=client)
        )
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    if url is None:
        return OpenAIChatModel(choice.name, provider=OpenAIProvider(api_key=key or "none", http_client=client))
    if choice.provider == "ollama":
        from pydantic_ai.models.ollama import OllamaModel
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaModel(
            choice.name, provider=OllamaProvider(base_url=url, api_key=key or "none", http_client=client)
        )
    provider = OpenAICompatibleProvider("compatible", base_url=url, api_key=key, http_client=client)
    return OpenAIChatModel(choice.name, provider=provider)


def finished(response: ModelResponse, choice: Choice) -> bool:
    """Whether the server said that its answer is whole. The client library takes the end of a stream for it."""
    return choice.provider not in ("openai", "ollama") or "finish_reason" in (response.provider_details or {})


# --- trouble ---


def explain(error: BaseException, choice: Choice) -> str:
    """What went wrong between us and the model's server, and the way out; never with the key in it."""
    text = _explain(error, choice)
    return text.replace(choice.key, "[key]") if choice.key else text


def _explain(error: BaseException, choice: Choice) -> str:
    who = f"The server of {choice.label}"
    status: Any = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    if isinstance(error, exceptions.ModelRequestTimeout | exceptions.ModelTimeoutError | httpx2.TimeoutException):
        return f"{who} was silent for too long. Try again, or choose a model that answers faster."
    if status in (401, 403):
        return f"{who} refuses the key (HTTP {status}). Check the key in the settings.{_words(error)}"
    if status == 404:
        return f"{who} does not know this model or address (HTTP 404). Check both in the settings.{_words(error)}"
    if status == 429:
        return f"{who} has too much to do, or the quota is used up (HTTP 429). Wait, then try again.{_words(error)}"
    if isinstance(status, int) and 300 <= status < 400:
        return f"{who} sends us to another address (HTTP {status}), which is not followed. Set the right one."
    if isinstance(status, int):
        return f"{who} answered with an error (HTTP {status}).{_words(error)} Try again."
    if isinstance(error, exceptions.ModelConnectionError | httpx2.TransportError):
        return f"The connection to the server of {choice.label} failed or was cut off. Check the address; try again."
    if isinstance(error, exceptions.ModelAPIError | exceptions.UnexpectedModelBehavior | ValueError):
        return f"{who} sent something that is no valid answer. Try again."
    return f"{who} could not be asked ({type(error).__name__}). Try again."


def _words(error: BaseException) -> str:
    """What the server itself says, where it says it in the usual way; nothing else of its answer is shown."""
    body: Any = getattr(error, "body", None)
    if isinstance(body, Mapping):
        given = cast("Mapping[str, Any]", body)
        inner: Any = given.get("error", given)
        said: Any = cast("Mapping[str, Any]", inner).get("message") if isinstance(inner, Mapping) else inner
        if isinstance(said, str) and said.strip():
            line = " ".join(said.split())[:_SHOWN]
            return f" It says: {line}"
    return ""
