"""What `metier mcp` says on a terminal, where a person has started it instead of a client."""

from typing import Final

HINTS: Final = """\
This is Metier's MCP server. It offers the skills that `metier list` shows to a client that starts it:

  Claude Code  claude mcp add skills -- metier mcp
  Codex        codex mcp add skills -- metier mcp
  Gemini CLI   gemini mcp add skills metier mcp
  VS Code      code --add-mcp '{"name": "skills", "command": "metier", "args": ["mcp"]}'
  OpenCode     in opencode.json: {"mcp": {"skills": {"type": "local", "command": ["metier", "mcp"]}}}
  Cursor       in .cursor/mcp.json: {"mcpServers": {"skills": {"command": "metier", "args": ["mcp"]}}}

It now reads messages from this terminal, one JSON object per line. Ctrl+D or Ctrl+C ends it.
"""
