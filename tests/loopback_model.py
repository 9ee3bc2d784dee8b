"""A model on a loopback port that plays a script and keeps every request: a test sees what a host's model would read.

It speaks the streaming forms of the Anthropic, OpenAI (responses and chat completions) and Gemini interfaces. The next
step follows from the results that a request has, so a repeated request gets the same answer.
"""

import contextlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import model_server

ENDED = "The script has ended."
SEARCHES = ("ToolSearch", "tool_search")
"""The tools by which hosts find tools that they have not shown to the model."""


class Step(NamedTuple):
    """A call of the script. `tool` is the name without the prefix that a host gives it."""

    tool: str
    arguments: Mapping[str, object]


class Request(NamedTuple):
    """What a host has sent to its model."""

    path: str
    body: Any

    def texts(self) -> list[str]:
        """Every text in the request, as the model reads it."""
        return list(_texts(self.body))

    def shows(self, text: str) -> bool:
        return any(text in one for one in self.texts())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


@dataclass
class LoopbackModel:
    """See the module."""

    script: Sequence[Step]
    requests: list[Request] = field(default_factory=list[Request])
    url: str = ""
    repeats: bool = False
    """Whether the text at the end has the last result, so that it can be seen where the model's answer is seen."""

    def conversation(self) -> list[Request]:
        """The requests that have tools. Hosts make others, for titles and the like."""
        return [one for one in self.requests if _tools(one)]

    @contextlib.contextmanager
    def serving(self) -> Generator["LoopbackModel"]:
        with model_server.serving(self.reply) as self.url:
            yield self

    def reply(self, path: str, body: Any) -> tuple[bytes, str]:
        """The answer to a request: the next call, or a text at the end."""
        if "count_tokens" in path or "countTokens" in path:
            return json.dumps({"input_tokens": 1, "totalTokens": 1}).encode(), "application/json"
        request = Request(path, body)
        self.requests.append(request)
        call = self._next(request)
        end = f"The last result was: {results(request)[-1:]}" if self.repeats else ENDED
        for part, make in _FORMS.items():
            if part in path:
                return make(request, call, end)
        return b"{}", "application/json"

    def _next(self, request: Request) -> "Call | None":
        tools = _tools(request)
        done, searched = _done(request)
        if not tools or done >= len(self.script):
            return None
        step = self.script[done]
        named = [name for name in (*tools, *_found(request)) if name.rpartition("__")[2].endswith(step.tool)]
        if named:
            return Call(f"metier_{done}", named[0], step.arguments)
        search = next((name for name in tools if name in SEARCHES), None)
        if search is not None and not searched:
            wanted = f"select:{','.join(sorted(_named_skill_tools(request)))}" if search == "ToolSearch" else "skill"
            return Call("search_0", search, {"query": wanted})
        return None


class Call(NamedTuple):
    id: str
    name: str
    arguments: Mapping[str, object]


def _tools(request: Request) -> list[str]:
    """The names of the tools that the model may call."""
    names: list[str] = []
    for tool in request.body.get("tools") or ():
        if "functionDeclarations" in tool:
            names += [one["name"] for one in tool["functionDeclarations"]]
        elif tool.get("type") == "namespace":
            names += [f"{tool['name']}/{one['name']}" for one in tool["tools"]]
        else:
            names.append(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type", ""))
    return names


def _found(request: Request) -> list[str]:
    """The names of tools that a search has found."""
    return [
        f"{tool['name']}/{one['name']}" if one else tool["name"]
        for item in request.body.get("input") or ()
        if isinstance(item, dict) and item.get("type") == "tool_search_output"
        for tool in item.get("tools", ())
        for one in tool.get("tools", [None])
    ]


def _named_skill_tools(request: Request) -> set[str]:
    """The deferred tools that a request names in its texts."""
    words = {word.strip(",.`'\"<>()") for text in request.texts() for word in text.split() if "__skill_" in word}
    return {word for word in words if word.startswith("mcp__")}


def results(request: Request) -> list[Any]:
    """The results of tools in a request of the Anthropic interface."""
    contents = [message["content"] for message in request.body.get("messages") or ()]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [block for block in blocks if block["type"] == "tool_result"]


def _done(request: Request) -> tuple[int, bool]:
    """How many steps have a result, and whether tools were searched for."""
    body = request.body
    ids: set[str] = set()
    for message in body.get("messages") or ():
        if message.get("role") == "tool":
            ids.add(message["tool_call_id"])
        elif isinstance(message.get("content"), list):
            ids |= {part["tool_use_id"] for part in message["content"] if part.get("type") == "tool_result"}
    for item in body.get("input") or ():
        if isinstance(item, dict) and str(item.get("type", "")).endswith("_output"):
            ids.add(str(item.get("call_id")))
    answered = [p for turn in body.get("contents") or () for p in turn.get("parts", ()) if "functionResponse" in p]
    return len([one for one in ids if one.startswith("metier_")]) + len(answered), "search_0" in ids


# --- the forms of the interfaces ---


def _events(events: Sequence[Mapping[str, Any]], *, named: bool = False, end: str = "") -> tuple[bytes, str]:
    lines = [(f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one)}\n\n" for one in events]
    return ("".join(lines) + end).encode(), "text/event-stream"


def _anthropic(request: Request, call: Call | None, end: str) -> tuple[bytes, str]:
    model = request.body.get("model", "")
    if call is None:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": end}
        whole = {"type": "text", "text": end}
    else:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        whole = block | {"input": call.arguments}
    reason = "end_turn" if call is None else "tool_use"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "usage": usage}
    if not request.body.get("stream"):
        done = message | {"content": [whole], "stop_reason": reason, "stop_sequence": None}
        return json.dumps(done).encode(), "application/json"
    start = message | {"content": [], "stop_reason": None, "stop_sequence": None}
    events = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]
    return _events(events, named=True)


def _responses(_: Request, call: Call | None, end: str) -> tuple[bytes, str]:
    if call is None:
        content = [{"type": "output_text", "text": end, "annotations": []}]
        item: dict[str, Any] = {"type": "message", "id": "m_1", "role": "assistant", "content": content}
    elif call.name in SEARCHES:
        item = {"type": "tool_search_call", "call_id": call.id, "execution": "client", "arguments": call.arguments}
    else:
        space, slash, name = call.name.rpartition("/")
        item = {"type": "function_call", "call_id": call.id, "name": name, "arguments": json.dumps(call.arguments)}
        item |= {"namespace": space} if slash else {}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    events = [
        {"type": "response.created", "response": {"id": "r_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r_1", "output": [item], "usage": usage}},
    ]
    return _events(events, named=True)


def _completions(request: Request, call: Call | None, end: str) -> tuple[bytes, str]:
    base = {"id": "c_1", "object": "chat.completion.chunk", "created": 1, "model": request.body.get("model", "")}
    if call is None:
        delta: dict[str, Any] = {"role": "assistant", "content": end}
    else:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": call.id, "type": "function", "function": function}],
        }
    reason = "stop" if call is None else "tool_calls"
    events = [
        base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        base | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        base | {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
    ]
    return _events(events, end="data: [DONE]\n\n")


def _gemini(request: Request, call: Call | None, end: str) -> tuple[bytes, str]:
    part = {"text": end} if call is None else {"functionCall": {"name": call.name, "args": call.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    answer = {"candidates": [candidate], "usageMetadata": usage}
    if ":stream" in request.path:
        return _events([answer])
    return json.dumps(answer).encode(), "application/json"


_FORMS = {
    "/messages": _anthropic,
    "/responses": _responses,
    "/chat/completions": _completions,
    "enerateContent": _gemini,
}
