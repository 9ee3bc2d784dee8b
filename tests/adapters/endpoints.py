"""A local HTTP server for the model that speaks the Messages, chat completions and Responses APIs."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from scenario import Model, Step

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


def _responses(model: Model, request: Any) -> dict[str, object]:
    texts = [_text(item) for item in request["input"] if item.get("role") == "user" or "output" in item]
    prompts = [request.get("instructions"), *(content_text(i["content"]) for i in request["input"] if _is_system(i))]
    given = [text for text in prompts if text]
    step = model.next("\n\n".join(given), [tool["name"] for tool in request["tools"]], texts, len(given))
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": [_item(model, step)],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "status": "completed",
    }


def _is_system(item: Any) -> bool:
    return item.get("role") in ("system", "developer")


def _text(item: Any) -> str:
    return item["output"] if "output" in item else item["content"]


def _item(model: Model, step: Step) -> dict[str, object]:
    number = model.number
    if isinstance(step, str):
        text = {"type": "output_text", "text": step, "annotations": []}
        return {"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed", "content": [text]}
    return {
        "type": "function_call",
        "id": f"f{number}",
        "call_id": f"call_{number}",
        "name": step[0],
        "arguments": json.dumps(step[1]),
        "status": "completed",
    }


_APIS = {"/v1/messages": _messages, "/chat/completions": _chat, "/responses": _responses}
