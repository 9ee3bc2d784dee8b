"""A model on a loopback port that speaks the streaming Messages API and follows a script.

Its last answer repeats the last tool result, so that a test sees what the model was told.
"""

import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = tuple[str, dict[str, object]]
"""The end of a tool's name, and the arguments of the call."""


@contextmanager
def serve(steps: Sequence[Step], requests: list[Any]) -> Generator[str]:
    """The address of the model. Requests with tools are added to `requests`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if request.get("tools"):
                requests.append(request)
            data = _events(request, _block(steps, request))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def results(request: Any) -> list[Any]:
    """The tool results in a request."""
    contents = [message["content"] for message in request["messages"] if isinstance(message["content"], list)]
    return [block for content in contents for block in content if block["type"] == "tool_result"]


def _block(steps: Sequence[Step], request: Any) -> dict[str, Any]:
    told = results(request)
    name, arguments = steps[len(told)] if len(told) < len(steps) else ("no more", {})
    for tool in request.get("tools") or ():
        if tool["name"].endswith(name):
            return {"type": "tool_use", "id": f"toolu_{len(told)}", "name": tool["name"], "input": arguments}
    return {"type": "text", "text": f"The last result was: {told[-1]['content'] if told else None}"}


def _events(request: Any, block: dict[str, Any]) -> bytes:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "usage": usage}
    is_call = block["type"] == "tool_use"
    delta = (
        {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        if is_call
        else {"type": "text_delta", "text": block["text"]}
    )
    reason = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
    empty = {"input": {}} if is_call else {"text": ""}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {**block, **empty}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()
