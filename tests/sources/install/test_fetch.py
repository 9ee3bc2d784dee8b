"""Installing from a site: its index, connections and responses."""

import json
import os
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from bench.attack.hostile import SKILL, tarred, zipped
from metier import limits
from metier.errors import InstallError
from metier.files.digests import digest_of
from metier.sources.install import InstallRequest, Offer
from metier.sources.install.fetch import INDEX, SCHEMA
from parts import needs
from sources.install.places import NO_DIGEST, OPEN, place
from sources.install.skillsite import Site, certificate, listener, serving
from worlds import World

pytest_plugins = ["sources.install.install_fixtures"]


@pytest.mark.system
@pytest.mark.parametrize("packed", [zipped, tarred], ids=["zip", "tar"])
def test_a_skill_of_a_site_is_installed_found_and_recorded(
    world: World, site: Site, packed: Callable[..., bytes]
) -> None:
    data = packed(("references/a.md", b"more"))
    site.offer("probe", data)
    offers: list[Offer] = []
    here = place(world, OPEN)
    offer = here.installer.install(InstallRequest(site.url, "probe"), lambda one: not offers.append(one))
    assert site.asked == [INDEX, "/.well-known/agent-skills/probe.bin"]
    assert offers == [offer]
    assert (offer.description, offer.artifact) == ("A skill for a test.", digest_of(data))
    assert sorted(path for path, _, _ in offer.files) == ["SKILL.md", "references/a.md"]
    found = world.discover()["probe"]
    assert (found.scope, found.path) == ("user", str(here.skills / "probe/SKILL.md"))
    [frame] = here.record()
    assert (frame["type"], frame["stream_kind"], frame["name"]) == ("skill_installed", "install", "probe")
    assert frame["source"] == f"{site.url}/.well-known/agent-skills/probe.bin"
    assert (frame["tree"], frame["artifact"], frame["files"]) == (offer.tree, offer.artifact, 2)
    assert frame["by"]
    assert os.listdir(world.home / ".agents") in (["skills", "skills.lock.json"], ["skills.lock.json", "skills"])


@pytest.mark.system
def test_an_archive_by_its_own_address_with_a_digest(world: World, site: Site) -> None:
    data = site.pages["/files/x.skill?token=secret"] = zipped()
    here = place(world, OPEN)
    url = f"{site.url}/files/x.skill?token=secret"
    assert here.refused(url, digest=NO_DIGEST) == "digest"
    here.take(url, digest=digest_of(data))
    assert "secret" not in json.dumps(here.record())
    assert "secret" not in (world.home / ".agents/skills.lock.json").read_text()


@pytest.mark.system
def test_what_is_not_what_was_announced_or_wanted_is_refused(world: World, site: Site) -> None:
    here = place(world, OPEN)
    site.offer("other", zipped())
    assert here.refused(site.url, "other") == "other-name"
    site.offer("probe", zipped())
    with pytest.raises(InstallError, match="it offers probe"):
        here.take(site.url)
    site.asked.clear()
    assert here.refused(site.url, "probe", digest=NO_DIGEST) == "digest"
    assert site.asked == [INDEX]
    site.pages["/.well-known/agent-skills/probe.bin"] = zipped(("evil.sh", b"x"))
    assert here.refused(site.url, "probe") == "digest"
    site.offer("probe", SKILL, type="skill-md", url="probe/SKILL.md")
    here.take(f"{site.url}{INDEX}", "probe")
    assert (here.skills / "probe/SKILL.md").read_bytes() == SKILL, "a bare file may be offered, too"


def entry(**changes: str | None) -> dict[str, str]:
    good: dict[str, str | None] = {"name": "probe", "type": "archive", "url": "probe.bin", "digest": NO_DIGEST}
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


ENTRIES: list[tuple[list[dict[str, str]], str]] = [
    ([], "not-found"),
    ([entry(), entry()], "not-found"),
    ([entry(digest=None)], "bad-index"),
    ([entry(digest="md5:0")], "bad-index"),
    ([entry(digest=f"sha256:{'A' * 64}")], "bad-index"),
    ([entry(type="program")], "bad-index"),
    ([entry(url=None)], "bad-index"),
    ([entry(url="http://skills.example.com/x.zip")], "bad-url"),
    ([entry(url="file:///etc/passwd")], "bad-url"),
    ([entry(url="https://user:word@skills.example.com/x.zip")], "bad-url"),
    ([entry(url="https://10.0.0.1/x.zip")], "private-address"),
    ([entry(url="https://[::ffff:169.254.169.254]/latest/meta-data")], "private-address"),
    ([entry(url="https://localhost/x.zip")], "private-address"),
]


@pytest.mark.system
def test_an_index_that_is_not_sound_is_refused(world: World, site: Site) -> None:
    here = place(world, OPEN)
    site.pages["/.well-known/agent-skills/probe.bin"] = zipped()
    for entries, reason in ENTRIES:
        site.index(*entries)
        assert here.refused(site.url, "probe") == reason, entries
    for schema in (SCHEMA.replace("0.2.0", "9.9.9"), None):
        site.index(entry(), schema=schema)
        assert here.refused(site.url, "probe") == "unknown-index"
    for text in (b"", b"[]", b"{", b'{"skills": 1}', b'"x"', b"[" * 100_000):
        site.pages[INDEX] = text
        assert here.refused(site.url, "probe") == "bad-index", text[:20]
    assert set(site.asked) == {INDEX}


# --- connections ---


NOT_PLAIN = (
    *("http://skills.example.com/x.zip", "ftp://skills.example.com/x.zip", "file:///etc/passwd", "https:///x.zip"),
    *("https://user@skills.example.com/x.zip", "https://skills.example.com\\@evil.example/x.zip", "https://[::1/x.zip"),
    *("https://skills.example.com/good/../evil.zip", "https://skills.example.com/good/%2e%2e/evil.zip"),
    *("https://skills.example.com/good/%2E%2e%2fevil.zip", "https://skills.example.com/a b.zip"),
    *("https://sk\u00eells.example.com/x.zip", "https://skills.example.com:99999/x.zip"),
    *("https://skills.example.com/x\r\nHost: evil", "https://me:secret@skills.example.com/x.zip?key=secret"),
)


def test_an_address_that_is_not_plain_https_is_refused_before_anything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was looked up"))
    here = place(world, OPEN)
    for url in NOT_PLAIN:
        assert here.refused(url) == "bad-url", url
    assert "secret" not in json.dumps(here.record())
    assert here.record()[-1]["source"] == "https://skills.example.com/x.zip"


@pytest.mark.system
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


@pytest.mark.system
def test_a_server_cannot_send_us_into_another_network_or_to_another_port(world: World, site: Site) -> None:
    here = place(world, OPEN)
    private = ("169.254.169.254", "192.168.0.1", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "0.0.0.0")
    targets = {f"https://{address}/": "private-address" for address in private}
    for target, reason in {**targets, "http://skills.example.com/x.zip": "bad-url", "file:///x": "bad-url"}.items():
        site.redirect("/x.zip", target)
        assert here.refused(f"{site.url}/x.zip") == reason, target
    with serving() as other:
        other.pages["/x.zip"] = zipped()
        site.redirect("/x.zip", f"{other.url}/x.zip")
        assert here.refused(f"{site.url}/x.zip") == "private-address"
        assert other.connections == 0
    assert here.refused(f"{other.url}/x.zip") == "unreachable", "as it is not there any more"


@pytest.mark.system
def test_a_name_is_looked_up_once_and_its_address_used(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/x.zip"] = zipped()
    lookups: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, port: int, family: int = 0, type: int = 0) -> object:  # noqa: A002
        lookups.append(host)
        return real("127.0.0.1" if host == "localhost" else host, port, family, type)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    place(world, OPEN).take(f"{site.url.replace('127.0.0.1', 'localhost')}/x.zip")
    assert lookups == ["localhost", "127.0.0.1"], "the second one is already an address"


def test_a_name_of_this_machine_that_leads_elsewhere_gets_no_plain_http(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    assert place(world, OPEN).refused("http://localhost/x.zip") == "bad-url"


@pytest.mark.system
def test_no_proxy_is_used(world: World, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pages["/x.zip"] = zipped()
    with listener() as knocks:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{knocks.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        place(world, OPEN).take(f"{site.url}/x.zip")
        assert knocks.count() == 0


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"x" * (1 << 20)
    for _ in range(limits.ARTIFACT_BYTES // len(piece) + 2):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def sending(data: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(data)

    return send


def answering(*lines: bytes, body: bytes = b"") -> Callable[[BaseHTTPRequestHandler], None]:
    return sending(b"\r\n".join((b"HTTP/1.1 200 OK", *lines, b"", body)))


ANSWERS: list[tuple[Callable[[BaseHTTPRequestHandler], None], str]] = [
    (answering(b"Content-Length: %d" % (limits.ARTIFACT_BYTES + 1)), "too-large"),
    (endless, "too-large"),
    (answering(b"Content-Length: 100000", body=zipped()), "unreachable"),
    (answering(b"Content-Encoding: gzip"), "bad-answer"),
    (sending(b"\x00\x01\x02 what?\r\n\r\n"), "unreachable"),
    (answering(*(b"X-%d: y" % number for number in range(5000))), "unreachable"),
]


@pytest.mark.system
def test_an_answer_that_is_too_much_or_none_is_refused(world: World, site: Site) -> None:
    here = place(world, OPEN)
    for number, (answer, reason) in enumerate(ANSWERS):
        site.pages["/x.zip"] = answer
        assert here.refused(f"{site.url}/x.zip") == reason, number


@pytest.mark.system
@pytest.mark.parametrize("where", ["headers", "body"])
def test_a_server_that_drips_is_left_after_a_while(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(limits, "INSTALL_SECONDS", 0.5)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if where == "body" else b""))
        while True:  # until the client disconnects
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


@pytest.mark.system
@needs("openssl")
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
