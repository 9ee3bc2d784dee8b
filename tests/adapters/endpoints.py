"""A local HTTP server for the model that speaks the Messages and chat completions APIs."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from scenario import Model

import model_server


@contextmanager
def serve(model: Model) -> Generator[str, None, None]:
    def answer(path: str, request: Any) -> tuple[bytes, str]:
        model.requests.append(request)
        return json.dumps(_APIS[path](model, request)).encode(), "application/json"

    with model_server.serving(answer) as url:
        yield url


def _messages(model: Model, request: Any) -> dict[str, object]:
    texts = [text for message in request["messages"] if message["role"] == "user" for text in _blocks(message)]
    system = request.get("system")
    given = system if isinstance(system, str | None) else "".join(part["text"] for part in system)
    step = model.next(given, [tool["name"] for tool in request["tools"]], texts)
    block = (
        {"type": "text", "text": step}
        if isinstance(step, str)
        else {"type": "tool_use", "id": f"toolu_{model.number}", "name": step[0], "input": step[1]}
    )
    return {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _blocks(message: Any) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [block.get("content") or block["text"] for block in content]


def _chat(model: Model, request: Any) -> dict[str, object]:
    by_role: dict[str, list[str]] = {"system": [], "user": [], "tool": [], "assistant": []}
    for message in request["messages"]:
        by_role[message["role"]].append(content_text(message.get("content")))
    names = [tool["function"]["name"] for tool in request["tools"]]
    prompts = by_role["system"]
    step = model.next("\n\n".join(prompts), names, [*by_role["user"], *by_role["tool"]], len(prompts))
    answer: dict[str, object] = {"role": "assistant", "content": step if isinstance(step, str) else None}
    if not isinstance(step, str):
        function = {"name": step[0], "arguments": json.dumps(step[1])}
        answer["tool_calls"] = [{"id": f"call_{model.number}", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "stop", "message": answer}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def content_text(content: Any) -> str:
    """The text of a message, which may come in parts."""
    return content if isinstance(content, str) else "\n\n".join(part["text"] for part in content or ())


_APIS = {"/v1/messages": _messages, "/chat/completions": _chat}
