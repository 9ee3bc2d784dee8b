"""The image of the Dockerfile: built, started on a volume, stopped, and started again: `make test-image`.

It needs podman, and a base image with Python, which podman fetches unless METIER_IMAGE_BASE names one that is there.
METIER_IMAGE_BUILD and METIER_IMAGE_RUN are further options of `podman build` and `podman run`, for machines whose
containers need them.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

REPOSITORY = Path(__file__).parents[2]
ASKED = os.environ.get("METIER_TEST_IMAGE")
BASE = os.environ.get("METIER_IMAGE_BASE")
BUILD = shlex.split(os.environ.get("METIER_IMAGE_BUILD", ""))
RUN = shlex.split(os.environ.get("METIER_IMAGE_RUN", ""))
RUNTIME = shlex.split(os.environ.get("METIER_IMAGE_RUNTIME", ""))
NAME = f"metier-test-{secrets.token_hex(4)}"

pytestmark = pytest.mark.skipif(not ASKED, reason="an image is built and started only by `make test-image`")


def podman(*line: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *RUNTIME, *line], capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def image() -> Generator[str]:
    if shutil.which("podman") is None:
        pytest.skip("podman is not here")
    base = ["--build-arg", f"BASE={BASE}"] if BASE else []
    built = podman("build", *BUILD, *base, "--tag", NAME, str(REPOSITORY), timeout=1800)
    if not BASE and "pinging container registry" in built.stderr:
        pytest.skip("the base image cannot be fetched; METIER_IMAGE_BASE can name another")
    assert built.returncode == 0, built.stderr[-2000:]
    yield NAME
    podman("rmi", "--force", NAME)


@contextlib.contextmanager
def serving(image: str, token: str, *options: str) -> Generator[httpx2.Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    line = ["run", "--detach", "--rm", "--name", NAME, "--network", "host", *RUN, *options]
    line += ["--volume", f"{NAME}:/data", "--env", f"METIER_TOKEN={token}"]
    started = podman(*line, image, "serve", "--host", "0.0.0.0", "--port", port)
    assert started.returncode == 0, started.stderr
    try:
        headers = {"Authorization": f"Bearer {token}"}
        address = f"http://127.0.0.1:{port}"
        with httpx2.Client(base_url=address, headers=headers, timeout=30, trust_env=False) as client:
            for _ in range(300):
                with contextlib.suppress(httpx2.HTTPError):
                    if client.get("/healthz").status_code == 200:
                        break
                time.sleep(0.2)
            yield client
    finally:
        podman("stop", "--time", "15", NAME)


def test_what_a_server_in_a_container_keeps_is_there_after_a_restart(image: str) -> None:
    token = secrets.token_hex(16)
    try:
        with serving(image, token) as client:
            assert podman("exec", NAME, "id", "--user").stdout == "10001\n"
            made = podman("exec", NAME, "metier", "new", "hello", "--description", "Says hello. Use when greeted.")
            assert made.returncode == 0, made.stderr
            session = client.post("/api/sessions", json={}).json()["session_id"]
            call = {"tool": "skill_load", "args": {"name": "hello"}}
            assert client.post(f"/api/sessions/{session}/call", json=call).json()["ok"]
        with serving(image, token) as client:
            assert [skill["name"] for skill in client.get("/api/skills").json()["skills"]] == ["hello"]
            again = client.post(f"/api/sessions/{session}/call", json=call).json()
            assert "already loaded" in again["text"]
            replayed = podman("exec", NAME, "metier", "replay", session)
            assert "identical" in replayed.stdout
            refused = podman("exec", NAME, "metier", "run", "hello", "scripts/example.py", "--yes")
            assert (refused.returncode, "no sandbox works" in refused.stderr) == (4, True)
        with serving(image, token, "--security-opt", "seccomp=unconfined", "--security-opt", "unmask=ALL") as client:
            ran = podman("exec", NAME, "metier", "run", "hello", "scripts/example.py", "--yes")
            assert (ran.returncode, ran.stderr) == (0, "")
    finally:
        podman("volume", "rm", "--force", NAME)
