"""`setup/prepare.py`: which programs it installs, what it says of those it cannot, and that it never asks."""

import hashlib
import http.server
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

PREPARE = Path(__file__).parents[2] / "setup" / "prepare.py"
EVERYTHING = [
    *("bwrap", "initdb", "chromium", "tmux", "zsh", "fish", "git", "curl", "openssl", "npm"),
    *("podman", "runc", "dockerd"),
]

# It knows every package but chromium, and refuses all of them if one is unknown, as apt-get does.
APT = """#!/bin/sh
echo "$@" >> {calls}
[ -t 0 ] && echo asked >> {calls}
for word in "$@"; do case "$word" in chromium) echo "E: Unable to locate package chromium"; exit 100;; esac; done
for word in "$@"; do case "$word" in
    bubblewrap) ln -sf /bin/true {bin}/bwrap;; tmux|zsh) ln -sf /bin/true {bin}/$word;;
esac; done
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs that has all that the tests use."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in EVERYTHING:
        (folder / program).symlink_to("/bin/true")
    for program in ("sh", "ln", "env", "true"):
        (folder / program).symlink_to(f"/bin/{program}")
    return folder


def without(machine: Path, *programs: str) -> None:
    for program in programs:
        (machine / program).unlink()


def parts(machine: Path, kind: str = "test", **variables: str) -> tuple[int, list[str]]:
    surroundings = {"PATH": str(machine), "HOME": str(machine.parent), **variables}
    done = subprocess.run(
        [sys.executable, str(PREPARE), "parts", kind],
        env=surroundings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def with_apt(machine: Path) -> Path:
    calls = machine.parent / "calls"
    calls.touch()
    (machine / "apt-get").write_text(APT.format(calls=calls, bin=machine))
    (machine / "apt-get").chmod(0o755)
    if os.geteuid() != 0:  # a sudo that asks for nothing
        (machine / "sudo").write_text('#!/bin/sh\nshift; exec "$@"\n')
        (machine / "sudo").chmod(0o755)
    return calls


def test_what_cannot_be_had_is_one_line_with_what_it_leaves_out(machine: Path) -> None:
    assert parts(machine) == (0, []), "nothing is missing"
    without(machine, "bwrap", "tmux")
    if list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        without(machine, "initdb")  # it is found where Debian puts it
    reason = "there is no apt-get, dnf or brew"
    bubblewrap = f"setup: bubblewrap is not here ({reason}): scripts of skills are refused"
    tmux = f"setup: tmux is not here ({reason}): the tests of the picker on a terminal are skipped"
    assert parts(machine) == (0, [bubblewrap, tmux])
    assert parts(machine, "demo") == (0, [bubblewrap])
    assert parts(machine, CI="true")[0] == 1, "CI must have everything"
    calls = with_apt(machine)  # and the system stays as it is if that is wanted
    wanted = [line.replace(reason, "METIER_SETUP is none") for line in (bubblewrap, tmux)]
    for more in ({}, {"CI": "true"}):
        assert parts(machine, METIER_SETUP="none", **more) == (0, wanted)
    assert calls.read_text() == ""


def test_missing_programs_are_installed_and_one_that_is_unknown_does_not_cost_the_others(machine: Path) -> None:
    calls = with_apt(machine)
    without(machine, "bwrap", "chromium", "zsh")
    code, said = parts(machine)
    assert code == 0
    assert (machine / "bwrap").exists()
    assert (machine / "zsh").exists()
    assert said[-1] == (
        "setup: Chromium is not here (the package manager does not have it): the tests of the pages are skipped"
    )
    assert "installing bubblewrap, chromium, zsh with apt" in " ".join(said)
    assert "asked" not in calls.read_text()
    assert all("-y" in line.split() for line in calls.read_text().splitlines() if "install" in line)


def test_a_program_that_brings_a_service_is_installed_only_in_ci(machine: Path) -> None:
    calls = with_apt(machine)
    without(machine, "dockerd")
    line = "setup: Docker is not here (it brings a service, so only CI installs it): "
    assert parts(machine) == (0, [f"{line}the tests of scripts in containers of Docker are skipped"])
    assert calls.read_text() == ""
    assert parts(machine, CI="true")[0] == 1, "this apt-get has a package without the program"
    assert "docker.io" in calls.read_text()
    assert "--no-remove" in calls.read_text(), "a Docker of another package stays"


def test_a_user_without_rights_is_told_so(machine: Path) -> None:
    with_apt(machine)
    without(machine, "bwrap")
    (machine / "sudo").unlink(missing_ok=True)
    (machine / "sudo").write_text("#!/bin/sh\nexit 1\n")
    (machine / "sudo").chmod(0o755)
    for folder in (machine, *machine.parents):
        if folder != Path("/tmp") and folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    line = [sys.executable, str(PREPARE), "parts", "demo"]
    if os.geteuid() == 0:
        line = ["/usr/bin/setpriv", "--reuid", "nobody", "--clear-groups", "--regid", "65534", "/usr/bin/python3"]
        line += [str(PREPARE), "parts", "demo"]
    done = subprocess.run(line, env={"PATH": str(machine)}, capture_output=True, text=True)
    assert "(it needs root, or a sudo that asks for no password)" in done.stdout, done.stderr


# --- pip from the index


class Index(http.server.BaseHTTPRequestHandler):
    wheel = b"a wheel"
    digest = hashlib.sha256(b"a wheel").hexdigest()

    def do_GET(self) -> None:
        page = f'<a href="../files/pip-9.0-py3-none-any.whl#sha256={"0" * 64}">old</a>'
        page += f'<a href="../files/pip-25.1.1-py3-none-any.whl#sha256={self.digest}">new</a>'
        page += '<a href="../files/pip-26.0b1-py3-none-any.whl#sha256=x">a test release</a>'
        body = page.encode() if self.path == "/simple/pip/" else self.wheel
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


@pytest.fixture
def index() -> Generator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def fetched(index: str, folder: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys, pathlib; sys.path.insert(0, {str(PREPARE.parent)!r}); import prepare\n"
    code += f"print(prepare.fetch_pip(pathlib.Path({str(folder)!r})).read_bytes())"
    surroundings = {**os.environ, "PIP_INDEX_URL": index, "no_proxy": "127.0.0.1"}
    surroundings.pop("PIP_CERT", None)
    return subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True)


def test_pip_is_the_newest_release_with_the_digest_of_the_index(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetched(index, tmp_path).stdout == "b'a wheel'\n"
    assert [path.name for path in tmp_path.glob("*.whl")] == ["pip-25.1.1-py3-none-any.whl"]
    monkeypatch.setattr(Index, "wheel", b"another wheel")
    refused = fetched(index, tmp_path)
    assert "does not have the digest that the index gives" in refused.stderr
