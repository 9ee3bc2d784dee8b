"""A server that publishes its skills never ships what is private, and says what it left out."""

import io
import logging
import tarfile

import pytest
from starlette.testclient import TestClient

from metier.app import App
from metier.sources.install.fetch import INDEX
from metier.surfaces.web.api import build
from worlds import World

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n"
PRIVATE = (
    *(".env", ".env.local", "prod.env", ".npmrc", ".netrc", ".git/config", ".ssh/id_rsa", ".aws/credentials"),
    *("id_rsa", "id_rsa.pub", "ID_ED25519", "keys/server.pem", "server.KEY", "store.p12", "credentials.json"),
    *("config/secrets.yaml", "google-credentials.json", "netrc", "kubeconfig", ".hidden/notes.md", "lib/a.pyc"),
    *("token.txt", ".DS_Store", "a/.gitignore", "terraform.tfstate"),
)
PUBLIC = ("SKILL.md", "references/secrets.md", "references/token-budget.md", "scripts/keys.py", "environment.yml")


def test_no_private_file_is_in_an_archive_or_under_any_address(world: World, caplog: pytest.LogCaptureFixture) -> None:
    files = dict.fromkeys((*PRIVATE, *PUBLIC[1:]), "private") | {"notes.txt": KEY, "docs/setup.md": KEY}
    world.skill(".agents/skills/probe", files=files)
    app = App(world.project, home=world.home, store="memory:", surface="http")
    with (
        caplog.at_level(logging.WARNING, "metier"),
        TestClient(build(app, None, publish=True, watch=False), base_url="http://localhost") as client,
    ):
        (listed,) = client.get(INDEX).json()["skills"]
        folder = INDEX.rpartition("/")[0]
        packed = client.get(f"{folder}/{listed['url']}").content
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            assert sorted(archive.getnames()) == sorted(PUBLIC)
        for path in (*PRIVATE, "notes.txt"):
            for address in (f"{folder}/probe/{path}", f"{folder}/{path}", f"{folder}/../{path}"):
                answer = client.get(address)
                assert answer.status_code == 404, address
                assert b"private" not in answer.content.lower() or b"no such" in answer.content
    for path in (*PRIVATE, "notes.txt", "docs/setup.md"):
        told = [record.getMessage() for record in caplog.records if f": {path} is private" in record.getMessage()]
        # The folders that no skill lists at all, such as .git, need no line.
        assert len(told) == (not path.startswith(".git/")), (path, told)


def test_a_skill_whose_text_holds_a_key_is_not_published(world: World) -> None:
    world.skill(".agents/skills/probe", body=KEY)
    world.skill(".agents/skills/good")
    app = App(world.project, home=world.home, store="memory:", surface="http")
    with TestClient(build(app, None, publish=True, watch=False), base_url="http://localhost") as client:
        assert [skill["name"] for skill in client.get(INDEX).json()["skills"]] == ["good"]
