"""Where secrets are kept: in the keyring if there is one, else in files that only the user can read."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import forking
from metier.errors import ConfigError
from metier.running.secrets.storage import SecretStorage

VALUE = "s3cr3t-välue with\ntwo lines"
NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
BACKEND = """\
import json, os
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

FILE = os.environ["TEST_KEYRING"]

class Keyring(KeyringBackend):
    priority = 5

    def _all(self):
        return json.load(open(FILE)) if os.path.exists(FILE) else {}

    def _check(self):
        if os.path.exists(FILE + ".locked"):
            raise KeyringLocked("locked: " + json.dumps(self._all()))

    def get_password(self, service, username):
        self._check()
        return self._all().get(f"{service} {username}")

    def set_password(self, service, username, password):
        self._check()
        json.dump(self._all() | {f"{service} {username}": password}, open(FILE, "w"))

    def delete_password(self, service, username):
        self._check()
        rest = self._all()
        del rest[f"{service} {username}"]
        json.dump(rest, open(FILE, "w"))
"""


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SecretStorage:
    for name, value in NO_KEYRING.items():
        monkeypatch.setenv(name, value)
    return SecretStorage(str(tmp_path / "config"))


def test_a_secret_is_kept_in_a_file_of_the_user_alone(storage: SecretStorage) -> None:
    os.makedirs(storage.folder, mode=0o755)
    storage.set("A_TOKEN", VALUE, in_file=True)
    storage.set("A_TOKEN", f"{VALUE}!", in_file=True)
    path = os.path.join(storage.folder, "A_TOKEN.secret")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(storage.folder).st_mode) == 0o700
    assert os.listdir(storage.folder) == ["A_TOKEN.secret"], "no other file is left"
    assert (storage.names(), storage.value("A_TOKEN"), storage.value("B")) == (("A_TOKEN",), f"{VALUE}!", None)
    os.chmod(path, 0o640)
    with pytest.raises(ConfigError, match="other users may read this secret") as refused:
        storage.value("A_TOKEN")
    assert "s3cr3t" not in str(refused.value)
    assert storage.remove("A_TOKEN")
    assert not storage.remove("A_TOKEN")
    assert (storage.names(), os.listdir(storage.folder)) == ((), [])


REFUSED = (
    ("A_TOKEN", "", "empty"),
    ("A_TOKEN", "short", "fewer than 8"),
    ("A_TOKEN", "a  b  c  d", "fewer than 8"),
    ("A_TOKEN", "000000000000", "fewer than 4"),
    ("A_TOKEN", "with\0nul-inside", "NUL"),
    ("A_TOKEN", "half-\udc80-a-character", "UTF-8"),
    ("A_TOKEN", "long" * 5000, "more than 16 KiB"),
    ("a-token", VALUE, "the name of a variable"),
    ("../x", VALUE, "the name of a variable"),
    ("PATH", VALUE, "every script has"),
    ("LD_PRELOAD", VALUE, "changes how it runs"),
)


def test_what_cannot_be_masked_or_given_is_refused_with_the_reason(storage: SecretStorage) -> None:
    for name, value, why in REFUSED:
        with pytest.raises(ConfigError, match=why) as refused:
            storage.set(name, value)
        assert not value or value not in str(refused.value)
    assert storage.names() == ()
    assert storage.set("A_TOKEN", VALUE).problem == "this system has no keyring that can be used"
    assert storage.places() == {"A_TOKEN": "file"}


@pytest.mark.system
def test_the_keyring_has_the_value_and_no_file_does(tmp_path: Path) -> None:
    pytest.importorskip("keyring")
    (tmp_path / "test_backend.py").write_text(BACKEND)
    ring, lock, home = tmp_path / "ring.json", tmp_path / "ring.json.locked", tmp_path / "user"
    settings, folder = home / ".config/python_keyring/keyringrc.cfg", home / ".config/metier/secrets"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[backend]\ndefault-keyring=test_backend.Keyring\nkeyring-path={tmp_path}\n")
    environment = {**os.environ, "HOME": str(home), "TEST_KEYRING": str(ring)}
    for name in ("XDG_CONFIG_HOME", "PYTHON_KEYRING_BACKEND"):
        environment.pop(name, None)

    def call(*words: str, data: str = "") -> subprocess.CompletedProcess[str]:
        line = [*forking.METIER, "secret", *words]
        return forking.run(line, input=data, capture_output=True, text=True, cwd=home, env=environment)

    said = call("set", "A_TOKEN", data="v4lue-in-keyring\n")
    assert said.stdout.startswith("A_TOKEN is kept in the keyring test backend Keyring")
    assert list(json.loads(ring.read_text()).values()) == ["v4lue-in-keyring"]
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("A_TOKEN.keyring", b"")]
    listed = json.loads(call("list", "--json").stdout)
    assert listed["secrets"] == [{"name": "A_TOKEN", "place": "keyring", "users": []}]
    assert listed["keyring"] == "test backend Keyring"
    code = (
        f"from metier.running.secrets.storage import *; print(SecretStorage({str(folder.parent)!r}).value('A_TOKEN'))"
    )
    shown = forking.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert shown.stdout == "v4lue-in-keyring\n", "another process has it"
    lock.touch()
    locked = call("set", "A_TOKEN", data="v4lue-in-keyring-2\n")
    assert (locked.returncode, locked.stdout) == (2, "")
    assert "the keyring refused: KeyringLocked" in locked.stderr
    assert "v4lue" not in locked.stderr, "the text of the keyring's error may quote it"
    assert call("set", "A_TOKEN", "--in-file", data="v4lue-in-file\n").returncode == 0
    assert [path.name for path in folder.iterdir()] == ["A_TOKEN.secret"]
    lock.unlink()
    assert "keyring" in call("set", "A_TOKEN", data="v4lue-in-keyring-3").stdout
    assert call("remove", "A_TOKEN").stdout == "A_TOKEN is removed\n"
    assert (json.loads(ring.read_text()), list(folder.iterdir())) == ({}, [])
    assert call("remove", "A_TOKEN").returncode == 1
