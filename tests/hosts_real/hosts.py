"""How each host is set up in an empty home and asked one thing, with Metier as its only source of skills.

Nothing leaves the machine: the base URL of the model is a loopback port, and a proxy that nobody answers catches the
rest. Keys are dummies, and no account is needed.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

MESSAGE = "Please help me with the task."


class Workplace(NamedTuple):
    """Where a host runs."""

    programs: Path
    home: Path
    project: Path
    model_url: str
    server: Sequence[str]
    """The command that starts Metier's server."""


class Run(NamedTuple):
    """A command and its variables."""

    command: list[str]
    env: dict[str, str]


class Host(NamedTuple):
    """A host: the package that has it, and how to run it."""

    package: str
    program: str
    prepare: Callable[[Workplace], Run]


def environment(place: Workplace) -> dict[str, str]:
    nowhere = "http://127.0.0.1:9"
    return {
        "PATH": f"{place.programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place.home),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1,localhost",
        "CI": "1",
        "NO_COLOR": "1",
    }


def _claude(place: Workplace) -> Run:
    first, *rest = place.server
    servers = {"mcpServers": {"skills": {"command": first, "args": rest}}}
    (place.home / "mcp.json").write_text(json.dumps(servers))
    env = {
        "ANTHROPIC_BASE_URL": place.model_url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "true",  # as with Anthropic's own address: tools of servers are deferred
    }
    options = ["--mcp-config", str(place.home / "mcp.json"), "--strict-mcp-config", "--allowedTools", "mcp__skills"]
    return Run(["claude", "-p", MESSAGE, *options], environment(place) | env)


def _codex(place: Workplace) -> Run:
    first, *rest = place.server
    folder = place.home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f"""model = "gpt-5"
model_provider = "loopback"
approval_policy = "never"
sandbox_mode = "read-only"
[model_providers.loopback]
name = "loopback"
base_url = "{place.model_url}/v1"
wire_api = "responses"
env_key = "LOOPBACK_KEY"
[mcp_servers.skills]
command = {json.dumps(first)}
args = {json.dumps(rest)}
startup_timeout_sec = 30
required = true
default_tools_approval_mode = "approve"
[mcp_servers.skills.env]
PYTHONPATH = {json.dumps(environment(place)["PYTHONPATH"])}
"""
    )
    return Run(["codex", "exec", "--skip-git-repo-check", MESSAGE], environment(place) | {"LOOPBACK_KEY": "dummy"})


def _opencode(place: Workplace) -> Run:
    model = {"loopback": {"name": "Loopback", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Loopback",
        "options": {"baseURL": f"{place.model_url}/v1", "apiKey": "dummy"},
        "models": model,
    }
    config = {
        "model": "loopback/loopback",
        "small_model": "loopback/loopback",
        "provider": {"loopback": provider},
        "mcp": {"skills": {"type": "local", "command": list(place.server), "enabled": True, "timeout": 30_000}},
        "autoupdate": False,
        "share": "disabled",
    }
    (place.project / "opencode.json").write_text(json.dumps(config))
    env = {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }
    return Run(["opencode", "run", MESSAGE], environment(place) | env)


def _gemini(place: Workplace) -> Run:
    first, *rest = place.server
    folder = place.home / ".gemini"
    folder.mkdir()
    settings = {
        "mcpServers": {"skills": {"command": first, "args": rest, "trust": True}},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    env = {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": place.model_url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return Run(["gemini", "-m", "gemini-2.5-flash", "--yolo", "-p", MESSAGE], environment(place) | env)


HOSTS = {
    "claude-code": Host("@anthropic-ai/claude-code@2.1.325", "claude", _claude),
    "codex": Host("@openai/codex@0.166.0", "codex", _codex),
    "opencode": Host("opencode-ai@1.18.33", "opencode", _opencode),
    "gemini-cli": Host("@google/gemini-cli@0.61.0", "gemini", _gemini),
}
