"""A loopback address that nobody should contact. It answers nothing and counts who comes."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Listener:
    """Where it listens, and the first bytes of each connection."""

    port: int
    heard: list[bytes] = field(default_factory=list[bytes])


@contextmanager
def listening() -> Generator[Listener]:
    """Listen until the block ends. Connections are closed at once, so that a client does not wait."""
    server = socket.create_server(("127.0.0.1", 0))
    listener = Listener(server.getsockname()[1])

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    listener.heard.append(connection.recv(200))
                except OSError:
                    listener.heard.append(b"")

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
