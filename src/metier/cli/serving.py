"""`serve`, `rpc`, `mcp`: the runtime for other programs."""

import os

import click

from metier.cli.context import Context, shared


@click.command(
    "rpc", epilog='Example:\n\n\b\n  echo \'{"jsonrpc": "2.0", "id": 1, "method": "skills.list"}\' | metier rpc'
)
@shared
def rpc_command(context: Context) -> None:
    """Speak JSON-RPC 2.0, one message a line, on standard input and output."""
    from metier import rpc

    rpc.main(context.open_app("rpc"))


@click.command("serve", epilog="Example:\n\n\b\n  metier serve --port 8765")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen here; others than loopback need a token.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="Listen on this port.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Also answer to this host name; may be repeated.")
@shared
def serve_command(context: Context, host: str, port: int, names: tuple[str, ...]) -> None:
    """Serve the HTTP API and JSON-RPC. A token comes from METIER_TOKEN, never from the command line."""
    from metier import web

    app = context.open_app("http")
    if not context.quiet:
        click.echo(f"listening on http://{host}:{port}", err=True)
    web.serve(app, host, port, os.environ.get("METIER_TOKEN", ""), names)


@click.command("mcp", epilog="Example:\n\n\b\n  metier mcp --cwd ~/project")
@shared
def mcp_command(context: Context) -> None:
    """Speak MCP on standard input and output, as clients start it."""
    from metier.mcp import server

    server.main(context.open_app("mcp"), context.session)


COMMANDS = (
    serve_command,
    rpc_command,
    mcp_command,
)
