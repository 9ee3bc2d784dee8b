"""The web server: pages, HTTP API, JSON-RPC and MCP behind one gate. Needs the extra `web`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metier.app import App
from metier.errors import MissingExtra

RATE: Final = 500.0
"""Requests per second from one address, unless the server is started with another rate."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a server; see `metier serve --help`."""

    host: str = "127.0.0.1"
    port: int = 8765
    token: str = ""
    names: tuple[str, ...] = ()
    rate: float = RATE
    runs: int | None = None
    publish: bool = False
    proxies: tuple[str, ...] = ()


def serve(app: App, options: Options, started: Callable[[str], None] | None = None) -> None:
    """Serve until a signal ends the process; requests under way are finished first. `started` gets the address."""
    try:
        from metier.sandbox.bounded import RUNS
        from metier.web import server
        from metier.web.api import build
        from metier.web.guard import Gate
    except ImportError as error:
        raise MissingExtra("the web server", "web") from error

    gate = Gate.for_address(options.host, options.token, options.names, options.rate)
    runs = RUNS if options.runs is None else options.runs
    application = build(app, gate, runs=runs, publish=options.publish)
    try:
        server.run(server.make(application, options.host, options.port, options.proxies), started)
    finally:
        app.close()
