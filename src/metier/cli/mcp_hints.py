"""What `metier mcp` says on a terminal, where a person has started it instead of a client."""

from typing import Final

from metier.clients.programs import CLIENTS

_COMMANDS: Final = "\n".join(f"  {client.title:12} metier mcp add {name}" for name, client in CLIENTS.items())

HINTS: Final = f"""\
This is Metier's MCP server. It offers the skills that `metier list` shows to a client that starts it:

{_COMMANDS}

Each shows what it would write into the configuration of the client, and asks. `metier mcp remove` undoes it. In other
clients, set the command to `metier` and its argument to `mcp`.

It now reads messages from this terminal, one JSON object per line. Ctrl+D or Ctrl+C ends it.
"""
