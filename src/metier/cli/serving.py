"""`rpc`: the runtime for other programs."""

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


COMMANDS = (rpc_command,)
