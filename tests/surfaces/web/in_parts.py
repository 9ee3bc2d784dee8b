"""Serves a page of a site in parts. The next part comes when the browser has painted the one before.

A slow network or a busy machine can cut a page anywhere. Here the test cuts it, so its outcome depends on no speed.
"""

import contextlib
import itertools
import queue
import re
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from playwright.sync_api import Page

from patience import PATIENCE
from surfaces.web.browser import TOKEN

SHIFTS = """() => new Promise(done => {
  const moved = [];
  const named = at => `${at.node?.nodeName} ${at.node?.getAttribute?.("class")}`;
  const note = list => list.getEntries().forEach(one => moved.push(one.sources.map(named)));
  new PerformanceObserver(note).observe({type: "layout-shift", buffered: true});
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(moved), 50)));
})"""
"""The elements that moved since the first paint without any input."""

_PAINTED = """name => new Promise((done, fail) => {
  setTimeout(() => fail(new Error(`${name} does not arrive`)), 20000);
  const arrived = () => {
    const walk = document.createTreeWalker(document, NodeFilter.SHOW_COMMENT);
    while (walk.nextNode()) if (walk.currentNode.data === name) return true;
    return false;
  };
  const look = () => {
    if (arrived()) requestAnimationFrame(() => requestAnimationFrame(done));
    else requestAnimationFrame(look);
  };
  look();
})"""
"""Waits until a part is here and painted."""
_KNOWN = {"authorization": f"Bearer {TOKEN}"}
ELEMENTS = re.compile(
    r"(?<=[>\n])(?<!<noscript>)\s*(?=<(?=header|main|nav|div|ul|form|button|textarea|p\b|h[12]\b|article|pre))"
)
"""Where an element begins that has a place of its own."""


def parts_of(text: str, places: re.Pattern[str]) -> list[str]:
    """A page, cut at these places of its body. A comment ends each part, so that its arrival can be seen."""
    start = text.index('<div class="shell"')
    cuts = [place.start() for place in places.finditer(text, start)]
    edges = [0, *cuts, len(text)]
    found = [text[one:other] for one, other in itertools.pairwise(edges)]
    return [f"{part}<!--part {number}-->" for number, part in enumerate(found[:-1])] + found[-1:]


def moved_in_parts(page: Page, url: str, path: str, places: re.Pattern[str]) -> list[list[str]]:
    """The elements that move while a page comes in, one part at a time."""
    parts = parts_of(httpx.get(url + path, headers=_KNOWN, timeout=PATIENCE).text, places)
    with _serving(url, path) as (address, waiting):
        waiting.put(parts[0])
        page.goto(address + path, wait_until="commit")
        for number, part in enumerate(parts[1:]):
            page.evaluate(_PAINTED, f"part {number}")
            waiting.put(part)
        waiting.put("")
        page.wait_for_load_state("load")
        return page.evaluate(SHIFTS)


@contextlib.contextmanager
def _serving(url: str, path: str) -> "Generator[tuple[str, queue.Queue[str]]]":
    waiting: queue.Queue[str] = queue.Queue()

    class InParts(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == path:
                self._answer(200, "text/html; charset=utf-8")
                self._send_parts()
                return
            answer = httpx.get(url + self.path, headers=_KNOWN, timeout=PATIENCE)
            self._answer(answer.status_code, answer.headers.get("content-type", "text/plain"))
            self.wfile.write(answer.content)

        def _send_parts(self) -> None:
            part = waiting.get()
            while part:
                self.wfile.write(part.encode())
                self.wfile.flush()
                try:
                    part = waiting.get(timeout=0.05)
                except queue.Empty:
                    part = "<!---->"  # Chromium may hold back the last bytes until there are more

        def _answer(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that is overridden
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), InParts) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", waiting
        finally:
            server.shutdown()
