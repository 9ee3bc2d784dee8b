"""Installing: what policy says first, what is checked, what stands afterwards, and what is written down."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hostile import SKILL, tarred, zipped
from skillsite import Site, certificate, listener, serving

from metier import limits
from metier.app import App
from metier.cli import main
from metier.errors import ConfigError, InstallError, PolicyDenied, StoreError
from metier.files.digests import digest_of
from metier.hosts.settings import resolve
from metier.install import Installer, Offer, Wish, fetch, lock
from metier.record.store.memory import MemoryStore
from metier.session.policy import Request
from metier.web.publish import PublishedSkills
from worlds import World

OPEN = {"allow": [{"tool": "install"}]}
INDEX = fetch.INDEX


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as made:
        yield made


def yes(_: Offer) -> bool:
    return True


class Place(NamedTuple):
    """A home that installs, its trail, and where its skills go."""

    installer: Installer
    store: MemoryStore
    skills: Path

    def take(self, source: object, name: str = "", **given: Any) -> Offer:
        return self.installer.install(Wish(str(source), name, **given), yes)

    def refused(self, source: object, name: str = "", **given: Any) -> str:
        """The reason for which a source is refused; nothing of it is there afterwards."""
        before = sorted(self.skills.parent.rglob("*")) if self.skills.parent.exists() else []
        with pytest.raises((InstallError, PolicyDenied)) as error:
            self.take(source, name, **given)
        assert (sorted(self.skills.parent.rglob("*")) if self.skills.parent.exists() else []) == before
        assert self.trail()[-1]["type"] == "skill_install_refused"
        return getattr(error.value, "reason", "denied")

    def trail(self) -> list[dict[str, Any]]:
        return list(self.store.read("installs"))


def place(
    world: World,
    permissions: dict[str, Any] | None = None,
    approve: Callable[[Request], bool] | None = None,
    store: MemoryStore | None = None,
) -> Place:
    kept = store or MemoryStore()
    config = resolve(world.project, home=world.home, overrides={"permissions": permissions or {}})
    return Place(Installer(config, kept, approve=approve), kept, world.home / ".agents/skills")


# --- policy ---


@pytest.mark.behaviour("R-051")
@pytest.mark.parametrize("permissions", [{}, {"profile": "read-only"}, {"ask": [{"tool": "skill_run"}]}])
def test_by_default_a_remote_install_is_refused_and_no_connection_is_tried(
    world: World, monkeypatch: pytest.MonkeyPatch, permissions: dict[str, Any]
) -> None:
    def tried(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    with listener() as knocks:
        url = f"http://127.0.0.1:{knocks.port}"  # type: ignore[attr-defined]
        monkeypatch.setattr(socket, "getaddrinfo", tried)
        monkeypatch.setattr(socket, "create_connection", tried)
        here = place(world, permissions, approve=lambda _: True)
        for source in (url, f"{url}/x.zip", "https://skills.example.com", "https://skills.example.com/x.skill"):
            assert here.refused(source, "x") == "denied"
        monkeypatch.undo()
        assert knocks() == 0
    assert [frame["reason"] for frame in here.trail()] == ["PolicyDenied"] * 4


@pytest.mark.behaviour("R-051")
def test_the_command_refuses_too_whatever_was_answered_beforehand(world: World, run: "Run", site: Site) -> None:
    site.offer("probe", zipped())
    shown = run("install", site.url, "probe", "--yes")
    assert (shown.code, site.connections) == (3, 0)
    assert 'tool = "install"' in shown.err
    assert not (world.home / ".agents").exists()


def test_a_rule_for_one_place_opens_that_place_only(world: World, site: Site) -> None:
    site.offer("probe", zipped())
    elsewhere = place(world, {"allow": [{"tool": "install", "path": "https://skills.example.com/*"}]})
    assert elsewhere.refused(site.url, "probe") == "denied"
    assert site.connections == 0
    here = place(world, {"allow": [{"tool": "install", "path": f"{site.url}/*"}]})
    assert here.take(site.url, "probe").name == "probe"


def test_where_a_rule_asks_each_host_is_asked_about_once_and_a_no_ends_it(world: World, site: Site) -> None:
    site.offer("probe", zipped())
    asked: list[str] = []

    def answer(request: Request) -> bool:
        asked.append(request.path)
        return len(asked) > 1

    here = place(world, {"ask": [{"tool": "install"}]}, answer)
    assert here.refused(site.url, "probe") == "denied"
    assert (asked, site.connections) == ([f"{site.url}{INDEX}"], 0)
    here.take(site.url, "probe")
    assert len(asked) == 2
    assert place(world, {"ask": [{"tool": "install"}]}).refused(site.url, "probe") == "denied"


def test_a_redirect_is_judged_by_policy_like_the_first_address(world: World, site: Site) -> None:
    site.pages["/private/x.zip"] = zipped()
    site.redirect("/public/x.zip", "/private/x.zip")
    rules = {"allow": [{"tool": "install"}], "deny": [{"tool": "install", "path": "*/private/*"}]}
    assert place(world, rules).refused(f"{site.url}/public/x.zip") == "denied"
    assert site.asked == ["/public/x.zip"]


def test_a_rule_about_a_name_holds_also_when_the_name_comes_out_later(world: World, site: Site) -> None:
    site.pages["/x.zip"] = zipped()
    rules = {**OPEN, "deny": [{"tool": "install", "skill_name": "probe"}]}
    assert place(world, rules).refused(f"{site.url}/x.zip") == "denied"
    world.skill("probe")
    assert place(world, rules).refused(world.project / "probe") == "denied"


def test_the_policy_full_auto_opens_the_network_as_its_name_says(world: World, site: Site) -> None:
    site.offer("probe", zipped())
    assert place(world, {"profile": "full-auto"}).take(site.url, "probe").name == "probe"


def test_a_local_source_needs_no_rule_but_obeys_one(world: World) -> None:
    world.skill("probe")
    source = world.project / "probe"
    assert place(world, {"deny": [{"tool": "install"}]}).refused(source) == "denied"
    assert place(world, {"profile": "read-only"}).refused(source) == "denied"
    assert place(world, {"ask": [{"tool": "install"}]}, lambda _: False).refused(source) == "denied"
    assert place(world).take(source).name == "probe"


def test_a_project_cannot_open_installs_for_its_user(world: World, run: "Run", site: Site) -> None:
    site.offer("probe", zipped())
    (world.project / ".metier").mkdir()
    (world.project / ".metier/config.toml").write_text('[permissions]\nallow = [{ tool = "install" }]\n')
    assert run("trust").code == 0
    assert (run("install", site.url, "probe", "--yes").code, site.connections) == (3, 0)


def test_no_means_that_nothing_happens(world: World) -> None:
    world.skill("probe")
    here = place(world)
    with pytest.raises(PolicyDenied, match="the answer was no"):
        here.installer.install(Wish(str(world.project / "probe")), lambda _: False)
    assert not (world.home / ".agents").exists()


# --- from a site ---


@pytest.mark.parametrize("packed", [zipped, tarred], ids=["zip", "tar"])
def test_a_skill_of_a_site_is_installed_found_and_recorded(world: World, site: Site, packed: Any) -> None:
    data = packed(("references/a.md", b"more"))
    site.offer("probe", data)
    offers: list[Offer] = []
    here = place(world, OPEN)
    offer = here.installer.install(Wish(site.url, "probe"), lambda one: not offers.append(one))
    assert site.asked == [INDEX, "/.well-known/agent-skills/probe.bin"]
    assert offers == [offer]
    assert (offer.description, offer.artifact) == ("A skill for a test.", digest_of(data))
    assert sorted(path for path, _, _ in offer.files) == ["SKILL.md", "references/a.md"]
    found = world.discover()["probe"]
    assert (found.scope, found.path) == ("user", str(here.skills / "probe/SKILL.md"))
    [frame] = here.trail()
    assert (frame["type"], frame["stream_kind"], frame["name"]) == ("skill_installed", "install", "probe")
    assert frame["source"] == f"{site.url}/.well-known/agent-skills/probe.bin"
    assert (frame["tree"], frame["artifact"], frame["files"]) == (offer.tree, offer.artifact, 2)
    assert frame["by"]
    assert os.listdir(world.home / ".agents") in (["skills", "skills.lock.json"], ["skills.lock.json", "skills"])


def test_a_site_may_offer_a_bare_skill_file(world: World, site: Site) -> None:
    site.offer("probe", SKILL, type="skill-md", url="probe/SKILL.md")
    here = place(world, OPEN)
    here.take(f"{site.url}{INDEX}", "probe")
    assert (here.skills / "probe/SKILL.md").read_bytes() == SKILL


def test_an_archive_by_its_own_address_with_a_digest(world: World, site: Site) -> None:
    data = site.pages["/files/x.skill?token=secret"] = zipped()
    here = place(world, OPEN)
    url = f"{site.url}/files/x.skill?token=secret"
    assert here.refused(url, digest=f"sha256:{'0' * 64}") == "digest"
    here.take(url, digest=digest_of(data))
    assert "secret" not in json.dumps(here.trail())
    assert "secret" not in (world.home / ".agents/skills.lock.json").read_text()


def test_an_artifact_that_is_not_the_announced_one_is_refused(world: World, site: Site) -> None:
    site.offer("probe", zipped())
    site.pages["/.well-known/agent-skills/probe.bin"] = zipped(("evil.sh", b"x"))
    assert place(world, OPEN).refused(site.url, "probe") == "digest"


def test_an_index_that_announces_another_digest_than_the_wanted_one_is_refused(world: World, site: Site) -> None:
    site.offer("probe", zipped())
    assert place(world, OPEN).refused(site.url, "probe", digest=f"sha256:{'0' * 64}") == "digest"
    assert site.asked == [INDEX]


def test_the_skill_inside_must_be_the_one_that_was_asked_for(world: World, site: Site) -> None:
    site.offer("other", zipped())
    assert place(world, OPEN).refused(site.url, "other") == "other-name"


def entry(**changes: Any) -> dict[str, Any]:
    good = {"name": "probe", "type": "archive", "url": "probe.bin", "digest": f"sha256:{'0' * 64}"}
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ({"entries": [entry()], "schema": fetch.SCHEMA.replace("0.2.0", "9.9.9")}, "unknown-index"),
        ({"entries": [entry()], "schema": None}, "unknown-index"),
        ({"entries": []}, "not-found"),
        ({"entries": [entry(), entry()]}, "not-found"),
        ({"entries": [entry(digest=None)]}, "bad-index"),
        ({"entries": [entry(digest="md5:0")]}, "bad-index"),
        ({"entries": [entry(digest=f"sha256:{'A' * 64}")]}, "bad-index"),
        ({"entries": [entry(type="program")]}, "bad-index"),
        ({"entries": [entry(url=None)]}, "bad-index"),
        ({"entries": [entry(url="http://skills.example.com/x.zip")]}, "bad-url"),
        ({"entries": [entry(url="file:///etc/passwd")]}, "bad-url"),
        ({"entries": [entry(url="https://user:word@skills.example.com/x.zip")]}, "bad-url"),
        ({"entries": [entry(url="https://10.0.0.1/x.zip")]}, "private-address"),
        ({"entries": [entry(url="https://[::ffff:169.254.169.254]/latest/meta-data")]}, "private-address"),
        ({"entries": [entry(url="https://localhost/x.zip")]}, "private-address"),
    ],
)  # fmt: skip
def test_an_index_that_is_not_sound_is_refused(world: World, site: Site, index: dict[str, Any], reason: str) -> None:
    site.index(*index.pop("entries"), **index)
    site.pages["/.well-known/agent-skills/probe.bin"] = zipped()
    assert place(world, OPEN).refused(site.url, "probe") == reason
    assert site.asked == [INDEX]


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"skills": 1}', b'"x"', b"[" * 100_000])
def test_what_is_no_index_is_refused(world: World, site: Site, text: bytes) -> None:
    site.pages[INDEX] = text
    assert place(world, OPEN).refused(site.url, "probe") == "bad-index"


def test_without_a_name_the_message_says_what_is_offered(world: World, site: Site) -> None:
    site.offer("probe", zipped())
    with pytest.raises(InstallError, match="it offers probe"):
        place(world, OPEN).take(site.url)


# --- connections ---


@pytest.mark.parametrize(
    "url",
    [
        "http://skills.example.com/x.zip",
        "ftp://skills.example.com/x.zip",
        "file:///etc/passwd",
        "https://user@skills.example.com/x.zip",
        "https://skills.example.com\\@evil.example/x.zip",
        "https://skills.example.com/good/../evil.zip",
        "https://skills.example.com/good/%2e%2e/evil.zip",
        "https://skills.example.com/good/%2E%2e%2fevil.zip",
        "https://skills.example.com/a b.zip",
        "https://sk\u00eells.example.com/x.zip",
        "https://skills.example.com:99999/x.zip",
        "https://[::1/x.zip",
        "https:///x.zip",
        "https://skills.example.com/x\r\nHost: evil",
    ],
)
def test_an_address_that_is_not_plain_https_is_refused_before_anything(
    world: World, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was looked up"))
    assert place(world, OPEN).refused(url) == "bad-url"


def test_a_password_in_an_address_is_neither_used_nor_written_down(world: World) -> None:
    here = place(world, OPEN)
    for url in ("https://me:secret@skills.example.com/x.zip?key=secret", "http://skills.example.com/x?key=secret"):
        assert here.refused(url) == "bad-url"
    assert "secret" not in json.dumps(here.trail())
    assert here.trail()[0]["source"] == "https://skills.example.com/x.zip"


def test_redirects_are_followed_a_few_times_and_no_more(world: World, site: Site) -> None:
    site.pages["/3"] = zipped()
    for step in range(3):
        site.redirect(f"/{step}", f"{site.url}/{step + 1}")
    here = place(world, OPEN)
    here.take(f"{site.url}/0")
    site.redirect("/round", "/round")
    assert here.refused(f"{site.url}/round") == "redirects"
    site.redirect("/nowhere", "")
    assert here.refused(f"{site.url}/nowhere") == "redirects"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://skills.example.com/x.zip", "bad-url"),
        ("file:///etc/passwd", "bad-url"),
        ("https://169.254.169.254/latest/meta-data", "private-address"),
        ("https://192.168.0.1/", "private-address"),
        ("https://[64:ff9b::7f00:1]/", "private-address"),
        ("https://[2002:7f00:1::]/", "private-address"),
        ("https://[fe80::1]/", "private-address"),
        ("https://0.0.0.0/", "private-address"),
    ],
)
def test_a_server_cannot_send_us_into_another_network(world: World, site: Site, target: str, reason: str) -> None:
    site.redirect("/x.zip", target)
    assert place(world, OPEN).refused(f"{site.url}/x.zip") == reason


def test_a_server_cannot_send_us_to_another_port_of_this_machine(world: World, site: Site) -> None:
    with serving() as other:
        other.pages["/x.zip"] = zipped()
        site.redirect("/x.zip", f"{other.url}/x.zip")
        assert place(world, OPEN).refused(f"{site.url}/x.zip") == "private-address"
        assert other.connections == 0


def test_a_name_is_looked_up_once_and_its_address_used(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/x.zip"] = zipped()
    lookups: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, *given: Any, **more: Any) -> Any:
        lookups.append(host)
        return real("127.0.0.1" if host == "localhost" else host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    place(world, OPEN).take(f"{site.url.replace('127.0.0.1', 'localhost')}/x.zip")
    assert lookups == ["localhost", "127.0.0.1"], "the second one is an address already"


def test_a_name_of_this_machine_that_leads_elsewhere_gets_no_plain_http(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    assert place(world, OPEN).refused("http://localhost/x.zip") == "bad-url"


def test_no_proxy_is_used(world: World, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pages["/x.zip"] = zipped()
    with listener() as knocks:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{knocks.port}")  # type: ignore[attr-defined]
        monkeypatch.delenv("no_proxy", raising=False)
        place(world, OPEN).take(f"{site.url}/x.zip")
        assert knocks() == 0


def large(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(limits.ARTIFACT_BYTES + 1))
    handler.end_headers()


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    piece = b"x" * (1 << 20)
    for _ in range(limits.ARTIFACT_BYTES // len(piece) + 2):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def cut_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(zipped())


def packed_again(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()


def no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\x01\x02 what?\r\n\r\n")


def many_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (large, "too-large"), (endless, "too-large"), (cut_off, "unreachable"), (packed_again, "bad-answer"),
        (no_http, "unreachable"), (many_headers, "unreachable"),
    ],
)  # fmt: skip
def test_an_answer_that_is_too_much_or_none_is_refused(
    world: World, site: Site, answer: Callable[[BaseHTTPRequestHandler], None], reason: str
) -> None:
    site.pages["/x.zip"] = answer
    assert place(world, OPEN).refused(f"{site.url}/x.zip") == reason


@pytest.mark.parametrize("where", ["headers", "body"])
def test_a_server_that_drips_is_left_after_a_while(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(limits, "INSTALL_SECONDS", 0.5)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if where == "body" else b""))
        while True:  # until the other side hangs up
            handler.wfile.write(b"x")
            handler.wfile.flush()
            handler.connection.settimeout(0.1)
            try:
                if handler.connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue

    site.pages["/x.zip"] = drip
    with pytest.raises(InstallError, match="took more than"):
        place(world, OPEN).take(f"{site.url}/x.zip")


def test_a_host_that_is_not_there_is_one_line(world: World) -> None:
    with listener() as knocks:
        port: int = knocks.port  # type: ignore[attr-defined]
    assert place(world, OPEN).refused(f"http://127.0.0.1:{port}/x.zip") == "unreachable"
    assert place(world, OPEN).refused("https://no-such-host.invalid/x.zip") == "unreachable"


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_a_certificate_must_be_trusted(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = certificate(tmp_path)
    with serving(made) as site:
        site.offer("probe", zipped())
        here = place(world, OPEN)
        assert here.refused(site.url, "probe") == "unreachable"
        assert site.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(made))
        assert here.refused(site.url.replace("localhost", "127.0.0.1"), "probe") == "unreachable"
        assert here.take(site.url, "probe").source.startswith("https://localhost")


# --- what stands afterwards ---


def test_nothing_is_overwritten_unless_asked_for(world: World) -> None:
    world.skill("probe", body="one")
    here = place(world)
    first = here.take(world.project / "probe")
    world.skill("probe", body="two")
    assert here.refused(world.project / "probe") == "exists"
    assert (here.skills / "probe/SKILL.md").read_text().endswith("one")
    (here.skills / "probe/own-notes.md").write_text("x")
    here.take(world.project / "probe", replace=True)
    assert (here.skills / "probe/SKILL.md").read_text().endswith("two")
    assert os.listdir(here.skills / "probe") == ["SKILL.md"]
    assert here.trail()[-1]["replaced"] == first.tree


class FullStore(MemoryStore):
    full = False

    def append(self, *given: Any, **more: Any) -> Any:
        if self.full and given[3][0].type == "skill_installed":
            raise StoreError("no space", reason="full")
        return super().append(*given, **more)


@pytest.mark.parametrize("before", [True, False])
def test_what_fails_at_the_last_step_leaves_everything_as_it_was(world: World, before: bool) -> None:
    world.skill("probe", body="one")
    store = FullStore()
    here = place(world, store=store)
    if before:
        here.take(world.project / "probe")
    folder = world.home / ".agents"
    was = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    world.skill("probe", body="two")
    store.full = True
    with pytest.raises(StoreError):
        here.take(world.project / "probe", replace=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == was
    assert [f.problems for f in here.installer.verify()] == ([()] if before else [])


def test_a_folder_may_be_held_to_a_digest_too(world: World) -> None:
    world.skill("probe")
    here = place(world)
    assert here.refused(world.project / "probe", digest=f"sha256:{'0' * 64}") == "digest"
    tree = here.take(world.project / "probe").tree
    assert here.take(world.project / "probe", digest=tree, replace=True).tree == tree


def test_a_breach_of_the_standard_is_accepted_only_when_asked_for(world: World) -> None:
    world.skill("probe", version="1.0")
    here = place(world)
    with pytest.raises(Exception, match="`version` is not a key of the standard"):
        here.take(world.project / "probe")
    assert here.take(world.project / "probe", lenient=True).name == "probe"


def test_a_project_gets_its_own_and_its_lock_file_names_no_folder_of_a_person(world: World, tmp_path: Path) -> None:
    here = place(world)
    world.skill("vendor/one")
    elsewhere = tmp_path / "elsewhere/two"
    World(world.home, tmp_path / "elsewhere").skill("two")
    here.take(world.project / "vendor/one", project=True)
    here.take(elsewhere, project=True)
    assert (world.project / ".agents/skills/one/SKILL.md").is_file()
    text = (world.project / ".agents/skills.lock.json").read_text()
    assert {name: one["source"] for name, one in json.loads(text)["skills"].items()} == {
        "one": "vendor/one",
        "two": "two",
    }
    assert str(tmp_path) not in text
    assert [finding.name for finding in here.installer.verify(project=True)] == ["one", "two"]


def test_a_project_whose_folder_leads_elsewhere_gets_nothing(world: World, tmp_path: Path) -> None:
    world.skill("probe")
    (tmp_path / "outside").mkdir()
    (world.project / ".agents").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="leads out of the project"):
        place(world).take(world.project / "probe", project=True)
    assert os.listdir(tmp_path / "outside") == []


def test_a_source_whose_path_is_no_utf8_is_recorded_all_the_same(world: World) -> None:
    odd = os.fsencode(world.project) + b"/\xff"
    world.skill("probe")
    os.mkdir(odd)
    os.rename(os.fsencode(world.project / "probe"), odd + b"/probe")
    here = place(world)
    here.take(os.fsdecode(odd + b"/probe"))
    assert here.trail()[-1]["source"].endswith("\\udcff/probe")
    assert [finding.problems for finding in here.installer.verify()] == [()]


def test_discovery_never_sees_a_skill_half_way(world: World) -> None:
    world.skill("probe")
    world.skill("~/.agents/skills/other")

    def look(_: Offer) -> bool:
        assert [skill.name for skill in world.discover()] == ["other"]
        return True

    place(world).installer.install(Wish(str(world.project / "probe")), look)
    assert sorted(skill.name for skill in world.discover()) == ["other", "probe"]


# --- the lock file ---


def test_verify_names_each_thing_that_changed(world: World) -> None:
    world.skill("probe", files={"a.md": "a", "b.md": "b", "scripts/x.sh": "x"})
    here = place(world)
    here.take(world.project / "probe")
    assert [finding.problems for finding in here.installer.verify()] == [()]
    folder = here.skills / "probe"
    (folder / "a.md").write_text("A")
    (folder / "b.md").unlink()
    (folder / "c.md").write_text("c")
    (folder / "scripts/x.sh").chmod(0o644)
    wanted = ("a.md was changed", "b.md is gone", "c.md was added", "scripts/x.sh is no longer executable")
    assert [finding.problems for finding in here.installer.verify()] == [wanted]
    (folder / "c.md").unlink()
    (folder / "c.md").symlink_to("/etc/passwd")
    assert "link" in here.installer.verify()[0].problems[0]
    shutil.rmtree(folder)
    assert "not there" in here.installer.verify()[0].problems[0]
    folder.symlink_to(world.project / "probe")
    assert "is a link now" in here.installer.verify()[0].problems[0]


def test_a_lock_file_that_was_tampered_with_is_noticed(world: World) -> None:
    world.skill("probe")
    here = place(world)
    here.take(world.project / "probe")
    file = world.home / ".agents/skills.lock.json"
    text = file.read_text()
    document = json.loads(text)
    document["skills"]["probe"]["files"][0][1] = f"sha256:{'0' * 64}"
    file.write_text(json.dumps(document))
    assert "contradicts itself" in here.installer.verify()[0].problems[0]
    shutil.copytree(here.skills / "probe", world.home / ".agents/other")
    document["skills"] = {"../other": json.loads(text)["skills"]["probe"]}
    file.write_text(json.dumps(document))
    assert "not there" in here.installer.verify()[0].problems[0]
    for broken in ("{", "[]", '{"version": 2, "skills": {}}', '{"version": 1, "skills": {"a": {"files": [1]}}}'):
        file.write_text(broken)
        with pytest.raises(ConfigError, match="lock file cannot be read"):
            here.installer.verify()
    world.skill("second")
    with pytest.raises(ConfigError, match="lock file cannot be read"):
        here.take(world.project / "second")
    assert not (here.skills / "second").exists()


def test_two_trees_never_share_a_digest_by_how_they_are_written_down() -> None:
    def digest(*files: tuple[str, bytes]) -> str:
        return lock.tree_digest(lock.rows(lock.Entry(path, data) for path, data in files))

    trees = [
        (("a", b"bc"),), (("ab", b"c"),), (("a", b"b"), ("c", b"")), (("a", b""), ("b", b"c")),
        (('a","x', b""),), (("a\n", b"b"),), (("a", b"b"),), (("a", b"b"), ("A", b"b")),
    ]  # fmt: skip
    assert len({digest(*tree) for tree in trees}) == len(trees)
    assert digest(("a", b"1"), ("b", b"2")) == digest(("b", b"2"), ("a", b"1"))
    plain = lock.Entry("a", b"x")
    runs = lock.Entry("a", b"x", executable=True)
    assert lock.tree_digest(lock.rows([plain])) != lock.tree_digest(lock.rows([runs]))


# --- the command ---


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`metier` as a user calls it in the project."""
    monkeypatch.chdir(world.project)

    def call(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["metier", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        shown = capsys.readouterr()
        assert "this is a bug" not in shown.err
        return Result(int(stop.value.code or 0), shown.out, shown.err)

    return call


def test_the_command_shows_what_it_is_installs_and_verifies(world: World, run: Run) -> None:
    world.skill("probe", description="Probes.", files={"scripts/x.sh": "x"})
    shown = run("install", "./probe", "--yes")
    assert shown.code == 0
    for part in ("Probes.", "scripts/x.sh  (executable)", "sha256:", "installed probe in"):
        assert part in shown.out
    assert run("install", "--verify").out == "1 in the lock file, 0 changed\n"
    (world.home / ".agents/skills/probe/new.md").write_text("x")
    changed = run("install", "--verify")
    assert (changed.code, changed.out) == (1, "probe: new.md was added\n")
    assert json.loads(run("install", "--verify", "--json").out)["unchanged"] is False
    assert run("install", "./probe", "--yes").code == 1
    told = json.loads(run("install", "./probe", "--yes", "--replace", "--json").out)
    assert (told["name"], told["replaced"]) == ("probe", True)
    assert "skill_installed" in run("events", "--session", "installs").out
    assert run("replay").code == 2, "an install is no session that could be run again"


def test_the_command_asks_and_without_anyone_to_ask_does_nothing(world: World, run: Run) -> None:
    world.skill("probe")
    assert run("install", "./probe").code == 2
    assert run("install").code == 2
    assert run("install", "./nothing", "--yes").code == 1
    assert run("install", "./probe", "--digest", "md5:1", "--yes").code == 2
    assert not (world.home / ".agents").exists()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 3)])
def test_on_a_terminal_the_command_asks_before_it_connects_and_before_it_installs(
    world: World, site: Site, answer: str, code: int
) -> None:
    site.offer("probe", zipped())
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[permissions]\nask = [{ tool = "install" }]\n')
    keyboard, terminal = os.openpty()
    try:
        os.write(keyboard, f"y\n{answer}\n".encode())
        line = [sys.executable, "-c", "from metier.cli import main; main()", "install", site.url, "probe"]
        done = subprocess.run(line, cwd=world.project, stdin=terminal, capture_output=True, text=True, timeout=60)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert done.returncode == code, done.stderr
    assert f"Connect to {site.url}{INDEX}?" in done.stderr
    assert "Install it?" in done.stderr
    assert (world.home / ".agents/skills/probe").exists() is (answer == "y")


def test_what_this_runtime_publishes_can_be_installed(world: World, site: Site) -> None:
    world.skill(".agents/skills/probe", files={"references/\u00e9.md": "x", f"{'long' * 30}.md": "y"})
    published = PublishedSkills(App(world.project, home=world.home, store="memory:"))
    index = published.index()
    site.pages[INDEX] = json.dumps(index).encode()
    for offered in index["skills"]:
        packed = published.archive(offered["url"])
        assert packed is not None
        site.pages[f"/.well-known/agent-skills/{offered['url']}"] = packed
    here = place(world, OPEN)
    here.take(site.url, "probe")
    files = ["SKILL.md", f"{'long' * 30}.md", "references/\u00e9.md"]
    for file in files:
        assert (here.skills / "probe" / file).read_bytes() == (
            world.project / ".agents/skills/probe" / file
        ).read_bytes()


def test_a_site_works_from_the_command_where_a_rule_opens_it(world: World, run: Run, site: Site) -> None:
    site.offer("probe", tarred())
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[permissions]\nallow = [{{ tool = "install", path = "{site.url}/*" }}]\n')
    assert run("install", site.url, "probe", "--yes", "-q").code == 0
    assert "probe" in run("list").out
