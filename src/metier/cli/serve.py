"""`serve`, `rpc` and `mcp`: the runtime for other programs."""

import os
import webbrowser

import click

from metier import web
from metier.cli.session_options import Opening, opens_sessions


@click.command(
    "rpc", epilog='Example:\n\n\b\n  echo \'{"jsonrpc": "2.0", "id": 1, "method": "skills.list"}\' | metier rpc'
)
@opens_sessions
def rpc_command(opening: Opening) -> None:
    """Serve JSON-RPC 2.0 on standard input and output, one message per line.

    Calls that name no session use that of --session, or a new one.
    """
    from metier.rpc import pipe

    pipe.main(opening.app("rpc"), opening.context.session)


@click.command("serve", epilog="Example:\n\n\b\n  metier serve --port 8765")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Listen on this address. Other than loopback needs a token."
)
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="Listen on this port.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Also answer to this host name. Can be repeated.")
@click.option("--open", "opens", is_flag=True, help="Open the web app in a browser.")
@click.option("--publish", is_flag=True, help="Publish the skills at /.well-known/agent-skills/index.json.")
@click.option("--runs", metavar="N", type=click.IntRange(1), help="Run at most this many scripts at a time.")
@click.option(
    "--rate",
    default=web.RATE,
    show_default=True,
    type=click.FloatRange(0),
    metavar="N",
    help="Requests per second from one address. 0 means no limit.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Trust the client addresses that this proxy reports. Can be repeated.",
)
@opens_sessions
def serve_command(
    opening: Opening,
    host: str,
    port: int,
    names: tuple[str, ...],
    opens: bool,
    publish: bool,
    runs: int | None,
    rate: float,
    proxies: tuple[str, ...],
) -> None:
    """Serve the web app, the HTTP API, JSON-RPC and MCP.

    The token is read from METIER_TOKEN, never from the command line.
    """
    app = opening.app("http")
    token = os.environ.get("METIER_TOKEN", "")
    options = web.Options(
        host=host, port=port, token=token, names=names, rate=rate, runs=runs, publish=publish, proxies=proxies
    )

    def started(where: str) -> None:
        if not opening.quiet:
            click.echo(f"listening on {where}", err=True)
        if opens:
            webbrowser.open(where)

    web.serve(app, options, started)


@click.command("mcp", epilog="Example:\n\n\b\n  metier mcp --cwd ~/project")
@opens_sessions
def mcp_command(opening: Opening) -> None:
    """Serve MCP on standard input and output, for a client that starts it."""
    from metier.mcp import server

    server.main(opening.app("mcp"), opening.context.session)


COMMANDS = (
    serve_command,
    rpc_command,
    mcp_command,
)
