"""The web server: pages, HTTP API, JSON-RPC and MCP behind one gate. Needs the extra `web`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metier.app import App
from metier.errors import ConfigError, report_missing

if TYPE_CHECKING:
    from metier.surfaces.web.guard import Gate


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a server; see `metier serve --help`.

    Without a `token`, the server uses the one in the user's configuration folder, unless `no_token` is set or it
    listens on a `socket`, which is a path that only the user can open.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str = ""
    no_token: bool = False
    socket: str = ""
    names: tuple[str, ...] = ()
    runs: int | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """Where a server listens."""

    address: str
    """A URL, or the path of a socket."""
    link: str = ""
    """The URL that signs a browser in, once. Empty if the server has no token."""


def serve(app: App, options: Options, started: Callable[[Started], None] | None = None) -> None:
    """Serve until a signal ends the process; requests under way are finished first. `started` gets the address."""
    try:
        from metier.running.sandbox.runners import RUNS
        from metier.surfaces.web import server
        from metier.surfaces.web.api import build
    except ImportError as error:
        report_missing(error, "the web server", "web")

    gate = _gate(app, options)
    runs = RUNS if options.runs is None else options.runs
    application = build(app, gate, runs=runs)

    def tell(address: str) -> None:
        link = f"{address}/login#{application.site.access.code}" if gate.token and not options.socket else ""
        if started is not None:
            started(Started(address, link))

    try:
        made = server.make(application, options.host, options.port)
        server.run(made, tell, options.socket)
    finally:
        app.close()


def _gate(app: App, options: Options) -> "Gate":
    from metier.surfaces.web.access import token
    from metier.surfaces.web.guard import Gate

    if options.no_token and options.token:
        raise ConfigError("there is a token, and --no-token", key="token", hint="unset METIER_TOKEN")
    given = options.token
    if not given and not options.no_token and not options.socket:
        given = token(app.config.config_folder)
    return Gate.for_address("127.0.0.1" if options.socket else options.host, given, options.names)
