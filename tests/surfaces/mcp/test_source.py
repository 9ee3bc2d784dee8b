"""Skills of other servers: listed without a body, verified when loaded, approved as a set, and marked as remote."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from clients import HOSTS, command, digest

import forking
from metier import Skills
from metier.errors import ConfigError, PolicyDenied, ResourceError
from metier.policy.decide import Request
from metier.record.events import PolicyAsked, ResourceRefused
from metier.record.store import open_store
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.session.session import Session
from metier.sources.mcp_client import ListedSkills, ServerConfig
from metier.sources.mcp_servers import McpSource, connect, servers
from worlds import World

SKILLS = ".agents/skills"
TEXT = "---\nname: deploy\ndescription: Ships it.\nallowed-tools: Bash\n---\nSTEPS $ARGUMENTS\n"
BASE = "skill://acme/deploy"
SERVER = f"import runpy; runpy.run_path({str(Path(__file__).with_name('untrusted_server.py'))!r}, run_name='__main__')"


@dataclass
class UntrustedServer:
    """The other server: what it lists and serves, and the requests that it received."""

    file: Path
    frontmatter: dict[str, object] = field(
        default_factory=lambda: {"name": "deploy", "description": "Ships it.", "allowed-tools": "Bash"}
    )
    files: dict[str, str] = field(default_factory=lambda: {"SKILL.md": TEXT, "guide.md": "GUIDE", "scripts/a.sh": "a"})
    clock: float = 0.0

    def entry(self, **changes: object) -> dict[str, object]:
        listed = [
            {"uri": f"{BASE}/{path}", "digest": digest(text.encode()), "size": len(text.encode())}
            for path, text in self.files.items()
        ]
        return {"uri": f"{BASE}/SKILL.md", "frontmatter": self.frontmatter, "resources": listed, **changes}

    def publish(self, *entries: object, serves: dict[str, str] | None = None, **more: object) -> None:
        """List these entries (by default the honest one) and serve these files (by default the listed ones)."""
        served = {f"{BASE}/{path}": text for path, text in (self.files if serves is None else serves).items()}
        listed = list(entries) or [self.entry()]
        self.file.write_text(json.dumps({"entries": listed, "files": served, **more}))

    def asked(self) -> list[str]:
        log = Path(f"{self.file}.log")
        return log.read_text().splitlines() if log.exists() else []

    def config(self, *, prefer: bool = False, allowed_tools: tuple[str, ...] = ()) -> ServerConfig:
        line = forking.program(str(self.file), code=SERVER)
        return ServerConfig("acme", tuple(line), prefer=prefer, allowed_tools=allowed_tools)


@pytest.fixture
def server(tmp_path: Path) -> UntrustedServer:
    return UntrustedServer(tmp_path / "server.json")


@pytest.fixture
def sources() -> Iterator[Callable[..., McpSource]]:
    opened: list[McpSource] = []

    def open_source(
        configs: Sequence[ServerConfig], folder: str, clock: Callable[[], float] = time.monotonic
    ) -> McpSource:
        opened.append(McpSource(configs, folder, clock))
        return opened[-1]

    yield open_source
    for source in opened:
        source.close()


@pytest.fixture
def joined(
    world: World, server: UntrustedServer, sources: Callable[..., McpSource], tmp_path: Path
) -> Callable[..., Skills]:
    def build(profile: str = "standard", *, prefer: bool = False, allowed_tools: tuple[str, ...] = ()) -> Skills:
        source = sources(
            [server.config(prefer=prefer, allowed_tools=allowed_tools)], str(tmp_path / "cache"), lambda: server.clock
        )
        return world.discover(profile, source=source)

    return build


def yes(request: Request) -> bool:
    return True


# --- listing and loading ---


@pytest.mark.system
def test_a_real_server_of_ours_is_a_root_of_the_catalog(
    world: World, tmp_path: Path, sources: Callable[..., McpSource]
) -> None:
    far = World(tmp_path / "far-home", tmp_path / "far")
    (far.project / ".git").mkdir(parents=True)
    far.home.mkdir()
    files: dict[str, str | bytes] = {"references/a b.md": "FAR-FILE é", "data.bin": bytes(range(256))}
    far.skill(f"{SKILLS}/pdf", body="FAR-BODY", files=files, metadata={"version": "1.10", "count": 3})
    far.skill(f"{SKILLS}/hidden", disable_model_invocation=True)
    world.skill(f"{SKILLS}/local")
    source = sources([ServerConfig("far", tuple(command(far)))], str(tmp_path / "cache"))
    skills = world.discover(source=source)
    assert [(skill.name, skill.source, skill.scope) for skill in skills] == [
        ("local", "agents", "repo"),
        ("pdf", "far", "mcp"),
    ]
    assert not list((tmp_path / "cache").rglob("*")), "nothing is fetched to list"
    session = skills.session(approve=yes)
    loaded = session.load("pdf")
    assert "FAR-BODY" in loaded.text
    assert loaded.files == ("data.bin", "references/a b.md")
    assert loaded.digest == digest((far.project / SKILLS / "pdf/SKILL.md").read_bytes())
    assert session.read("pdf", "references/a b.md").text.endswith("FAR-FILE é")
    cached = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert cached == {"SKILL.md", "a b.md"}, "what was not needed was not fetched"
    assert skills.session(approve=yes).load("local").text.startswith("<skill_content")


@pytest.mark.system
def test_nothing_is_read_before_it_is_needed_and_nothing_twice(
    server: UntrustedServer, joined: Callable[..., Skills]
) -> None:
    server.publish()
    skills = joined()
    assert skills["deploy"].size == len(TEXT)
    assert server.asked() == ["skills/list"]
    session = skills.session(approve=yes)
    first = session.load("deploy")
    skills.session(approve=yes).load("deploy")
    assert server.asked() == ["skills/list", f"resources/read {BASE}/SKILL.md"]
    assert "[from the MCP server acme] Ships it." in session.prompt().text
    read = session.read("deploy", "guide.md").text
    called = session.call("skill_read", {"name": "deploy", "path": "guide.md"}).text
    for text in (first.text, read, called):
        assert "MCP server acme" in text, "the model is told whose text it reads"


@pytest.mark.system
def test_every_host_says_so_in_what_a_load_returns(
    server: UntrustedServer, world: World, sources: Callable[..., McpSource], tmp_path: Path
) -> None:
    server.publish()
    for profile in HOSTS:
        source = sources([server.config()], str(tmp_path / "cache"))
        session = world.discover(profile, source=source, settings={"enabled": True}).session(approve=yes)
        name = session.offered().get("load") or session.offered()["read"]
        result = session.call(name, {"path": "skill://deploy"} if profile == "omp" else {"name": "deploy"})
        assert (result.ok, "STEPS" in result.text, "MCP server acme" in result.text) == (True, True, True), profile


@pytest.mark.system
def test_what_a_server_gave_is_replayed_byte_for_byte_without_it(
    server: UntrustedServer, joined: Callable[..., Skills], tmp_path: Path
) -> None:
    server.publish()
    skills = joined()
    answers: list[tuple[Callable[[Request], bool | str] | None, dict[str, object]]] = [
        (lambda _: True, {}),
        (lambda _: "always", {}),
        (lambda _: False, {}),
        (None, {}),
        (None, {"allow": [{"tool": "mcp_load"}]}),
        (None, {"deny": [{"tool": "mcp_load"}]}),
    ]
    with open_store(str(tmp_path / "trail.db")) as store:
        for number, (approve, rules) in enumerate(answers):
            session = skills.session(approve=approve, store=store, policy=rules)
            for act in (lambda one=session: one.load("deploy"), lambda one=session: one.read("deploy", "guide.md")):
                with contextlib.suppress(PolicyDenied):
                    assert "MCP server acme" in act().text
            outcome = replay(from_store(store, session.id))
            assert (outcome.identical, len(outcome.outputs)) == (True, 2), (number, outcome.differences)


# --- verification ---


def refusal(session: Session, path: str = "SKILL.md") -> str:
    """The reason why a file was refused. The record must have the same reason."""
    with pytest.raises(ResourceError) as caught:
        session.load("deploy") if path == "SKILL.md" else session.read("deploy", path)
    frames = [frame for frame in session.events if frame["type"] == ResourceRefused.type]
    assert frames[-1]["reason"] == caught.value.reason
    assert frames[-1]["detail"] == str(caught.value)
    return caught.value.reason


@pytest.mark.system
def test_a_skill_that_is_not_as_listed_is_not_loaded(
    server: UntrustedServer, joined: Callable[..., Skills], tmp_path: Path
) -> None:
    for served, reason in ((TEXT.replace("STEPS", "TRICK"), "digest"), (TEXT + " ", "size"), ("", "size")):
        server.publish(serves={**server.files, "SKILL.md": served})
        assert refusal(joined().session(approve=yes)) == reason
        assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    honest = server.frontmatter
    for change in ({"description": "Ships nothing."}, {"license": "MIT"}, {"allowed-tools": "Read"}):
        server.frontmatter = {**honest, **change}
        server.publish()
        assert refusal(joined().session(approve=yes)) == "frontmatter", change


@pytest.mark.system
def test_a_file_that_is_not_listed_is_refused_without_asking_for_it_and_a_gone_one_names_its_server(
    server: UntrustedServer, joined: Callable[..., Skills]
) -> None:
    server.publish(serves={**server.files, "extra.md": "EXTRA"})
    session = joined().session(approve=yes)
    assert session.read("deploy", "guide.md").text.endswith("GUIDE")
    assert refusal(session, "extra.md") == "unlisted"
    assert f"resources/read {BASE}/extra.md" not in server.asked()
    server.publish(serves={})
    with pytest.raises(ResourceError, match="the server acme answered: no such resource"):
        session.read("deploy", "scripts/a.sh")


@pytest.mark.system
def test_a_cached_file_that_was_touched_is_fetched_again(
    server: UntrustedServer, joined: Callable[..., Skills], tmp_path: Path
) -> None:
    server.publish()
    skills = joined()
    skills.session(approve=yes).load("deploy")
    (cached,) = (tmp_path / "cache").rglob("SKILL.md")
    cached.chmod(0o600)
    cached.write_text(TEXT.replace("STEPS", "TRICK"))
    assert "STEPS" in skills.session(approve=yes).load("deploy").text
    assert cached.read_text() == TEXT
    cached.unlink()
    cached.symlink_to("/etc/passwd")
    assert "STEPS" in skills.session(approve=yes).load("deploy").text


SHA = "sha256:" + "0" * 64
BAD: list[tuple[dict[str, object] | str, str]] = [
    ("nothing", "no uri"),
    ({"uri": "skill://deploy"}, "no uri"),
    ({"uri": "skill://other/SKILL.md"}, "name"),
    ({"frontmatter": None}, "frontmatter"),
    ({"frontmatter": {"name": "deploy"}}, "description"),
    ({"resources": "dynamic"}, "dynamic"),
    ({"resources": None}, "list of files"),
    ({"resources": []}, "has no SKILL.md"),
    ({"resources": [{"uri": "skill://acme/other.md", "digest": SHA, "size": 1}]}, "not a file of the skill"),
    ({"resources": [{"uri": f"{BASE}/../x", "digest": SHA, "size": 1}]}, "traversal"),
    ({"resources": [{"uri": f"{BASE}/%2e%2e/x", "digest": SHA, "size": 1}]}, "traversal"),
    ({"resources": [{"uri": f"{BASE}//etc", "digest": SHA, "size": 1}]}, "absolute"),
    ({"resources": [{"uri": f"{BASE}/a/./b", "digest": SHA, "size": 1}]}, "plain path"),
    ({"resources": [{"uri": f"{BASE}/a.pyc", "digest": SHA, "size": 1}]}, "a.pyc is compiled Python"),
    ({"resources": [{"uri": f"{BASE}/%5f_pycache__/a", "digest": SHA, "size": 1}]}, "/a is compiled Python"),
    ({"resources": [{"uri": f"{BASE}/SKILL.md", "digest": "md5:0", "size": 1}]}, "digest"),
    ({"resources": [{"uri": f"{BASE}/SKILL.md", "digest": SHA, "size": True}]}, "size"),
    ({"resources": [{"uri": f"{BASE}/SKILL.md", "digest": SHA, "size": 17 << 20}]}, "bytes, more than"),
    ({"resources": [{"uri": f"{BASE}/SKILL.md", "digest": SHA, "size": 1}] * 2}, "twice"),
    ({"resources": [{"uri": f"{BASE}/{n}", "digest": SHA, "size": 1} for n in range(513)]}, "513 files"),
]


@pytest.mark.system
def test_a_bad_entry_is_left_out_with_its_reason(
    server: UntrustedServer, monkeypatch: pytest.MonkeyPatch, world: World, tmp_path: Path
) -> None:
    good = json.loads(json.dumps(server.entry()).replace("deploy", "honest"))
    for change, why in BAD:
        bad = server.entry(**change) if isinstance(change, dict) else change
        listed = ListedSkills([bad, good], 0)
        monkeypatch.setattr("metier.sources.mcp_client.McpClient.skills", lambda _, listed=listed: listed)
        source = McpSource([server.config()], str(tmp_path / "cache"))
        skills = world.discover(source=source)
        source.close()
        assert [skill.name for skill in skills] == ["honest"], why
        (skipped,) = skills.skipped
        assert (skipped.reason, why in skipped.detail) == ("mcp", True), (why, skipped.detail)


# --- approval ---


@pytest.mark.system
def test_where_nobody_can_be_asked_a_model_gets_nothing_of_a_server_and_a_person_has_said_yes(
    server: UntrustedServer, joined: Callable[..., Skills]
) -> None:
    server.publish()
    skills = joined()
    for unasked in ("refuse", "loads", "allow"):
        store = MemoryStore()
        session = skills.session(policy={"unasked": unasked}, store=store)
        refused = session.call("skill_load", {"name": "deploy"})
        assert (refused.ok, "nobody can be asked here" in refused.text) == (False, True), unasked
        assert 'tool = "mcp_load", skill_name = "deploy", scope = "mcp", source = "acme" }' in refused.text
        assert replay(from_store(store, session.id)).identical
        assert server.asked() == ["skills/list"]
    assert skills.session().load("deploy").text
    assert skills.session().invoke("/deploy now").loaded is not None
    with pytest.raises(PolicyDenied, match="deny rule"):
        skills.session(policy={"deny": [{"tool": "mcp_load"}]}).load("deploy")


@pytest.mark.system
def test_an_approval_is_of_the_whole_set_and_asked_for_once(
    server: UntrustedServer, joined: Callable[..., Skills]
) -> None:
    server.publish()
    asked: list[Request] = []
    session = joined().session(approve=lambda request: not asked.append(request))
    session.load("deploy")
    session.read("deploy", "guide.md")
    (request,) = asked
    assert (request.tool, request.skill_name, request.path) == ("mcp_load", "deploy", f"{BASE}/SKILL.md")
    assert request.digest.startswith("sha256:")
    (frame,) = [frame for frame in session.events if frame["type"] == PolicyAsked.type]
    assert (frame["tool"], frame["answer"], frame["digest"]) == ("mcp_load", "once", request.digest)


@pytest.mark.system
@pytest.mark.parametrize("path", ["SKILL.md", "guide.md", "scripts/new.sh"])
def test_a_changed_set_asks_again_even_after_always(
    server: UntrustedServer, joined: Callable[..., Skills], path: str
) -> None:
    server.publish()
    skills = joined()
    answers = ["always", "no"]
    session = skills.session(approve=lambda request: answers.pop(0))
    session.load("deploy")
    session.load("deploy", arguments="again")
    assert answers == ["no"]
    (rule,) = session.policy.rules().allow
    remembered = {"allow": [rule.as_dict()]}
    assert "STEPS" in skills.session(policy=remembered).load("deploy").text
    server.files[path] = TEXT + "more\n" if path == "SKILL.md" else "changed"
    server.publish()
    skills.refresh()
    session.load("deploy", arguments="still held by the old list")
    server.clock += 10
    assert skills.refresh()
    with pytest.raises(PolicyDenied, match="the answer was no"):
        session.load("deploy", arguments="once more")
    assert not skills.session(policy=remembered).call("skill_load", {"name": "deploy"}).ok


@pytest.mark.system
def test_allowed_tools_count_only_where_the_user_said_so(
    server: UntrustedServer, joined: Callable[..., Skills]
) -> None:
    server.publish()
    for named, tools in (((), None), (("deploy",), ("Bash",)), (("other",), None)):
        assert joined(allowed_tools=named)["deploy"].allowed_tools == tools


# --- names ---


@pytest.mark.system
def test_a_local_skill_keeps_its_name_unless_the_server_is_preferred_and_the_collision_is_told(
    server: UntrustedServer, joined: Callable[..., Skills], world: World
) -> None:
    server.publish()
    world.skill(f"{SKILLS}/deploy", body="LOCAL")
    skills = joined()
    assert skills["deploy"].source == "agents"
    (shadowed,) = skills.shadowed
    (collision,) = [d for d in skills.diagnostics if d.code == "collision"]
    assert (shadowed.skill.source, collision.path) == ("acme", shadowed.skill.path)
    session = skills.session(approve=yes)
    assert "LOCAL" in session.load("deploy").text
    assert "STEPS" in session.load(path=shadowed.skill.path).text
    preferred = joined(prefer=True)
    assert (preferred["deploy"].source, [d.code for d in preferred.diagnostics]) == ("acme", ["collision"])
    world.skill("skills/deploy")
    skills = joined("mycodeagent")  # where the last path wins, a server does not
    assert skills["deploy"].source != "acme"
    assert "collision" in [d.code for d in skills.diagnostics]


# --- servers that do not answer ---


@pytest.mark.system
def test_a_server_that_does_not_start_or_has_no_skills_costs_a_warning_and_no_other_skill(
    world: World, tmp_path: Path, sources: Callable[..., McpSource], server: UntrustedServer
) -> None:
    world.skill(f"{SKILLS}/local")
    server.publish(plain=True)
    for config, says in (
        (ServerConfig("gone", ("/nowhere/server",)), "cannot reach the server gone"),
        (server.config(), "the server acme does not offer skills"),
    ):
        skills = world.discover(source=sources([config], str(tmp_path / "cache")))
        assert [skill.name for skill in skills] == ["local"]
        (note,) = skills.diagnostics
        assert (note.severity, says in note.message) == ("warning", True)


@pytest.mark.system
def test_a_connection_that_broke_is_made_again(server: UntrustedServer, joined: Callable[..., Skills]) -> None:
    server.publish()
    skills = joined()
    assert isinstance(skills._source, McpSource)
    skills._source._client("acme").close()
    assert "STEPS" in skills.session(approve=yes).load("deploy").text


# --- the servers of the user's configuration ---


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
