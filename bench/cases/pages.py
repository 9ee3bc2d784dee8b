"""The pages of the web app on a large catalog: the time in the server and the bytes that are sent, compressed.

The catalog is found and its search index made before anything is measured, as on a server that has run for a minute.
Search is asked as a person types: every beginning of some words.
"""

import statistics
import time

from starlette.testclient import TestClient

from metier.app import App
from metier.surfaces.web.api import build

from ..measure import Row
from ..options import Options, scan_arguments

_WORDS = ("report", "invoice", "table", "review", "deploy", "chart")
_PACKED = {"accept-encoding": "gzip"}


def run(options: Options) -> list[Row]:
    return [row for size in options.sizes if size <= 10_000 or options.full for row in _at(options, size)]


def _at(options: Options, size: int) -> list[Row]:
    what = f"{size:,} skills"
    given = scan_arguments(options.workspace, options.workspace.tree(size).path, cache=True)
    app = App(**{key: value for key, value in given.items() if key != "env"}, store="memory:")
    typed = [word[: length + 1] for word in _WORDS for length in range(len(word))]
    with TestClient(build(app, watch=False), base_url="http://localhost") as client:
        _ask(client, "/skills?q=warm&part=list")
        first = [_ask(client, "/skills") for _ in range(max(options.rounds * 3, 5))]
        searched = [_ask(client, f"/skills?q={text}&part=list") for text in typed]
    app.close()
    times = [seconds * 1e3 for seconds, _ in searched]
    return [
        Row(what, "first page", statistics.median(seconds for seconds, _ in first) * 1e3, "ms"),
        Row(what, "first page, bytes", float(first[0][1]), "B"),
        Row(what, "search p50", statistics.median(times), "ms"),
        Row(what, "search, slowest", max(times), "ms", at_most=50, note=f"of {len(times)} beginnings of words"),
    ]


def _ask(client: TestClient, address: str) -> tuple[float, int]:
    """Seconds, and bytes as they go over the wire."""
    began = time.perf_counter()
    with client.stream("GET", address, headers=_PACKED) as answer:
        size = sum(len(part) for part in answer.iter_raw())
    assert answer.status_code == 200
    return time.perf_counter() - began, size
