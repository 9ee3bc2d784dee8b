"""`serve` and `rpc`: the runtime for other programs."""

import contextlib
import html
import os
import pathlib
import webbrowser
from typing import Any

import click

from metier.files.replace import replacing
from metier.surfaces import web
from metier.surfaces.cli import output
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command, option


@command("rpc", 'echo \'{"jsonrpc": "2.0", "id": 1, "method": "skills.list"}\' | metier rpc', sessions=True)
def rpc_command(context: Context) -> None:
    """Serve JSON-RPC 2.0 on standard input and output, one message per line.

    Calls that name no session use that of --session, or a new one.
    """
    from metier.surfaces.rpc import pipe

    pipe.main(context.open_app("rpc"), context.session)


@command("serve", "metier serve --port 8765", "metier serve --socket ~/.metier.sock", sessions=True)
@option("--host", "Listen on this address.", default="127.0.0.1", show_default=True)
@option("--port", "Listen on this port.", default=8765, show_default=True, type=click.IntRange(0, 65535))
@option(
    "--socket",
    "Listen on a Unix socket that only you can open, instead of an address. It needs no token.",
    type=click.Path(dir_okay=False),
)
@option(
    "--no-token",
    "Ask for no token. Every user and program of this machine can then read your chats and answer approvals. "
    "On loopback only.",
)
@option("--name HOST", "Also answer to this host name.", "names", many=True)
@option("--open", "Open the web app in a browser, signed in.", "opens")
@option("--runs N", "Run at most this many scripts at a time.", type=click.IntRange(1))
def serve_command(context: Context, socket: str | None, opens: bool, **given: Any) -> None:
    """Serve the web app, the HTTP API, JSON-RPC and MCP.

    Clients need a token, because every user of this machine can connect. It is read from METIER_TOKEN, or else from the
    file `token` in your configuration folder, which is made on first use. Open the link that is printed to sign in a
    browser; the link works once. Programs send `Authorization: Bearer TOKEN`.
    """
    if socket and opens:
        raise click.UsageError("a browser cannot open a socket; leave out --open or --socket")
    app = context.open_app("http")
    token = os.environ.get("METIER_TOKEN", "")
    options = web.Options(token=token, socket=socket or "", **given)
    page = BrowserPage(app.config.config_folder)

    def started(server: web.Started) -> None:
        if options.no_token and not socket:
            context.note("warning: no token: every user and program of this machine can use this server")
        if context.as_json:
            output.json_out({"address": server.address, "link": (server.link if not token else "") or None})
        else:
            context.hint(f"listening on {server.address}")
            if server.link and not token:
                context.hint(f"to sign in, open {server.link}")
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
        if not server.link:
            webbrowser.open(server.address)
            return
        self._file = os.path.join(self._folder, f"sign-in-{os.getpid()}.html")
        link = html.escape(server.link)
        text = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={link}">'
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with replacing(self._file) as page:
            page.write(f'{text}<title>Metier</title><a href="{link}">Sign in to Metier</a>\n')
        webbrowser.open(pathlib.Path(self._file).as_uri())

    def remove(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):
                os.unlink(self._file)
