"""Reads what a process prints without ever waiting for good: a test gets each line from a queue, with a timeout."""

import queue
import threading
from typing import IO


def reading(stream: IO[str] | None) -> "queue.Queue[str]":
    """The lines of a stream as they come. The stream is closed at its end."""
    assert stream is not None
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        with stream:
            for line in stream:
                lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    return lines
