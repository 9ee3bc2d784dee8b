"""What both sides of the Model Context Protocol share: the extension for skills, and its limits. It needs `mcp`."""

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
