"""A text that was made for one session is given to another only where nothing differs that it depends on."""

import os
from typing import Any

from worlds import World


def test_each_session_gets_the_text_of_the_file_as_it_is_now(world: World) -> None:
    file = world.skill(".agents/skills/one", body="FIRST $ARGUMENTS", files={"references/a.md": "a"})
    skills = world.discover()  # nobody rescans: the catalog stays the same

    def text(arguments: dict[str, Any] | None = None, **options: Any) -> str:
        return skills.session(**options).call("skill_load", {"name": "one", **(arguments or {})}).text

    first = text()
    assert text() == first
    assert "FIRST" in first
    assert "references/b.md" not in first

    (file.parent / "references" / "b.md").write_text("b")
    assert "references/b.md" in text()

    assert "FIRST for Ada" in text({"arguments": "for Ada"})
    assert "for Ada" not in text()

    status = file.stat()
    file.write_text(file.read_text().replace("FIRST", "OTHER"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # of the same size and time
    assert "OTHER" in text()
    assert "FIRST" not in text()


def test_the_text_names_only_tools_that_the_session_has(world: World) -> None:
    world.skill(".agents/skills/one", files={"references/a.md": "a"})
    skills = world.discover()
    for tools in (True, False, True):
        assert ("`skill_read`" in skills.session(tools=tools).load("one").text) is tools
