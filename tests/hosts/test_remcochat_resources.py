"""RemcoChat: what `skills.activate` and `skills.readResource` return, refuse and cut."""

import json
import logging
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from metier.session import reading
from metier.session.session import Session
from metier.session.tools import ToolResult
from worlds import World

SECRET = "SECRET-MARKER of a file outside"
LIMIT = 1000


def chat(world: World, **settings: Any) -> Session:
    return world.discover("remcochat", settings={"app": {"skills": {"enabled": True, **settings}}}).session()


def read(session: Session, path: Any, name: str = "probe") -> ToolResult:
    return session.call("skills.readResource", {"name": name, "path": path})


def told(result: ToolResult) -> dict[str, Any]:
    """What the model reads, which is JSON, and also the data of the result."""
    seen = json.loads(result.text)
    assert seen == result.data
    return seen


def refusal(result: ToolResult) -> str:
    """The message that the model reads where a call failed, in the one shape of all failures."""
    seen = told(result)
    assert not result.ok
    assert list(seen) == ["error"]
    assert list(seen["error"]) == ["code", "message"]
    assert seen["error"]["code"] == result.code
    return seen["error"]["message"]


@pytest.fixture
def probe(world: World) -> Path:
    """The folder of a skill with files and links of all kinds; a secret lies two levels above it."""
    (world.project / "secret.txt").write_text(SECRET)
    (world.project / "outside").mkdir()
    (world.project / "outside/key.txt").write_text(SECRET)
    files: dict[str, str | bytes] = {
        "references/a.md": "Größe 日本\n",
        "references/deep/b.md": "deeper\n",
        "nul.bin": b"text\x00text",
        "latin.txt": "Größe".encode("latin-1"),
    }
    folder = world.skill(".skills/probe", files=files).parent
    (folder / "inside.md").symlink_to("references/a.md")
    (folder / "file-link").symlink_to("../../secret.txt")
    (folder / "folder-link").symlink_to("../../outside")
    (folder / "absolute-link").symlink_to("/etc/passwd")
    return folder


@pytest.mark.behaviour("K-043", "K-044", "K-049")
def test_the_tools_take_these_inputs_and_an_unknown_name_gives_a_clear_error(world: World, probe: Path) -> None:
    session = chat(world)
    schemas = {tool.name: tool.input_schema for tool in session.tools()}
    for tool, inputs in (("skills.activate", ["name"]), ("skills.readResource", ["name", "path"])):
        properties = schemas[tool]["properties"]
        assert {key: value["type"] for key, value in properties.items()} == dict.fromkeys(inputs, "string")
        assert schemas[tool]["required"] == inputs
        message = refusal(session.call(tool, dict(zip(inputs, ("prob", "a.md"), strict=False))))
        assert "no skill 'prob'" in message
        assert "available: probe" in message


@pytest.mark.behaviour("K-045")
@pytest.mark.parametrize("order", [["./a", "~/b"], ["~/b", "./a"]])
def test_the_winning_skill_is_read_from_whichever_folder_it_came(world: World, order: list[str]) -> None:
    world.skill("a/same", body="BODY ./a\n", files={"where.txt": "./a"})
    world.skill("~/b/same", body="BODY ~/b\n", files={"where.txt": "~/b"})
    session = chat(world, directories=order)
    assert told(session.call("skills.activate", {"name": "same"}))["body"] == f"BODY {order[0]}\n"
    assert told(read(session, "where.txt", "same"))["content"] == order[0]


def notice(left_out: int, path: str, size: int) -> str:
    setting = "load.max_bytes" if path == "SKILL.md" else "resources.max_bytes"
    way = f"the user can raise {setting} in ~/.config/metier/config.toml"
    return f"[truncated: {left_out} bytes of {path} are left out of {size}; {way}]"


def sized(world: World, size: int, letter: str = "x") -> int:
    """A skill whose SKILL.md has `size` bytes, all of the body one letter; the bytes of its head."""
    path = world.skill(".skills/probe", body="")
    head = path.stat().st_size
    with path.open("a") as stream:
        stream.write(letter * ((size - head) // len(letter.encode())))
    return head


@pytest.mark.behaviour("K-047", "K-055", "K-072", "K-083")
@pytest.mark.parametrize("over", [0, 1, 5000])
def test_a_long_skill_or_resource_is_cut_with_a_notice_of_what_is_left_out(world: World, over: int) -> None:
    head = sized(world, LIMIT + over)
    result = told(chat(world, max_skill_md_bytes=LIMIT).call("skills.activate", {"name": "probe"}))
    assert result["truncated"] is (over > 0)
    end = "\n\n" + notice(over, "SKILL.md", LIMIT + over) if over else ""
    assert result["body"] == "x" * (LIMIT - head) + end
    for letter in ("x", "日"):
        content = letter * ((LIMIT + over) // len(letter.encode()))
        world.skill(".skills/probe", files={"big.txt": content})
        result = told(read(chat(world, max_resource_bytes=LIMIT), "big.txt"))
        kept, size = letter * (LIMIT // len(letter.encode())), len(content.encode())
        left_out = size - len(kept.encode())
        assert result["content"] == kept + ("\n\n" + notice(left_out, "big.txt", size) if left_out else "")
        assert result["truncated"] is (left_out > 0)


@pytest.mark.behaviour("K-048")
def test_a_cut_never_splits_a_character_and_keeps_the_frontmatter_whole(world: World) -> None:
    for letter in ("é", "日", "🧭"):
        head = sized(world, 3 * LIMIT, letter)
        total = os.path.getsize(world.project / ".skills/probe/SKILL.md")
        for limit in range(LIMIT, LIMIT + 4):
            body = told(chat(world, max_skill_md_bytes=limit).call("skills.activate", {"name": "probe"}))["body"]
            kept, _, end = body.partition("\n\n")
            assert kept == letter * ((limit - head) // len(letter.encode()))
            assert end == notice(total - head - len(kept.encode()), "SKILL.md", total)
    world.skill(".skills/probe", description="d" * 1000, body="BODY-MARKER", metadata={"last": "kept"})
    result = told(chat(world, max_skill_md_bytes=LIMIT).call("skills.activate", {"name": "probe"}))
    assert result["frontmatter"]["metadata"] == {"last": "kept"}
    assert "BODY-MARKER" not in result["body"]
    assert "[truncated: 11 bytes of SKILL.md are left out of " in result["body"]


@pytest.mark.behaviour("K-072", "K-073")
def test_a_cut_is_logged_once_for_each_skill_and_file(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_LOGGED", set())
    for name in ("one", "two"):
        world.skill(f".skills/{name}", body="x" * 2000, files={"a.txt": "x" * 2000, "b.txt": "x" * 2000})
    with caplog.at_level(logging.WARNING, "metier"):
        for _ in range(3):
            session = chat(world, max_skill_md_bytes=LIMIT, max_resource_bytes=LIMIT)
            for name in ("one", "two"):
                for _ in range(2):
                    assert told(session.call("skills.activate", {"name": name}))["truncated"]
                    assert told(read(session, "a.txt", name))["truncated"]
                    assert told(read(session, "b.txt", name))["truncated"]
            warned = [(f["name"], f["detail"][:8]) for f in session.events if f["type"] == "skill_warning"]
            assert len(warned) == len(set(warned)) == 6
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "metier"]
    assert [level for level, _ in said] == ["WARNING"] * 6
    assert {text.split(" has ")[0] for _, text in said} == {
        f"{name}: {file}" for name in ("one", "two") for file in ("SKILL.md", "a.txt", "b.txt")
    }


@pytest.mark.behaviour("K-074", "N-113")
def test_a_file_of_gigabytes_is_never_held_whole(world: World) -> None:
    folder = world.skill(".skills/probe", body="BODY-MARKER\n").parent
    with (folder / "huge.txt").open("wb") as stream:
        stream.write(b"y" * 3_000_000)
        stream.truncate(5 << 30)
    os.truncate(folder / "SKILL.md", 3 << 30)
    tracemalloc.start()
    try:
        session = chat(world)
        peak_of_discovery = tracemalloc.get_traced_memory()[1]
        resource = read(session, "huge.txt")
        peak = tracemalloc.get_traced_memory()[1]
        skill = session.call("skills.activate", {"name": "probe"})
        peak_of_skill = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert told(resource)["content"].endswith(notice((5 << 30) - 2_000_000, "huge.txt", 5 << 30))
    assert "BODY-MARKER" in told(skill)["body"]
    assert len(told(skill)["body"]) < 201_000
    assert peak_of_discovery < 20 << 20
    assert peak < 40 << 20
    assert peak_of_skill < 300 << 20, "the hard cap of 50 MiB, a few times over"


@pytest.mark.behaviour("K-049", "K-050", "K-087")
def test_any_text_file_below_the_folder_is_read_as_utf8(world: World, probe: Path) -> None:
    for path in (
        "references/a.md",
        "references/deep/b.md",
        "./references//a.md",
        "references/deep/../a.md",
        "inside.md",
    ):
        content = "deeper\n" if path.endswith("b.md") else "Größe 日本\n"
        result = read(chat(world), path)
        seen = told(result)
        assert list(seen) == ["name", "path", "content", "truncated"]
        assert (result.ok, seen["name"], seen["content"], seen["truncated"]) == (True, "probe", content, False)
        assert content.split()[0] in result.text, "characters beyond ASCII are written as they are"
        assert os.path.normpath(seen["path"]) == os.path.normpath(path)


REFUSED = {
    "/etc/passwd": "absolute",
    "//etc/passwd": "absolute",
    "C:\\secret.txt": "absolute",
    "~/secret.txt": "absolute",
    "../../secret.txt": "traversal",
    "references/../../../secret.txt": "traversal",
    "..": "traversal",
    "..\\..\\secret.txt": "traversal",
    "file-link": "symbolic link",
    "folder-link/key.txt": "symbolic link",
    "absolute-link": "symbolic link",
    "missing.md": "not found",
    "references/a.md/x": "not found",
    "%2e%2e/%2e%2e/secret.txt": "not found",
    "nul.bin": "binary",
    "latin.txt": "binary",
    "references": "folder",
    "a\x00b": "NUL",
}


@pytest.mark.behaviour("K-051", "K-052", "K-053", "K-054", "K-056", "K-058", "K-083", "K-086")
def test_what_is_no_text_file_below_the_folder_is_refused_with_its_reason(world: World, probe: Path) -> None:
    session = chat(world)
    for path, reason in REFUSED.items():
        result = read(session, path)
        assert reason.lower() in refusal(result).lower(), path
        assert ("SECRET" in str(result), "root:" in str(result)) == (False, False), path
    kinds = ["/etc/passwd", "../x", "file-link", "missing.md", "nul.bin"]
    messages = {refusal(read(session, path)).replace(path, "") for path in kinds}
    assert len(messages) == len(kinds), "each kind has its own"
    world.skill("elsewhere/other", body=SECRET)
    elsewhere = world.project / "elsewhere/other"
    attempts: list[dict[str, Any]] = [{"name": name} for name in ("other", "../../elsewhere/other", str(elsewhere))]
    attempts += [{"name": "probe", "path": f"{elsewhere}/SKILL.md"}, {"name": "../../outside", "path": "key.txt"}]
    attempts += [{"name": "skill://probe/../../secret.txt", "path": "x"}]
    for given in attempts:
        for tool in ("skills.activate", "skills.readResource"):
            assert SECRET not in str(session.call(tool, given))


@pytest.mark.behaviour("K-057")
def test_no_message_or_result_holds_an_absolute_path_of_the_host(world: World, probe: Path) -> None:
    world.skill(".skills/broken", description="")
    world.skill(".agents/skills/probe")
    session = chat(world)
    results = [read(session, path) for path in (*REFUSED, "references/a.md", 7, None, "x" * 300, "y/" * 3000)]
    names = ("probe", "broken", "missing", str(probe), "../probe", "", 7, None)
    results += [session.call("skills.activate", {"name": name}) for name in names]
    (probe / "SKILL.md").unlink()
    results.append(session.call("skills.activate", {"name": "probe"}))
    results.append(session.call("nothing", {}))
    shown = " ".join(f"{result.data} {result.text}" for result in results) + session.system_prompt()
    shown = shown.replace(str(probe), "", 2)  # the one that we sent ourselves, as a name
    assert str(world.project) not in shown
    assert str(world.home) not in shown
