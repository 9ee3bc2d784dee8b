"""RemcoChat: what `skills.activate` and `skills.readResource` return, refuse and cut."""

import json
import logging
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import metier
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


# --- tools ---


@pytest.mark.behaviour("K-043", "K-049")
def test_the_tools_take_exactly_the_inputs_of_the_seed(world: World, probe: Path) -> None:
    schemas = {tool.name: tool.input_schema for tool in chat(world).tools()}
    activate, resource = schemas["skills.activate"], schemas["skills.readResource"]
    assert {key: value["type"] for key, value in activate["properties"].items()} == {"name": "string"}
    assert {key: value["type"] for key, value in resource["properties"].items()} == {"name": "string", "path": "string"}
    assert (activate["required"], resource["required"]) == (["name"], ["name", "path"])
    described = {tool.name: tool.description for tool in chat(world).tools()}
    assert described["skills.activate"].endswith("Call it before you use a skill's instructions.")
    assert described["skills.readResource"].startswith("Reads a file of a skill")


@pytest.mark.behaviour("K-044")
@pytest.mark.parametrize("tool", ["skills.activate", "skills.readResource"])
def test_an_unknown_name_gives_a_clear_error(world: World, probe: Path, tool: str) -> None:
    message = refusal(chat(world).call(tool, {"name": "prob", "path": "a.md"}))
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


# --- cuts ---


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


@pytest.mark.behaviour("K-047", "K-072", "K-083")
@pytest.mark.parametrize("over", [0, 1, 5000])
def test_a_long_skill_is_cut_at_the_limit_with_a_notice_of_what_is_left_out(world: World, over: int) -> None:
    head = sized(world, LIMIT + over)
    result = told(chat(world, max_skill_md_bytes=LIMIT).call("skills.activate", {"name": "probe"}))
    body = result["body"]
    assert result["truncated"] is (over > 0)
    assert body.startswith("x" * (LIMIT - head))
    assert body == "x" * (LIMIT - head) + ("\n\n" + notice(over, "SKILL.md", LIMIT + over) if over else "")


@pytest.mark.behaviour("K-048")
@pytest.mark.parametrize("letter", ["é", "日", "🧭"])
def test_a_cut_never_splits_a_character(world: World, letter: str) -> None:
    head = sized(world, 3 * LIMIT, letter)
    total = os.path.getsize(world.project / ".skills/probe/SKILL.md")
    width = len(letter.encode())
    for limit in range(LIMIT, LIMIT + 4):
        body = told(chat(world, max_skill_md_bytes=limit).call("skills.activate", {"name": "probe"}))["body"]
        kept, _, end = body.partition("\n\n")
        assert kept == letter * ((limit - head) // width)
        assert end == notice(total - head - len(kept.encode()), "SKILL.md", total)


@pytest.mark.behaviour("K-048")
def test_a_cut_keeps_the_frontmatter_whole(world: World) -> None:
    world.skill(".skills/probe", description="d" * 1000, body="BODY-MARKER", metadata={"last": "kept"})
    result = told(chat(world, max_skill_md_bytes=LIMIT).call("skills.activate", {"name": "probe"}))
    assert result["frontmatter"]["metadata"] == {"last": "kept"}
    assert "BODY-MARKER" not in result["body"]
    assert "[truncated: 11 bytes of SKILL.md are left out of " in result["body"]


@pytest.mark.behaviour("K-055", "K-072")
@pytest.mark.parametrize(("over", "letter"), [(0, "x"), (1, "x"), (3000, "x"), (3000, "日")])
def test_a_long_resource_is_cut_at_the_limit_with_a_notice(world: World, over: int, letter: str) -> None:
    content = letter * ((LIMIT + over) // len(letter.encode()))
    world.skill(".skills/probe", files={"big.txt": content})
    result = told(read(chat(world, max_resource_bytes=LIMIT), "big.txt"))
    kept = letter * (LIMIT // len(letter.encode()))
    left_out = len(content.encode()) - len(kept.encode())
    end = "\n\n" + notice(left_out, "big.txt", len(content.encode())) if over else ""
    assert result["content"] == kept + end
    assert result["truncated"] is (over > 0)


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


# --- what is served and what is refused ---


@pytest.mark.behaviour("K-049", "K-050", "K-087")
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("references/a.md", "Größe 日本\n"),
        ("references/deep/b.md", "deeper\n"),
        ("./references//a.md", "Größe 日本\n"),
        ("references/deep/../a.md", "Größe 日本\n"),
        ("inside.md", "Größe 日本\n"),
    ],
)
def test_any_text_file_below_the_folder_is_read_as_utf8(world: World, probe: Path, path: str, content: str) -> None:
    result = read(chat(world), path)
    assert result.ok
    seen = told(result)
    assert list(seen) == ["name", "path", "content", "truncated"]
    assert (seen["name"], seen["content"], seen["truncated"]) == ("probe", content, False)
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


@pytest.mark.behaviour("K-051", "K-052", "K-053", "K-054", "K-058", "K-083", "K-086")
@pytest.mark.parametrize("path", REFUSED)
def test_what_is_no_text_file_below_the_folder_is_refused_with_its_reason(world: World, probe: Path, path: str) -> None:
    result = read(chat(world), path)
    assert REFUSED[path].lower() in refusal(result).lower()
    assert "SECRET" not in str(result)
    assert "root:" not in str(result)


@pytest.mark.behaviour("K-056")
def test_each_kind_of_refusal_has_its_own_message(world: World, probe: Path) -> None:
    session = chat(world)
    kinds = ["/etc/passwd", "../x", "file-link", "missing.md", "nul.bin"]
    messages = {refusal(read(session, path)).replace(path, "") for path in kinds}
    assert len(messages) == len(kinds)


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


@pytest.mark.behaviour("K-058")
def test_only_files_of_the_configured_folders_are_ever_read(world: World, probe: Path) -> None:
    world.skill("elsewhere/other", body=SECRET)
    session = chat(world)
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("skills.activate", {"name": "other"}),
        ("skills.activate", {"name": "../../elsewhere/other"}),
        ("skills.activate", {"name": str(world.project / "elsewhere/other")}),
        ("skills.activate", {"name": "probe", "path": str(world.project / "elsewhere/other/SKILL.md")}),
        ("skills.readResource", {"name": "../../outside", "path": "key.txt"}),
        ("skills.readResource", {"name": "skill://probe/../../secret.txt", "path": "x"}),
    ]
    for tool, arguments in attempts:
        assert SECRET not in str(session.call(tool, arguments))


@pytest.mark.behaviour("K-050", "K-054", "K-057")
def test_the_command_line_gives_the_same_results(world: World, probe: Path) -> None:
    world.configure('profile = "remcochat"\n[app.skills]\nenabled = true\n')
    seen = metier(world, "session", "call", "skills.readResource", '{"name": "probe", "path": "references/a.md"}')
    assert seen == told(read(chat(world), "references/a.md"))
    failed = metier(
        world,
        "session",
        "call",
        "skills.readResource",
        '{"name": "probe", "path": "nul.bin"}',
        code=1,
        output=True,
    )
    assert failed == {"error": {"code": "BINARY_FILE", "message": "binary files are not supported: nul.bin"}}
    said = metier(world, "read", "probe", "nul.bin", code=1)
    assert "binary files are not supported: nul.bin" in said
    assert str(world.project) not in said
