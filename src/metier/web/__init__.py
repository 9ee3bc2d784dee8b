"""The web server: web app and HTTP API behind one gate, JSON-RPC and MCP beside them. Needs the extra `web`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metier.app import App
from metier.errors import MissingExtra

RATE: Final = 500.0
"""Requests a second from one address, unless a server is told otherwise."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a server is told at its start; see `metier serve --help`."""

    host: str = "127.0.0.1"
    port: int = 8765
    token: str = ""
    names: tuple[str, ...] = ()
    rate: float = RATE
    runs: int | None = None
    publish: bool = False
    proxies: tuple[str, ...] = ()


def serve(app: App, options: Options, started: Callable[[str], None] | None = None) -> None:
    """Answer requests until told to end; what is under way is finished first. `started` hears the address."""
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
