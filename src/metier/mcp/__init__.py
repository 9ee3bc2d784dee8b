"""Skills over the Model Context Protocol: a server for other agents, and a source of other servers' skills.

The server is one more surface: it formats what `App` and `Session` answer and decides nothing. The source is the other
direction: what it brings in counts as a stranger's until its digests match and somebody approved exactly these files.
"""

from metier import limits
from metier.errors import MissingExtra

try:
    import mcp as _sdk
except ImportError as error:
    raise MissingExtra("MCP", "mcp") from error

EXTENSION = "io.modelcontextprotocol/skills"
"""The extension's identifier, in capabilities of both sides."""

SKILL_FILES = 512
SKILL_BYTES = limits.WHOLE_FILE_BYTES
"""What every host takes of one skill: the number of its files and their total size, by the extension's text."""

del _sdk

__all__ = ["EXTENSION", "SKILL_BYTES", "SKILL_FILES"]
