"""Passes input to a running script and its output to the caller, within the output limit.

Nothing is read until the previous piece has been handled, so a slow consumer slows down the script instead of filling
memory. The invariant: the bytes that are kept and the bytes that are passed on are the same, at most `limit` for both
streams together. One byte more ends the run.
"""

import os
import selectors
from collections.abc import Callable
from subprocess import Popen
from typing import IO, Final

from msgspec import Struct

from metier.limits import KIB
from metier.running.sandbox import OnOutput, Stream
from metier.values.value import field

CHUNK: Final = 64 * KIB
_TICK: Final = 0.1
_GRACE_TICKS: Final = 10


def _no_bytes() -> dict[Stream, bytearray]:
    return {"stdout": bytearray(), "stderr": bytearray()}


class PumpedOutput(Struct):
    """What was read so far."""

    limit: int
    kept: dict[Stream, bytearray] = field(default_factory=_no_bytes)
    totals: dict[Stream, int] = field(default_factory=lambda: {"stdout": 0, "stderr": 0})

    @property
    def flooded(self) -> bool:
        return sum(self.totals.values()) > self.limit

    def take(self, stream: Stream, data: bytes) -> bytes:
        """Count a piece, and keep and return the part that fits."""
        room = max(0, self.limit - sum(self.totals.values()))
        self.totals[stream] += len(data)
        fits = data[:room]
        self.kept[stream] += fits
        return fits


def pump(
    process: Popen[bytes],
    stdin: bytes,
    output: PumpedOutput,
    on_output: OnOutput | None,
    flood: Callable[[], None],
    over: Callable[[], bool],
    each: Callable[[], None],
) -> None:
    """Write input and read output until both streams have ended. `flood` is called once at the output limit.

    `each` is called several times a second. `over` returns whether the script has ended. A stream that is still open
    after that is abandoned after a moment.
    """
    assert process.stdin
    assert process.stdout
    assert process.stderr
    streams: dict[int, Stream] = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
    waiting = memoryview(stdin)
    ticks = 0
    with selectors.DefaultSelector() as selector:
        for descriptor in streams:
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ)
        _feed(process.stdin, selector, waiting)
        while selector.get_map() and streams:
            events = selector.select(_TICK)
            each()
            if not events:
                ticks += over()
                if ticks > _GRACE_TICKS:
                    return
            for key, _ in events:
                if key.fd not in streams:
                    waiting = _write(process.stdin, selector, waiting)
                    continue
                piece = _read(key.fd)
                if piece:
                    pass_on(streams[key.fd], piece, output, on_output, flood)
                elif piece is not None:
                    selector.unregister(key.fd)
                    del streams[key.fd]


def pass_on(
    stream: Stream, piece: bytes, output: PumpedOutput, on_output: OnOutput | None, flood: Callable[[], None]
) -> None:
    """Count a piece of output and pass on what fits. `flood` is called when it goes beyond the limit."""
    was_flooded = output.flooded
    fits = output.take(stream, piece)
    if fits and on_output is not None:
        on_output(stream, fits)
    if output.flooded and not was_flooded:
        flood()


def _read(descriptor: int) -> bytes | None:
    """Read a piece. It is empty at the end of the stream, and `None` if nothing is there yet."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return None


def _feed(pipe: IO[bytes], selector: selectors.BaseSelector, waiting: memoryview) -> None:
    if not waiting:
        _close(pipe)
        return
    os.set_blocking(pipe.fileno(), False)
    selector.register(pipe.fileno(), selectors.EVENT_WRITE)


def _write(pipe: IO[bytes], selector: selectors.BaseSelector, waiting: memoryview) -> memoryview:
    try:
        waiting = waiting[os.write(pipe.fileno(), waiting[:CHUNK]) :]
    except BlockingIOError:
        return waiting
    except OSError:
        waiting = waiting[len(waiting) :]  # the script does not read its input
    if not waiting:
        selector.unregister(pipe.fileno())
        _close(pipe)
    return waiting


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:
        return
