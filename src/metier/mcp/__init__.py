"""Skills over the Model Context Protocol: a server for other agents, and a source of skills from other servers.

The server is a surface: it formats the answers of `App` and `Session` and decides nothing. Skills from the source are
untrusted until their digests match and somebody approved exactly these files.
"""

from metier import limits
from metier.errors import report_missing

try:
    import mcp as _sdk
except ImportError as error:
    report_missing(error, "MCP", "mcp")

EXTENSION = "io.modelcontextprotocol/skills"
"""The identifier of the extension, in the capabilities of both sides."""

SKILL_FILES = 512
SKILL_BYTES = limits.WHOLE_FILE_BYTES
"""The number of files and the total size of one skill that every host accepts, as the extension specifies."""

del _sdk

__all__ = ["EXTENSION", "SKILL_BYTES", "SKILL_FILES"]
