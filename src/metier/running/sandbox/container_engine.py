"""The part of the Docker Engine API that the container runner needs, over a Unix socket.

Podman serves the same API (`podman system service`). Only the standard library is used. The engine may be any program
that listens at the socket, so sizes and times are limited and every answer is checked for its shape. The invariant:
whatever the engine answers, or if it does not, the only error is `EngineError`.
"""

import functools
import http.client
import json
import os
import platform
import socket
import struct
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Final
from urllib.parse import urlencode

from metier.files import process
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list, is_table
from metier.limits import MIB

SECONDS: Final = 60.0
"""How long the engine may take for an answer. It usually takes a few milliseconds."""
ANSWER_BYTES: Final = 8 * MIB
_HEADER: Final = struct.Struct(">BxxxI")
LABEL: Final = "io.metier.owner"
"""Names the machine, its start and the process that made a container or a volume."""
_UPGRADE: Final = {"Connection": "Upgrade", "Upgrade": "tcp", "Content-Length": "0"}


class EngineError(Exception):
    """The engine cannot be reached, refused a request, or gave an answer that makes no sense. `status` may be 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class _Connection(http.client.HTTPConnection):
    """A connection over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


class Engine:
    """A container engine at a Unix socket. Each request has a connection of its own, so any thread may use it."""

    def __init__(self, path: str) -> None:
        self.path = path

    @functools.cached_property
    def is_podman(self) -> bool:
        return "Podman" in str(as_table(self.call("GET", "/version")).get("Components"))

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, object] | None = None,
        archive: IO[bytes] | None = None,
    ) -> object:
        """Make a request, and return the JSON of the answer, or `None` if it is empty."""
        headers: dict[str, str] = {}
        content: bytes | IO[bytes] | None = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        elif archive is not None:
            headers = {"Content-Type": "application/x-tar", "Content-Length": str(archive.seek(0, os.SEEK_END))}
            archive.seek(0)
            content = archive
        with self._connected() as connection:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, content, headers)
            return _json(_content(connection.getresponse()))

    def table(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, object]:
        """Make a request whose answer is an object."""
        answer = self.call(method, path, body=body)
        if not is_table(answer):
            raise EngineError(f"the container engine gives no object for {path}")
        return dict(answer)

    def labelled(self, kind: str, label: str) -> list[dict[str, object]]:
        """The containers, or volumes, that have a label."""
        filters = {"filters": json.dumps({"label": [label]})}
        if kind == "containers":
            answer = self.call("GET", "/containers/json", {"all": "1", **filters})
        else:
            answer = as_table(self.call("GET", "/volumes", filters)).get("Volumes")
        if answer is None:
            return []  # Docker's word for no volumes
        if not is_list(answer) or not all(is_table(item) for item in answer):
            raise EngineError(f"the container engine gives no list of {kind}")
        return [dict(item) for item in answer if is_table(item)]

    def attach(self, container: str) -> socket.socket:
        """A connection to the standard streams of a container that has not started, so that nothing comes in yet.

        What comes in later is framed (see `Demultiplexer`).
        """
        with self._connected() as connection:
            query = "stream=1&stdin=1&stdout=1&stderr=1"
            connection.request("POST", f"/containers/{container}/attach?{query}", headers=_UPGRADE)
            answer = connection.getresponse()
            if answer.status == 101:
                return connection.sock.dup()
            _content(answer)
        raise EngineError("the container engine does not attach to the container")

    @contextmanager
    def _connected(self) -> Generator[_Connection]:
        connection = _Connection(self.path)
        try:
            yield connection
        except (OSError, http.client.HTTPException, ValueError) as error:
            words = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
            raise EngineError(f"the container engine at {self.path} does not answer: {words}") from error
        finally:
            connection.close()


class Demultiplexer:
    """Takes the frames of an attached container apart: standard output is 1, standard error is 2."""

    def __init__(self) -> None:
        self._arrived = bytearray()
        self._kind = self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces in what arrived. A frame of any length is passed on piece by piece and never collected."""
        self._arrived += data
        while self._arrived:
            if not self._left:
                if len(self._arrived) < _HEADER.size:
                    return
                self._kind, self._left = _HEADER.unpack_from(self._arrived)
                del self._arrived[: _HEADER.size]
                if self._kind not in (1, 2):
                    raise EngineError(f"the container engine sends a stream {self._kind}, which does not exist")
            piece = bytes(self._arrived[: self._left])
            del self._arrived[: len(piece)]
            self._left -= len(piece)
            yield self._kind, piece


def _content(answer: http.client.HTTPResponse) -> bytes:
    """The content of an answer. Raises `EngineError` with what the engine says, if it refuses the request."""
    data = answer.read(ANSWER_BYTES + 1)
    if len(data) > ANSWER_BYTES:
        raise EngineError("the answer of the container engine is too long")
    if not 200 <= answer.status < 300:
        text: object = None
        with suppress(EngineError):
            text = as_table(_json(data)).get("message")
        said = f"says: {text[:500]}" if isinstance(text, str) and text else f"answers with status {answer.status}"
        raise EngineError(f"the container engine {said}", answer.status)
    return data


def _json(data: bytes) -> object:
    if not data.strip():
        return None
    try:
        return parse_json(data.decode())
    except (ValueError, RecursionError) as error:
        raise EngineError("the answer of the container engine is not JSON") from error


# --- whose a container or a volume is ---


def owner() -> str:
    """This process, as its label names it."""
    return "|".join((*_here(), process.current()))


def sweep(engine: Engine) -> None:
    """Remove the containers and volumes that processes of this machine left which were killed.

    What a process of another machine or container left at the same engine stays: whether it lives cannot be seen here.
    """
    for kind, key in (("containers", "Id"), ("volumes", "Name")):
        for left in engine.labelled(kind, LABEL):
            if has_ended(str(as_table(left.get("Labels")).get(LABEL, ""))):
                with suppress(EngineError):
                    engine.call("DELETE", f"/{kind}/{left.get(key)}", {"force": "1"})


def has_ended(label: str) -> bool:
    """Whether the process that a label names has certainly ended."""
    machine, boot, name = (*label.split("|"), "", "", "")[:3]
    here, now = _here()
    if machine != here:
        return False
    if boot != now:
        return bool(boot and now)  # the machine has been started again
    return process.has_ended(name) is True


def _here() -> tuple[str, str]:
    return _line("/etc/machine-id") or platform.node(), _line("/proc/sys/kernel/random/boot_id")


def _line(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read(4096).strip().replace("|", "")
    return ""
