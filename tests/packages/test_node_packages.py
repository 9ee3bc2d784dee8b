"""Packages of a Node script, from a registry that the test serves."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import parts
from metier.packages import PackagesUnavailable, Wanted, node
from worlds import World

pytestmark = parts.needs("node")
MANIFEST = json.dumps({"name": "x", "version": "1.0.0", "dependencies": {"tiny": "^1.0.0"}})


def archive() -> bytes:
    """The package `tiny`, whose install script would leave a trace."""
    held = io.BytesIO()
    manifest = {
        "name": "tiny",
        "version": "1.2.0",
        "main": "index.js",
        "scripts": {"install": "echo ran > ../../trace"},
    }
    files = {"package/package.json": json.dumps(manifest), "package/index.js": "module.exports = 'tiny 1.2.0'\n"}
    with tarfile.open(fileobj=held, mode="w:gz") as opened:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            opened.addfile(member, io.BytesIO(text.encode()))
    return held.getvalue()


@pytest.fixture
def registry(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    data = archive()
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, port = self.connection.getsockname()
            address = f"http://127.0.0.1:{port}/tiny/-/tiny-1.2.0.tgz"
            version = {"name": "tiny", "version": "1.2.0", "dist": {"tarball": address, "integrity": integrity}}
            version |= {"hasInstallScript": True, "scripts": {"install": "echo ran > ../../trace"}}
            listing = {"name": "tiny", "dist-tags": {"latest": "1.2.0"}, "versions": {"1.2.0": version}}
            answer = data if self.path.endswith(".tgz") else json.dumps(listing).encode()
            self.send_response(200 if self.path.startswith("/tiny") else 404)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.setenv("npm_config_cache", f"{tmp_path}/npm")
    monkeypatch.setenv("npm_config_userconfig", "/dev/null")
    yield
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.mark.usefixtures("registry")
def test_a_node_script_gets_its_packages_and_no_script_of_them_runs(world: World) -> None:
    parts.require_sandbox()
    files = {
        "package.json": MANIFEST,
        "scripts/a.mjs": "import tiny from 'tiny'\nconsole.log(tiny)\n",
        "scripts/b.cjs": "console.log(require('tiny'))\n",
    }
    folder = world.skill("~/.agents/skills/tool", files=files).parent
    session = world.discover().session()
    result = session.run("tool", "scripts/a.mjs")
    assert result.stdout == "tiny 1.2.0\n", result
    assert result.notes == ("installed 1 package, declared in package.json: tiny 1.2.0",)
    assert session.run("tool", "scripts/b.cjs").stdout == "tiny 1.2.0\n"
    assert not list(world.home.rglob("trace")), "an install script ran"
    assert sorted(one.name for one in folder.iterdir()) == ["SKILL.md", "package.json", "scripts"]


@pytest.mark.parametrize(
    "row", [{"link": True, "integrity": "sha512-x"}, {}, {"integrity": "a", "resolved": "git+ssh://x"}]
)
def test_a_lock_of_the_skill_brings_nothing_without_a_hash_or_from_elsewhere(row: dict[str, object]) -> None:
    locked = json.dumps({"packages": {"": {}, "node_modules/tiny": {"version": "1.0.0", **row}}}).encode()
    with pytest.raises(PackagesUnavailable, match="has no hash, or comes from elsewhere than a registry"):
        node.resolve(Wanted(kind="node", manifest=MANIFEST.encode(), locked=locked))
