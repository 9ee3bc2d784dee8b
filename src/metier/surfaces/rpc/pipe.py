"""JSON-RPC over standard input and output: one client, whose messages are answered in their order."""

import io
import json
import logging
import queue
import sys
import threading
from collections.abc import Iterator
from typing import IO, Final, cast

from metier.app import CHANGED, App
from metier.catalog.watch import News, Watcher
from metier.files.shapes import as_table, is_list
from metier.surfaces.rpc import (
    INTERNAL_ERROR,
    MESSAGE_BYTES,
    Dispatcher,
    Questions,
    RpcError,
    error_answer,
    one_line,
    read_message,
)

BACKLOG: Final = 16
"""Messages that are read before the ones ahead of them are answered."""

_LOG: Final = logging.getLogger("metier")


def serve(app: App, source: IO[bytes], sink: IO[str], session_id: str | None = None) -> None:
    """Answer lines until the input ends, and tell when skills change: `skills.changed`.

    A line that is too long is answered and skipped, not kept. `session_id` is the session of calls that name none.
    """
    connection = _Connection(app, sink, session_id)
    app.skills()  # what is wrong with skills and rules is logged at the start, not when a client first asks

    def tell(news: News) -> None:
        connection.send(one_line({"jsonrpc": "2.0", "method": CHANGED, "params": news.changes.as_dict()}))

    with Watcher(app, tell):
        connection.read(_lines(source))


class _Worker(threading.Thread):
    """A thread that answers messages until another one takes its place."""

    replaced = False


class _Connection:
    """One client on a pipe. One thread reads, and one answers the messages in their order.

    A call that waits for the client's answer to a question gives its place to a new thread, so that later calls do not
    wait with it. Responses never queue behind calls.
    """

    def __init__(self, app: App, sink: IO[str], session_id: str | None) -> None:
        self._sink, self._lock, self._gone = sink, threading.Lock(), False
        self._inbox: queue.Queue[object] = queue.Queue(BACKLOG)
        self._workers: list[_Worker] = []
        self.questions = Questions(self.send, self._replace_worker)
        self._client = Dispatcher(app, session_id=session_id, questions=self.questions)

    def send(self, text: str) -> None:
        with self._lock:
            try:
                try:
                    self._sink.write(text + "\n")
                except UnicodeEncodeError:  # an output that is not UTF-8
                    self._sink.write(json.dumps(json.loads(text)) + "\n")
                self._sink.flush()
            except (OSError, ValueError):
                self._gone = True  # the client does not listen any more; its input ends next

    def read(self, lines: Iterator[bytes]) -> None:
        """Answer every line, and wait until the last one is answered."""
        self._start_worker()
        for line in lines:
            if self._gone:
                break
            if line.strip():
                self._take(line)
        self.questions.end()
        self._inbox.put(_END)
        while self._workers:
            self._workers.pop().join()

    def _take(self, line: bytes) -> None:
        try:
            message = read_message(line)
        except RpcError as error:
            self._inbox.put(error)
            return
        batch = message if is_list(message) else [message]
        calls = [one for one in batch if not self._is_answer(one)]
        if calls or not batch:
            self._inbox.put(calls if is_list(message) else calls[0])

    def _is_answer(self, message: object) -> bool:
        """Whether a message is the client's answer to a question, which is taken at once."""
        given = as_table(message)
        if "method" in given or not ("result" in given or "error" in given):
            return False
        self.questions.take(given)
        return True

    def _start_worker(self) -> None:
        worker = _Worker(target=self._work, name="metier-rpc", daemon=True)
        self._workers.append(worker)
        worker.start()

    def _replace_worker(self) -> None:
        worker = threading.current_thread()
        if isinstance(worker, _Worker) and not worker.replaced:
            worker.replaced = True
            self._start_worker()

    def _work(self) -> None:
        worker = cast("_Worker", threading.current_thread())
        while not worker.replaced and (message := self._inbox.get()) is not _END:
            try:
                if isinstance(message, RpcError):
                    answer = one_line(error_answer(None, message))
                else:
                    answer = self._client.answer(message)
            except Exception:  # noqa: BLE001 - a thread that ends would leave all later messages without an answer
                _LOG.exception("a message could not be answered")
                answer = one_line(error_answer(None, RpcError(INTERNAL_ERROR, "Internal error")))
            if answer is not None:
                self.send(answer)


_END: Final = object()


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline(MESSAGE_BYTES + 2):
        if len(line) > MESSAGE_BYTES:
            while not line.endswith(b"\n") and (rest := source.readline(MESSAGE_BYTES)):
                line = line[:MESSAGE_BYTES] + rest[-2:]
        yield line


def main(app: App, session_id: str | None = None) -> None:
    """Speak JSON-RPC on standard input and output."""
    sink: IO[str] = sys.stdout
    if isinstance(sink, io.TextIOWrapper):
        sink.reconfigure(encoding="utf-8", newline="\n")  # whatever the locale says
    serve(app, sys.stdin.buffer, cast("IO[str]", sink), session_id)
