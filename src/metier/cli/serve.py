"""`serve` and `rpc`: the runtime for other programs."""

import contextlib
import html
import os
import pathlib
import webbrowser

import click

from metier import web
from metier.cli import output
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


@click.command(
    "serve",
    epilog="Examples:\n\n\b\n  metier serve --port 8765\n  metier serve --socket ~/.metier.sock",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="Listen on this port.")
@click.option(
    "--socket",
    type=click.Path(dir_okay=False),
    help="Listen on a Unix socket that only you can open, instead of an address. It needs no token.",
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Ask for no token. Every user and program of this machine can then read your chats and answer approvals. "
    "On loopback only.",
)
@click.option("--name", "names", multiple=True, metavar="HOST", help="Also answer to this host name. Can be repeated.")
@click.option("--open", "opens", is_flag=True, help="Open the web app in a browser, signed in.")
@click.option(
    "--publish",
    is_flag=True,
    help="Publish the skills at /.well-known/agent-skills/index.json. Everyone who can connect may fetch them, without "
    "the token.",
)
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
    socket: str | None,
    no_token: bool,
    names: tuple[str, ...],
    opens: bool,
    publish: bool,
    runs: int | None,
    rate: float,
    proxies: tuple[str, ...],
) -> None:
    """Serve the web app, the HTTP API, JSON-RPC and MCP.

    Clients need a token, because every user of this machine can connect. It is read from METIER_TOKEN, or else from the
    file `token` in your configuration folder, which is made on first use. Open the link that is printed to sign in a
    browser; the link works once. Programs send `Authorization: Bearer TOKEN`.
    """
    if socket and opens:
        raise click.UsageError("a browser cannot open a socket; leave out --open or --socket")
    app = opening.app("http")
    token = os.environ.get("METIER_TOKEN", "")
    options = web.Options(
        host=host,
        port=port,
        token=token,
        no_token=no_token,
        socket=socket or "",
        names=names,
        rate=rate,
        runs=runs,
        publish=publish,
        proxies=proxies,
    )
    page = BrowserPage(app.config.config_folder)

    def started(server: web.Started) -> None:
        if no_token and not socket:
            opening.context.note("warning: no token: every user and program of this machine can use this server")
        if opening.as_json:
            link = server.link if not token else ""
            output.json_out({"address": server.address, "link": link or None})
        elif not opening.quiet:
            click.echo(f"listening on {server.address}", err=True)
            if server.link and not token:
                click.echo(f"to sign in, open {server.link}", err=True)
        if opens:
            page.open(server)

    try:
        web.serve(app, options, started)
    finally:
        page.remove()


class BrowserPage:
    """Opens a browser, signed in. Other users can read the command line of a browser, so it gets the path of a file.

    The file is a page that only the user can read and that leads to the link.
    """

    def __init__(self, folder: str) -> None:
        self._folder, self._file = folder, ""

    def open(self, server: web.Started) -> None:
        from metier.web.token_file import write_private

        if not server.link:
            webbrowser.open(server.address)
            return
        self._file = os.path.join(self._folder, f"sign-in-{os.getpid()}.html")
        link = html.escape(server.link)
        text = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={link}">'
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_private(self._file, f'{text}<title>Metier</title><a href="{link}">Sign in to Metier</a>\n', replace=True)
        webbrowser.open(pathlib.Path(self._file).as_uri())

    def remove(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):
                os.unlink(self._file)


COMMANDS = (serve_command, rpc_command)
