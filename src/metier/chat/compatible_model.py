"""A model behind a server that speaks OpenAI's protocol and is not OpenAI's."""

from openai.types import chat
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel


class CompatibleModel(OpenAIChatModel):
    """Leaves out what such servers refuse: a message with calls of tools but no text says nothing about its text."""

    def _map_model_response(self, message: ModelResponse) -> chat.ChatCompletionMessageParam | None:
        mapped = super()._map_model_response(message)
        if mapped is not None and mapped["role"] == "assistant" and mapped.get("content") is None:
            mapped.pop("content", None)  # null is allowed, but the server of llama-cpp-python wants text or nothing
        return mapped
