"""Skills over the Model Context Protocol: a server for other agents.

The server is a surface: it formats the answers of `App` and `Session` and decides nothing.
"""

from metier.sources.mcp_protocol import EXTENSION as EXTENSION  # an early, clear error where the SDK is not installed
