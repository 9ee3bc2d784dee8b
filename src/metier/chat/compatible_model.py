"""A model behind a server that speaks OpenAI's protocol and is not OpenAI's."""

from openai.types import chat
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel


class CompatibleModel(OpenAIChatModel):
    """Sends what such servers take, too: a message with calls of tools and without text has an empty text."""

    def _map_model_response(self, message: ModelResponse) -> chat.ChatCompletionMessageParam | None:
        mapped = super()._map_model_response(message)
        if mapped is not None and mapped["role"] == "assistant" and mapped.get("content") is None:
            mapped["content"] = ""  # null is allowed, but the server of llama-cpp-python refuses it
        return mapped
