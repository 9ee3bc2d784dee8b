"""A host that takes its skills from the MCP server at the given URL: lists them, loads one, and reads its other files.

The official conformance suite runs it, and sets `MCP_CONFORMANCE_SCENARIO`.
"""

import os
import sys
import tempfile
from pathlib import Path

from metier import MetierError, Skills
from metier.sources.mcp_client import ServerConfig
from metier.sources.mcp_servers import McpSource


def main(url: str, scenario: str, folder: str) -> None:
    place = Path(folder)
    source = McpSource([ServerConfig("suite", url=url)], str(place / "cache"))
    try:
        skills = Skills.discover(place, home=place, source=source)
        if scenario.endswith("no-prefetch"):
            return
        session = skills.session(approve=lambda _: True)
        for skill in skills:
            try:
                for file in session.load(skill.name).files:
                    session.read(skill.name, file)
            except MetierError as error:
                sys.stderr.write(f"{error}\n")
    finally:
        source.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(sys.argv[-1], os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), temporary)
