"""Serves a page of a site in parts. The next part comes when the browser has painted the one before.

A slow network or a busy machine can cut a page anywhere. Here the test cuts it, so its outcome depends on no speed.
"""

import itertools
import queue
import re
import threading
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

_ARRIVED = """name => {
  const walk = document.createTreeWalker(document, NodeFilter.SHOW_COMMENT);
  while (walk.nextNode()) if (walk.currentNode.data === name) return true;
}"""
_PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_KNOWN = {"authorization": f"Bearer {TOKEN}"}
ELEMENTS = re.compile(
    r"(?<=[>\n])(?<!<noscript>)\s*(?=<(?=header|main|nav|div|ul|form|button|textarea|p\b|h[12]\b|article|pre))"
)
"""Where an element begins that has a place of its own."""


def moved_in_parts(page: Page, url: str, path: str, places: re.Pattern[str]) -> list[list[str]]:
    """The elements that move while a page, cut at these places of its body, comes in one part at a time."""
    text = httpx.get(url + path, headers=_KNOWN, timeout=PATIENCE).text
    cuts = [place.start() for place in places.finditer(text, text.index('<div class="shell"'))]
    parts = [text[one:other] for one, other in itertools.pairwise([0, *cuts, len(text)])]
    waiting: queue.Queue[str] = queue.Queue()

    class InParts(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = httpx.get(url + self.path, headers=_KNOWN, timeout=PATIENCE)
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers.get("content-type", "text/plain"))
            self.end_headers()
            if self.path != path:
                self.wfile.write(answer.content)
                return
            part = waiting.get()
            while part:
                self.wfile.write(part.encode())
                self.wfile.flush()
                try:
                    part = waiting.get(timeout=0.05)
                except queue.Empty:
                    part = "<!---->"  # Chromium may hold back the last bytes until there are more

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that is overridden
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), InParts) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            for number, part in enumerate(parts):
                waiting.put(f"{part}<!--part {number}-->")  # its arrival can be seen
                if number == 0:
                    page.goto(f"http://127.0.0.1:{server.server_port}{path}", wait_until="commit")
                if number < len(parts) - 1:
                    page.wait_for_function(_ARRIVED, arg=f"part {number}")
                    page.evaluate(_PAINTED)
            waiting.put("")
            page.wait_for_load_state("load")
            return page.evaluate(SHIFTS)
        finally:
            server.shutdown()
