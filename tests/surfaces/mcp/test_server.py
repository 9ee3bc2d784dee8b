"""What the server returns: every skill, file and digest, on every transport and with both versions of the protocol."""

from typing import Any

import mcp_types as types
import pytest
from clients import BOTH_ERAS, CONNECTIONS, all_pages, ask, bytes_of, connected, digest, open_app
from mcp.shared.exceptions import MCPError

from metier.record.events import ResourceRead, ResourceRefused
from metier.sources.mcp_protocol import EXTENSION
from worlds import World

SKILLS = ".agents/skills"
BINARY = bytes(range(256))


@pytest.fixture
def library(world: World) -> World:
    """Three skills with files of every kind, and four skills that are hidden from models, each in another way."""
    world.skill(
        f"{SKILLS}/pdf",
        description="Fills PDF forms: 日本語 too.",
        body="Work on $ARGUMENTS.\r\n",
        license="MIT",
        metadata={"version": "1.10", "deep": {"list": [1, True, None]}},
        files={
            "references/forms.md": "# Forms\n\n\N{ZERO WIDTH NO-BREAK SPACE}é\u2028",
            "references/more/über uns?.txt": "#%&",
            "assets/blob.bin": BINARY,
            "assets/nul.txt": b"a\x00b",
            "scripts/fill.py": "print(1)\n",
            "empty.txt": "",
        },
    )
    world.skill(f"{SKILLS}/csv", files={"inner/SKILL.md": "---\nname: inner\ndescription: nested\n---\n"})
    world.skill("~/.agents/skills/notes", user_invocable=False)
    world.skill(f"{SKILLS}/secret-flag", disable_model_invocation=True, files={"a.md": "SECRET"})
    world.skill(f"{SKILLS}/secret-rule", files={"a.md": "SECRET"})
    world.skill(f"{SKILLS}/secret-off", files={"a.md": "SECRET"})
    world.skill(f"{SKILLS}/secret-manual", files={"a.md": "SECRET"})
    found = world.discover()
    found.disable("secret-off")
    found.set_mode("secret-manual", "manual")
    world.configure_user('[permissions]\ndeny = [{tool = "skill_load", skill_name = "secret-rule"}]\n')
    return world


# --- the extension ---


@pytest.mark.system
@CONNECTIONS
async def test_every_file_of_every_skill_is_what_its_digest_says(library: World, transport: str, era: str) -> None:
    async with connected(library, transport, era) as client:
        assert client.server_capabilities.extensions == {EXTENSION: {"directoryRead": True}}
        assert client.server_capabilities.resources is not None
        result = await ask(client, "skills/list")
        told = [result[key] for key in ("resultType", "ttlMs", "cacheScope")]
        assert told == ["complete", 300_000, "public"]
        assert [entry["uri"] for entry in result["skills"]] == [
            f"skill://{n}/SKILL.md" for n in ("csv", "notes", "pdf")
        ]
        for entry in result["skills"]:
            name = entry["frontmatter"]["name"]
            folder = (library.home if name == "notes" else library.project) / SKILLS / name
            on_disk = sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file())
            served = [(bytes_of(await client.read_resource(file["uri"])), file) for file in entry["resources"]]
            assert sorted(data for data, _ in served) == on_disk
            for data, file in served:
                assert (digest(data), len(data)) == (file["digest"], file["size"])


@BOTH_ERAS
async def test_frontmatter_is_what_the_author_wrote(library: World, era: str) -> None:
    async with connected(library, "memory", era) as client:
        got = await ask(client, "skills/get", uri="skill://pdf/SKILL.md")
    assert got["skill"]["frontmatter"] == {
        "name": "pdf",
        "description": "Fills PDF forms: 日本語 too.",
        "license": "MIT",
        "metadata": {"version": "1.10", "deep": {"list": [1, True, None]}},
    }
    assert got["skill"]["resources"][0]["uri"] == "skill://pdf/SKILL.md"
    assert (got["resultType"], got["ttlMs"], got["cacheScope"]) == ("complete", 300_000, "public")


@pytest.mark.parametrize("coarse", [False, True])
async def test_a_digest_is_never_older_than_the_file(
    library: World, coarse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if coarse:  # a clock that does not tick between two writes
        monkeypatch.setattr("metier.surfaces.mcp.manifest._signature", lambda path: (2**62, 2**62, 3, 1))
    file = library.project / SKILLS / "pdf/references/forms.md"
    async with connected(library, "memory", "2026") as client:
        for text in ("one", "two", "six"):  # of equal size, written without a pause
            file.write_text(text)
            got = await ask(client, "skills/get", uri="skill://pdf/SKILL.md")
            digests = {r["uri"]: r["digest"] for r in got["skill"]["resources"]}
            assert digests["skill://pdf/references/forms.md"] == digest(text.encode())


@BOTH_ERAS
async def test_pages_hold_whole_entries_and_lose_none(world: World, era: str) -> None:
    names = [f"skill-{n:02}" for n in range(11)]
    for name in names:
        world.skill(f"{SKILLS}/{name}", files={"a.md": name, "b.md": name})
    app = open_app(world)
    async with connected(world, "memory", era, app, page_size=3) as client:
        result = await ask(client, "skills/list")
        pages: list[list[dict[str, Any]]] = [result["skills"]]
        world.skill(f"{SKILLS}/a-first")
        assert app.refresh().added == ("a-first",), "a change between two pages moves no entry"
        while "nextCursor" in result:
            result = await ask(client, "skills/list", cursor=result["nextCursor"])
            pages.append(result["skills"])
        assert [len(page) for page in pages] == [3, 3, 3, 2]
        listed = [(entry["frontmatter"]["name"], len(entry["resources"])) for page in pages for entry in page]
        assert listed == [(name, 3) for name in names]
        assert len(await all_pages(client, "resources/list", "resources")) == 34
        assert len(await all_pages(client, "prompts/list", "prompts")) == 12
        for method in ("skills/list", "resources/list", "prompts/list"):
            for wrong in ("nonsense", "bm9wZQ==", "\N{SNOWMAN}"):
                with pytest.raises(MCPError) as caught:
                    await ask(client, method, cursor=wrong)
                assert caught.value.code == types.INVALID_PARAMS


@BOTH_ERAS
async def test_directories_list_one_level_and_nothing_else_is_one(library: World, era: str) -> None:
    (library.project / SKILLS / "pdf/hollow").mkdir()
    folder, text = "inode/directory", "text/plain"
    levels = {
        "": {"SKILL.md": "text/markdown", "assets": folder, "empty.txt": text, "references": folder, "scripts": folder},
        "/references": {"references/forms.md": "text/markdown", "references/more": folder},
        "/references/more": {"references/more/%C3%BCber%20uns%3F.txt": text},
        "/hollow": {},
    }
    async with connected(library, "memory", era) as client:
        for path, expected in levels.items():
            result = await ask(client, "resources/directory/read", uri=f"skill://pdf{path}")
            listed = {r["uri"].removeprefix("skill://pdf/"): r["mimeType"] for r in result["resources"]}
            assert (result["resultType"], listed) == ("complete", expected), path
        for uri in ("pdf/SKILL.md", "pdf/nothing", "nobody", "secret-flag", "pdf/..", "pdf/%2e%2e", ""):
            with pytest.raises(MCPError) as caught:
                await ask(client, "resources/directory/read", uri=f"skill://{uri}")
            assert caught.value.code == types.INVALID_PARAMS, uri


async def test_a_skill_larger_than_every_host_takes_is_dynamic(world: World) -> None:
    for number in range(511):
        world.skill(f"{SKILLS}/large", files={f"f/{number:03}.txt": "x"})
    world.skill(f"{SKILLS}/heavy", files={"a.bin": b"a" * (16 << 20)})

    async def listed() -> dict[str, object]:
        async with connected(world, "memory", "2026") as client:
            entries = (await ask(client, "skills/list"))["skills"]
        return {entry["frontmatter"]["name"]: entry["resources"] for entry in entries}

    found = await listed()
    assert (found["heavy"], len(str(found["large"])) > 512) == ("dynamic", True)
    world.skill(f"{SKILLS}/large", files={"f/one-more.txt": "x"})
    assert (await listed())["large"] == "dynamic"


# --- what is hidden ---


@pytest.mark.system
@CONNECTIONS
async def test_a_hidden_skill_is_nowhere(library: World, transport: str, era: str) -> None:
    lists = ("skills/list", "resources/list", "tools/list", "prompts/list", "resources/templates/list")
    keys = ("skills", "resources", "tools", "prompts", "resourceTemplates")
    async with connected(library, transport, era) as client:
        answers: list[object] = [client.instructions]
        for method, key in zip(lists, keys, strict=True):
            answers += await all_pages(client, method, key)
        template = types.ResourceTemplateReference(uri="skill://{name}/{+path}")
        answers.append(await client.complete(template, {"name": "name", "value": "secret"}))
        answers.append(await client.call_tool("skill_search", {"query": "secret"}))
        assert "secret-" not in str(answers)
        for name in ("secret-flag", "secret-rule", "secret-off", "secret-manual"):
            for attempt in (
                lambda n=name: ask(client, "skills/get", uri=f"skill://{n}/SKILL.md"),
                lambda n=name: client.read_resource(f"skill://{n}/SKILL.md"),
                lambda n=name: client.read_resource(f"skill://{n}/a.md"),
                lambda n=name: ask(client, "resources/directory/read", uri=f"skill://{n}"),
                lambda n=name: client.get_prompt(n, {}),
            ):
                with pytest.raises(MCPError) as caught:
                    await attempt()
                assert (caught.value.code, "SECRET" in str(caught.value)) == (types.INVALID_PARAMS, False)
            for tool, arguments in (("skill_load", {"name": name}), ("skill_read", {"name": name, "path": "a.md"})):
                result = await client.call_tool(tool, arguments)
                assert (result.is_error, "SECRET" in str(result.content)) == (True, False)


# --- plain resources ---


@BOTH_ERAS
async def test_plain_resources_and_their_template_cover_every_file(library: World, era: str) -> None:
    async with connected(library, "memory", era) as client:
        listed = (await client.list_resources()).resources
        assert len(listed) == 10
        main = next(resource for resource in listed if resource.uri == "skill://pdf/SKILL.md")
        told = (main.name, main.mime_type, main.description)
        assert told == ("pdf", "text/markdown", "Fills PDF forms: 日本語 too.")
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "skill://{name}/{+path}"
        for resource in listed:
            (content,) = (await client.read_resource(resource.uri)).contents
            assert content.uri == resource.uri
        blob = await client.read_resource("skill://pdf/assets/blob.bin")
        assert (blob.contents[0].mime_type, bytes_of(blob)) == ("application/octet-stream", BINARY)


@BOTH_ERAS
async def test_a_read_that_names_no_file_of_a_skill_is_refused(library: World, era: str) -> None:
    (library.project / SKILLS / "pdf/link").symlink_to("/etc/passwd")
    async with connected(library, "memory", era) as client:
        for uri in (
            *("skill://pdf/../csv/SKILL.md", "skill://pdf/%2e%2e/csv/SKILL.md", "skill://pdf/%2Fetc/passwd"),
            *("skill://pdf/link", "skill://pdf/references", "skill://pdf/absent.md", "skill://nobody/SKILL.md"),
            *("file:///etc/passwd", "skill://", "skill://pdf/a%00b", "skill://pdf/%ff", "x"),
        ):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert (caught.value.code, "root:" in str(caught.value)) == (types.INVALID_PARAMS, False), uri
        assert (await client.read_resource("skill://pdf/SKILL.md")).contents


async def test_reads_are_decided_and_recorded_by_the_session(library: World) -> None:
    library.configure_user('[permissions]\ndeny = [{tool = "skill_read", skill_name = "csv"}]\n')
    app = open_app(library)
    async with connected(library, "memory", "2025", app) as client:
        await client.read_resource("skill://pdf/references/forms.md")
        with pytest.raises(MCPError):
            await client.read_resource("skill://pdf/absent.md")
        with pytest.raises(MCPError) as caught:
            await client.read_resource("skill://csv/inner/SKILL.md")
        assert caught.value.code == -32000
        about = {"type": "PolicyDenied", "code": "ACCESS_DENIED", "tool": "skill_read"}
        assert caught.value.data == about | {"uri": "skill://csv/inner/SKILL.md"}
    frames = app.store.read()
    assert frames[0]["surface"] == "mcp"
    read = [frame for frame in frames if frame["type"] == ResourceRead.type]
    assert [frame["path"] for frame in read] == ["references/forms.md"]
    refused = [frame for frame in frames if frame["type"] == ResourceRefused.type]
    assert [(frame["path"], frame["reason"]) for frame in refused] == [("absent.md", "not-found")]


@BOTH_ERAS
@pytest.mark.behaviour("K-002", "N-107")
async def test_while_off_the_server_says_so_and_offers_nothing(world: World, era: str) -> None:
    world.skill(".skills/probe")
    app = open_app(world, profile="remcochat")
    async with connected(world, "memory", era, app) as client:
        assert (await client.list_tools()).tools == []
        assert "skills are switched off in the profile remcochat; set app.skills.enabled = true" in str(
            client.instructions
        )
