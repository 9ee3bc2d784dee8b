"""The servers in the user's configuration."""

from pathlib import Path

import pytest

from metier.errors import ConfigError
from metier.sources.mcp_client import ServerConfig
from metier.sources.mcp_servers import connect, servers


def test_servers_are_read_from_a_table() -> None:
    given = {
        "one": {"command": ["npx", "server"], "env": {"KEY": "x"}, "allowed_tools": ["pdf"]},
        "two": {"url": "https://example.org/mcp", "prefer": True, "headers": {"Authorization": "Bearer x"}},
    }
    one, two = servers(given)
    assert (one.command, one.env, one.allowed_tools) == (("npx", "server"), {"KEY": "x"}, ("pdf",))
    assert (two.url, two.prefer) == ("https://example.org/mcp", True)
    assert two.headers == {"Authorization": "Bearer x"}
    assert "Bearer" not in repr(two)


WRONG: tuple[dict[str, object], ...] = (
    *({"a/b": {"url": "https://x"}}, {"..": {"url": "https://x"}}, {"a": 1}, {"a": {}}, {"a": {"command": "npx"}}),
    *({"a": {"command": ["x"], "url": "https://x"}}, {"a": {"url": "file:///etc"}}, {"a": {"command": [1]}}),
    *({"a": {"command": ["x"], "headers": {"A": "b"}}}, {"a": {"url": "https://x", "headers": {"A": 1}}}),
    *({"a": {"url": "https://x", "headers": {"A": "b\r\nc: d"}}}, {"a": {"command": ["x"], "env": {"K": 1}}}),
    *({"a": {"command": ["x"], "colour": 1}}, {"a": {"command": ["x"], "prefer": "yes"}}),
    {"a": {"command": ["x"], "allowed_tools": "pdf"}},
)


def test_a_wrong_table_is_an_error_that_names_its_key() -> None:
    for given in WRONG:
        with pytest.raises(ConfigError, match=r"mcp\.servers\."):
            servers(given)


def test_nothing_is_started_before_a_catalog_looks(tmp_path: Path) -> None:
    source = connect([ServerConfig("gone", ("/nowhere/server",))], str(tmp_path))
    assert [root.source for root in source.roots] == ["gone"]
    source.close()
