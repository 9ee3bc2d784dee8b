"""A registry of npm on a loopback port, with packages that a test makes."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest


def archive(files: Mapping[str, str]) -> bytes:
    """What a registry gives for a package with these files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as opened:
        for path, text in files.items():
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(text.encode())
            opened.addfile(member, io.BytesIO(text.encode()))
    return held.getvalue()


@dataclass
class Registry:
    """What it has, who asked, and what it does at a request."""

    address: str = ""
    token: str = ""
    """What a request must bring, if anything."""
    archives: dict[str, bytes] = field(default_factory=dict[str, bytes])
    listings: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    asked: list[str] = field(default_factory=list[str])
    at_request: Callable[[], None] = lambda: None

    def add(self, name: str, version: str = "1.2.0", *, inside: Mapping[str, str] | None = None, **given: Any) -> str:
        """Publish a package that exports its name and version; its hash. `inside` has other files of it."""
        manifest = {"name": name, "version": version, "main": "index.js", **given}
        files = {"package.json": json.dumps(manifest), "index.js": f"module.exports = '{name} {version}'\n"}
        data = archive({**files, **(inside or {})})
        path = f"/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        integrity = f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"
        self.archives[path] = data
        listing = self.listings.setdefault(f"/{name}", {"name": name, "dist-tags": {}, "versions": {}})
        listing["dist-tags"]["latest"] = version
        listing["versions"][version] = {**manifest, "dist": {"tarball": path, "integrity": integrity}}
        return integrity

    def answer(self, path: str) -> bytes | None:
        if path in self.archives:
            return self.archives[path]
        if path not in self.listings:
            return None
        text = json.dumps(self.listings[path])
        return text.replace('"tarball": "/', f'"tarball": "{self.address}/').encode()


@contextmanager
def serving() -> Generator[Registry]:
    """A registry that is there until the block ends."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path)
            registry.asked.append(path)
            registry.at_request()
            answer = registry.answer(path)
            refused = bool(registry.token) and self.headers["Authorization"] != f"Bearer {registry.token}"
            self.send_response(401 if refused else 404 if answer is None else 200)
            self.send_header("Content-Length", str(0 if refused else len(answer or b"")))
            self.end_headers()
            self.wfile.write(b"" if refused else answer or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def use(monkeypatch: pytest.MonkeyPatch, registry: Registry, home: Path, *lines: str) -> None:
    """Have npm ask this registry, by the settings of the user and by no variable."""
    for name in ("registry", "userconfig", "globalconfig", "cache"):
        monkeypatch.delenv(f"npm_config_{name}", raising=False)
    settings = home / ".npmrc"
    settings.write_text("".join(f"{line}\n" for line in (f"registry={registry.address}/", *lines)))
    settings.chmod(0o600)
