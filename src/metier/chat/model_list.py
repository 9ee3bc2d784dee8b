"""Asks a provider which models it has, and whether a model answers.

Both send a key only where a turn would send it, follow no redirect, and read a bounded answer.
"""

import time
from collections.abc import Mapping
from typing import Final

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.settings import ModelSettings

from metier.chat import models
from metier.chat.model_choice import ModelChoice
from metier.errors import MetierError
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_items, is_table

LIST_SECONDS: Final = 15.0
TEST_SECONDS: Final = 60.0
LIST_BYTES: Final = 4 << 20
LISTED: Final = 1_000

_DEFAULTS: Final[Mapping[str, str]] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}


class ModelUnavailable(MetierError):
    """The server of a model cannot be asked. The message says why, and never contains the key."""


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
        raise ModelUnavailable(models.explain(error, choice)) from error
    except (httpx2.InvalidURL, ValueError) as error:
        raise ModelUnavailable("The key or the address has characters that cannot be sent.") from error
    if answer.status_code != 200:
        raise ModelUnavailable(models.explain_status(answer.status_code, choice))
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
            models.opened(choice, {}) as model,
            model_request_stream(model, [question], model_settings=settings) as stream,
        ):
            async for _ in stream:
                pass
    except MetierError:
        raise
    except Exception as error:
        raise ModelUnavailable(models.explain(error, choice)) from error
    return time.monotonic() - began
