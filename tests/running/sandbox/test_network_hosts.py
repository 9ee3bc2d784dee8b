"""A script reaches the hosts that are listed and nothing else, seen from the services of this machine."""

import json
import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.attack.boxes import Box, settled
from bench.attack.host_attempts import LISTED_NAMES, SCRIPT, services, to_this_machine
from metier.errors import SandboxUnavailable
from metier.running.sandbox import HostAttempt, Job, Outcome, RunLimits, evidence
from metier.running.sandbox.bubblewrap import BubblewrapRunner
from metier.running.sandbox.proxy import ATTEMPTS

pytest_plugins = ["running.sandbox.sandbox_fixtures"]


def run(runner: BubblewrapRunner, job: Job) -> tuple[Outcome, list[HostAttempt]]:
    """Run a job; what came out, and what was reported while it ran."""
    attempts: list[HostAttempt] = []
    return runner.run(replace(job, on_attempt=attempts.append)), attempts


def to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.system
@pytest.mark.usefixtures("sandbox")
def test_of_two_hundred_attempts_none_reaches_a_host_that_is_not_listed(box: Box) -> None:
    runner = BubblewrapRunner(resolver=to_this_machine)
    with services(str(box.base), box.token) as heard:
        job = box.job(
            box.script("attempts.py", SCRIPT),
            stdin=heard.knowledge(),
            limits=RunLimits(seconds=60),
            project=str(box.project),
        )
        outcome, attempts = run(runner, replace(job, hosts=(*LISTED_NAMES, f"127.0.0.1:{heard.open}")))
        assert outcome.stderr == b""
        tried, got, done = json.loads(outcome.stdout)
    assert tried >= 200
    assert got == []
    assert heard.reached == []
    assert heard.leaks() == []
    assert done == [True] * 5
    assert len(heard.requests) == 5, "each request that is valid arrives, and nothing else"
    assert "listed-hosts-only" in outcome.protections
    assert "no-network" not in outcome.protections
    assert len(attempts) == ATTEMPTS
    assert outcome.attempts_left_out > 50
    refused = {attempt.reason for attempt in attempts if not attempt.allowed}
    assert refused == {"not-listed", "private-address", "bad-request"}
    assert box.survivors() == []


@contextmanager
def a_site() -> Generator[int]:
    """A site on this machine that answers with the host and the body it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            text = f"{self.command} {self.path} at {self.headers['Host']} {body.decode()}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=site.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield site.server_address[1]
    finally:
        site.shutdown()
        thread.join()
        site.server_close()


CLIENTS = r"""
import json, ssl, sys, urllib.error, urllib.request
plain = sys.argv[1]
said = []
def note(url, **given):
    try: said.append(urllib.request.urlopen(url, **given).read().decode())
    except urllib.error.HTTPError as error: said.append([error.code, error.read().decode()])
    except OSError as error: said.append(str(error))
note("http://api.test:%s/a" % plain)
note("http://API.TEST:%s/b" % plain, data=b"sent")
note("http://other.test:%s/d" % plain)
note("https://other.test/e")
print(json.dumps([*said, ssl.create_default_context().cert_store_stats()["x509_ca"] > 0]))
"""


@pytest.mark.system
@pytest.mark.usefixtures("sandbox")
def test_the_clients_of_a_script_reach_a_listed_name_through_the_proxy(box: Box) -> None:
    with a_site() as plain:
        job = box.job(box.script("clients.py", CLIENTS), str(plain))
        job = replace(job, hosts=(f"api.test:{plain}",), private_hosts=True)
        outcome, attempts = run(BubblewrapRunner(resolver=to_loopback), job)
    assert json.loads(outcome.stdout) == [
        f"GET /a at api.test:{plain} ",
        f"POST /b at api.test:{plain} sent",
        [403, f"metier: other.test:{plain} is not among the hosts that this script may connect to\n"],
        "<urlopen error Tunnel connection failed: 403 not an allowed host>",
        ssl.create_default_context().cert_store_stats()["x509_ca"] > 0,
    ]
    refused = [HostAttempt("other.test", port, False, "not-listed") for port in (plain, 443)]
    assert [attempt for attempt in attempts if not attempt.allowed] == refused


@pytest.mark.system
@pytest.mark.usefixtures("sandbox")
def test_a_connection_ends_with_the_run_that_made_it(box: Box) -> None:
    text = """
    import socket, sys
    tunnel = socket.create_connection(("127.0.0.1", 3128))
    tunnel.sendall(b"CONNECT api.test:%s HTTP/1.1\\r\\n\\r\\n" % sys.argv[1].encode())
    print(tunnel.recv(100), flush=True)
    tunnel.sendall(b"first")
    tunnel.recv(1)
    """
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        job = box.job(box.script("hold.py", text), str(port), limits=RunLimits(seconds=2))
        job = replace(job, hosts=[f"api.test:{port}"], private_hosts=True)
        outcome, attempts = run(BubblewrapRunner(resolver=to_loopback), job)
        assert (outcome.ended, attempts) == ("timeout", [HostAttempt("api.test", port, True)])
        service.settimeout(10)
        with service.accept()[0] as connection:
            connection.settimeout(10)
            received = b""
            with suppress(ConnectionResetError):
                while piece := connection.recv(100):
                    received += piece
            assert received == b"first"
    names = settled(lambda: [one.name for one in threading.enumerate() if one.name == "metier-proxy"], [])
    assert names == []


@pytest.mark.system
@pytest.mark.usefixtures("sandbox")
def test_a_sandbox_with_a_route_does_not_start(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    read, job = evidence.read_at, replace(box.job(box.script("s.py", "print(1)")), hosts=["api.test"])
    for routes, gap in (
        ("Iface\tDestination\neth0\t00000000\n", "there is a route to eth0"),
        ("", "the routes cannot be seen"),
    ):

        def told(proc: int, path: str, text: str = routes) -> str:
            return text if path == "1/net/route" else read(proc, path)

        monkeypatch.setattr(evidence, "read_at", told)
        with pytest.raises(SandboxUnavailable) as refused:
            BubblewrapRunner().run(job)
        assert list(refused.value.tried) == [gap]
