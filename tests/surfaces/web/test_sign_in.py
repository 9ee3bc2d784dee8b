"""Who may use a server: the token, the link, cookies, signing out, wrong tokens, and other users of the machine."""

import contextlib
import http.client
import json
import multiprocessing
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect
from processes import Process, messages, serve, token_of
from starlette.testclient import TestClient

import forking
from bench.attack.boxes import IS_ROOT, as_user
from metier.app import App
from metier.errors import ConfigError
from metier.surfaces.web import access
from metier.surfaces.web.access import COOKIE, Access
from metier.surfaces.web.api import build, endpoints
from metier.surfaces.web.guard import Gate
from parts import needs
from patience import PATIENCE
from surfaces.web.browser import Watch, new_page
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

SKILLS = ".agents/skills"
TOKEN = "a-token-of-some-length"

needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can act as another user")


@pytest.fixture
def open_world() -> Generator[World, None, None]:
    """A home and a project in folders that every user of the machine may enter."""
    base = Path(tempfile.mkdtemp(prefix="metier-sign-in-")).resolve()
    base.chmod(0o755)
    world = World(base / "home", base / "project")
    (world.project / ".git").mkdir(parents=True)
    (world.home / ".config/metier").mkdir(parents=True)
    world.skill(f"{SKILLS}/runner", files={"scripts/go.sh": "#!/bin/sh\necho ran\n"})
    yield world
    shutil.rmtree(base)


def place(world: World, store: str = "memory:") -> list[str]:
    return ["--cwd", str(world.project), "--home", str(world.home), "--store", store]


def refused_start(world: World, *more: str, env: dict[str, str] | None = None) -> str:
    """What a server says that does not start."""
    command = [*forking.METIER, "serve", "--port", "0", *place(world), *more]
    done = forking.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().count("\n") == 0
    return done.stderr


def sign_in(process: Process, jar: httpx2.Client | None = None) -> httpx2.Client:
    """A client that signed in with the token, as a browser does."""
    client = jar or process.browser()
    answer = client.post(f"{process.url}/login", data={"token": process.token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return client


def cookie_of(client: httpx2.Client, process: Process) -> dict[str, str]:
    """The header with a copy of the cookie, which stays even if the client drops its own."""
    name = f"{COOKIE}_{process.port}"
    return {"cookie": f"{name}={client.cookies[name]}"}


# --- other users of the machine ---


def attempt(port: int, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.system
@needs_root
@needs("bwrap")
def test_another_user_of_the_machine_gets_nothing_and_cannot_answer_an_approval(open_world: World) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
    with serve(open_world) as process:
        chat = process.client.post("/api/chats").json()["id"]
        session = process.begin()
        shown: list[dict[str, Any]] = []

        def say() -> None:
            body = {"text": "/runner run scripts/go.sh"}
            with process.connected() as client, client.stream("POST", f"/api/chats/{chat}/messages", json=body) as said:
                shown.extend(json.loads(line[6:]) for line in said.iter_lines() if line.startswith("data: "))

        turn = threading.Thread(target=say)
        turn.start()
        (ask,) = waiting(process, chat)
        stream = {"accept": "text/event-stream"}
        tries: list[tuple[str, str, object, dict[str, str]]] = [
            ("POST", f"/api/chats/{chat}/answers/{ask}", {"answer": "always"}, {}),
            ("GET", f"/api/chats/{chat}", None, {}),
            ("GET", f"/chat/{chat}/stream", None, stream),
            ("GET", f"/api/sessions/{session}/events", None, stream),
            ("POST", f"/api/sessions/{session}/call", {"tool": "skill_load", "args": {"name": "runner"}}, {}),
            ("POST", "/rpc", {"jsonrpc": "2.0", "id": 1, "method": "skills.list"}, {}),
            (
                "POST",
                "/mcp",
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
                {"accept": "application/json, text/event-stream"},
            ),
            ("GET", "/skills", None, {}),
            ("PUT", "/api/model", {"provider": "openai", "base_url": "http://127.0.0.1:1/"}, {}),
        ]

        def others() -> list[tuple[int, str]]:
            return [attempt(process.port, method, path, body, **headers) for method, path, body, headers in tries]

        for (status, said), (_, path, *_) in zip(as_user("nobody", others), tries, strict=True):
            assert (status, json.loads(said)["error"]["code"]) == (401, "UNAUTHORIZED"), path
        assert waiting(process, chat) == [ask], "the question still waits for the person"

        def read_token() -> str:
            return Path(open_world.home, ".config/metier/token").read_text()

        with pytest.raises(PermissionError):
            as_user("nobody", read_token)
        answered = process.client.post(f"/api/chats/{chat}/answers/{ask}", json={"answer": "no"})
        assert answered.status_code == 204
        turn.join()
        assert not turn.is_alive()


def waiting(process: Process, chat: str) -> list[str]:
    """The ids of the questions that wait for an answer, as soon as there is one."""
    for _ in range(1_000):
        items = process.client.get(f"/api/chats/{chat}").json()["items"]
        found = [item["id"] for item in items if item["type"] == "ask" and item["state"] == "waiting"]
        if found:
            return found
        threading.Event().wait(0.03)
    raise AssertionError("nothing was asked")


@pytest.mark.system
def test_without_the_token_only_the_sign_in_and_the_health_check_answer(world: World) -> None:
    with serve(world) as process:
        for one in endpoints():
            path = one.path.replace("{", "").replace("}", "")
            answer = process.stranger.request(one.method, path)
            assert answer.status_code == (200 if one.open else 401), path
        assert process.stranger.get("/login").status_code == 200
        assert process.stranger.post("/logout").status_code == 401
        assert process.stranger.get("/", headers={"accept": "text/html"}).headers["location"] == "/login?next=%2F"
        said = Path(world.home, "serve.log").read_text()
    assert process.token not in said + process.link


# --- the file of the token ---


@pytest.mark.system
def test_the_token_is_made_once_with_mode_600_and_shared_by_all_servers_of_the_user(world: World) -> None:
    with serve(world) as one, serve(world) as two:
        file = Path(world.home, ".config/metier/token")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert one.token == two.token == token_of(world)
        assert len(one.token) >= 40
        assert two.client.get("/api/skills").status_code == 200
        assert [path.name for path in file.parent.iterdir()] == ["token"], "nothing temporary is left"


def _token(folder: str, answers: "multiprocessing.Queue[str]") -> None:
    answers.put(access.token(folder))


@pytest.mark.system
def test_processes_that_make_the_token_at_the_same_time_get_the_same_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for number in range(5):
        answers: multiprocessing.Queue[str] = context.Queue()
        folder = str(tmp_path / f"config-{number}")
        processes = [context.Process(target=_token, args=(folder, answers)) for _ in range(8)]
        for one in processes:
            one.start()
        found = {answers.get() for _ in processes}
        for one in processes:
            one.join()
        assert found == {access.token(folder)}
    config = str(tmp_path / "config-0")
    before = access.token(config)
    access._make(os.path.join(config, "token"))  # of a process that found no file, and was the slower one
    assert access.token(config) == before


def test_the_mode_of_the_token_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        access.token(str(tmp_path / "config"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "config/token").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "config").stat().st_mode) == 0o700


@pytest.mark.system
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o602])
def test_a_token_that_others_can_read_or_change_is_refused(world: World, mode: int) -> None:
    folder = world.home / ".config/metier"
    access.token(str(folder))
    (folder / "token").chmod(mode)
    assert "can be used by other users" in refused_start(world)


def test_a_token_that_is_a_link_a_folder_a_pipe_or_no_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"

    def refused(match: str) -> None:
        with pytest.raises(ConfigError, match=match):
            access.token(str(tmp_path))

    (tmp_path / "elsewhere").write_text("x" * 43)
    (tmp_path / "elsewhere").chmod(0o600)
    file.symlink_to("elsewhere")
    refused("cannot be kept")
    file.unlink()
    file.symlink_to("nowhere")
    refused("cannot be kept")
    assert not (tmp_path / "nowhere").exists()
    file.unlink()
    file.mkdir()
    refused("is not a file|cannot be kept")
    file.rmdir()
    os.mkfifo(file, 0o600)
    refused("is not a file")
    file.unlink()
    for content in ("", "short", "x" * 40 + "\n\n", "x y " * 20, "x" * 201):
        file.write_text(content)
        file.chmod(0o600)
        refused("does not hold a token")


@pytest.mark.system
@needs_root
def test_a_token_of_another_user_is_refused(world: World) -> None:
    folder = world.home / ".config/metier"
    access.token(str(folder))
    os.chown(folder / "token", 65534, 65534)
    assert "belongs to another user" in refused_start(world)


@pytest.mark.system
def test_the_environment_can_give_the_token_and_no_link_is_printed(world: World) -> None:
    with serve(world, env={"METIER_TOKEN": TOKEN}) as process:
        assert process.client.get("/api/skills").status_code == 200
        assert process.stranger.get("/api/skills").status_code == 401
    assert not (world.home / ".config/metier/token").exists()
    assert "sign in" not in (world.home / "serve.log").read_text()


@pytest.mark.system
def test_going_without_a_token_must_be_asked_for_and_is_said(world: World) -> None:
    with serve(world, "--no-token") as process:
        assert process.stranger.get("/api/skills").status_code == 200
        assert not (world.home / ".config/metier/token").exists()
    command = [*forking.METIER, "serve", "--port", "0", "--quiet", "--no-token", *place(world)]
    with forking.start(command, stderr=subprocess.PIPE, text=True) as quiet:
        assert quiet.stderr is not None
        try:
            assert quiet.stderr.readline().startswith("warning: no token: every user and program of this machine")
        finally:
            quiet.terminate()
            quiet.wait()
    assert "needs a token" in refused_start(world, "--no-token", "--host", "0.0.0.0")
    assert "--no-token" in refused_start(world, "--no-token", env={"METIER_TOKEN": TOKEN})


# --- the link ---


@pytest.mark.system
def test_the_link_signs_in_once_and_does_not_hold_the_token(world: World) -> None:
    with serve(world) as process:
        address, _, code = process.link.partition("#")
        assert address == f"{process.url}/login"
        assert process.token not in process.link
        first = process.browser()
        signed_in = first.post("/login", data={"code": code})
        assert signed_in.status_code == 303
        assert signed_in.headers["location"] == "/"
        assert first.get("/api/skills").status_code == 200
        assert first.post("/login", data={"code": code}).status_code == 303, "a browser that is signed in goes on"
        again = process.stranger.post("/login", data={"code": code})
        assert again.status_code == 401
        assert "This link was used already" in again.text
        assert "set-cookie" not in again.headers
        for wrong in ("", code[:-1], code.upper()):
            assert process.stranger.post("/login", data={"code": wrong}).status_code == 401
        assert process.stranger.get("/login", params={"code": code, "token": process.token}).status_code == 200
        assert process.stranger.get("/api/skills", params={"token": process.token}).status_code == 401


# --- cookies ---


@pytest.mark.system
def test_the_cookie_is_for_this_port_only_and_no_script_can_read_it(world: World) -> None:
    with serve(world) as process:
        answer = process.stranger.post("/login", data={"token": process.token})
        name, *rest = [part.strip().lower() for part in answer.headers["set-cookie"].split(";")]
        by_tls = {"x-forwarded-proto": "https"}  # as a proxy in front says it
        proxied = process.browser().post("/login", data={"token": process.token}, headers=by_tls)
    assert "secure" not in rest
    assert "; secure" in proxied.headers["set-cookie"].lower()
    assert name.startswith(f"{COOKIE}_{process.port}=")
    assert process.token.lower() not in name
    assert {"httponly", "samesite=strict", "path=/"} <= set(rest)
    assert not any(part.startswith("domain") for part in rest)


@pytest.mark.system
def test_two_servers_in_one_browser_do_not_take_each_others_cookie(world: World, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/events.db"
    with (
        serve(world, store=store) as one,
        serve(world, store=store) as two,
        httpx2.Client(timeout=PATIENCE, trust_env=False) as jar,
    ):
        sign_in(one, jar)
        sign_in(two, jar)
        for process in (one, two):
            assert jar.get(f"{process.url}/api/skills").status_code == 200
        value = jar.cookies[f"{COOKIE}_{one.port}"]
        copies = [(process, {"cookie": f"{COOKIE}_{process.port}={value}"}) for process in (one, two)]
        for process, header in copies:
            answer = process.stranger.get("/api/skills", headers=header)
            assert answer.status_code == 200, "servers on one store with one token share sign-ins"
        jar.post(f"{one.url}/logout")
        assert jar.get(f"{one.url}/api/skills").status_code == 401
        assert jar.get(f"{two.url}/api/skills").status_code == 200, "the other sign-in goes on"
        for process, header in copies:
            assert process.stranger.get("/api/skills", headers=header).status_code == 401


@pytest.mark.system
def test_a_copy_of_a_cookie_is_dead_after_signing_out_and_after_a_restart(world: World, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/events.db"
    with serve(world, store=store) as process:
        left, stays = sign_in(process), sign_in(process)
        copies = [cookie_of(left, process), cookie_of(stays, process)]
        assert left.post("/logout").headers["location"] == "/login"
        found = [process.stranger.get("/api/skills", headers=copy).status_code for copy in copies]
        assert found == [401, 200]
        port = str(process.port)
        process.end()
    with serve(world, "--port", port, store=store) as process:
        found = [process.stranger.get("/api/skills", headers=copy).status_code for copy in copies]
        assert found == [401, 200]
        Path(world.home, ".config/metier/token").unlink()
        process.end()
    with serve(world, "--port", port, store=store) as process:
        found = [process.stranger.get("/api/skills", headers=copy).status_code for copy in copies]
        assert found == [401, 401], "a new token ends all sign-ins"


@pytest.mark.system
def test_signing_out_ends_the_streams_of_that_browser_and_no_others(world: World) -> None:
    world.skill(f"{SKILLS}/notes")
    with serve(world) as process:
        session = process.begin()
        path, accept = f"/api/sessions/{session}/events", {"accept": "text/event-stream"}
        leaving, staying = sign_in(process), sign_in(process)
        with (
            leaving.stream("GET", path, headers=accept) as ending,
            staying.stream("GET", path, headers=accept) as going_on,
        ):
            lines, others = messages(ending.iter_lines()), messages(going_on.iter_lines())
            first = [next(lines)["id"], next(others)["id"]]
            copy = cookie_of(leaving, process)
            process.stranger.post("/logout", headers=copy)
            list(lines)  # it ends
            process.call(session, "skill_load", name="notes")
            while next(others)["event"] != "skill_loaded":
                pass
        assert first == [0, 0]
    assert "ASGI" not in Path(world.home, "serve.log").read_text(), "no error of the server"


def test_cookies_of_other_servers_on_the_same_name_do_not_hide_ours(world: World) -> None:
    app = App(world.project, home=world.home, store="memory:")
    with TestClient(build(app, Gate(token=TOKEN), watch=False), base_url="http://localhost") as client:
        client.post("/login", data={"token": TOKEN}, follow_redirects=False)
        mine = client.cookies[COOKIE]
        client.cookies.clear()
        for line in (
            f'x={{"a": "b;c}}; {COOKIE}={mine}',
            f"{COOKIE}=planted; {COOKIE}={mine}",
            f"=;;={COOKIE}; {COOKIE}={mine}",
        ):
            sent = client.get("/api/skills", headers={"cookie": line})
            assert sent.status_code == 200, line


def test_sign_ins_are_bounded_and_the_latest_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SIGN_INS", 3)
    app = App(world.project, home=world.home, store="memory:")
    with TestClient(build(app, Gate(token=TOKEN), watch=False), base_url="http://localhost") as client:
        cookies: list[str] = []
        for _ in range(5):
            client.cookies.clear()
            client.post("/login", data={"token": TOKEN}, follow_redirects=False)
            cookies.append(client.cookies[COOKIE])
            threading.Event().wait(0.002)  # times have milliseconds
        client.cookies.clear()
        found = [client.get("/api/skills", headers={"cookie": f"{COOKIE}={one}"}).status_code for one in cookies]
        assert found == [401, 401, 200, 200, 200]


# --- wrong tokens ---


def test_a_comparison_takes_texts_of_any_kind(world: World) -> None:
    app = App(world.project, home=world.home, store="memory:")
    known = Access(app.store, TOKEN)
    for given in ("", "é", "\ud800".encode("utf-8", "replace").decode(), TOKEN + "\0", TOKEN[:-1]):
        assert not known.is_token(given)
        assert not known.take_code(given)
    assert known.is_token(TOKEN)
    assert not Access(app.store, "").is_token("")
    app.close()


# --- a socket ---


@contextlib.contextmanager
def on_socket(world: World, path: Path, *more: str) -> Generator[subprocess.Popen[str], None, None]:
    command = [*forking.METIER, "serve", "--socket", str(path), *place(world), *more]
    with forking.start(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            assert said == f"listening on {path}\n", said + process.stderr.read()
            yield process
        finally:
            process.terminate()
            process.wait()


def over(path: Path, **headers: str) -> httpx2.Client:
    transport = httpx2.HTTPTransport(uds=str(path))
    return httpx2.Client(transport=transport, base_url="http://localhost", headers=headers, timeout=PATIENCE)


@pytest.mark.system
def test_a_socket_needs_no_token_and_only_its_owner_can_open_it(open_world: World) -> None:
    path = open_world.home / "metier.sock"
    with on_socket(open_world, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with over(path) as client:
            assert client.get("/api/skills").json()["skills"][0]["name"] == "runner"
            assert client.get("/api/skills", headers={"host": "evil.example"}).status_code == 421
        assert not (open_world.home / ".config/metier/token").exists()
        if IS_ROOT:

            def connect() -> None:
                with socket.socket(socket.AF_UNIX) as other:
                    other.connect(str(path))

            with pytest.raises(PermissionError):
                as_user("nobody", connect)
        done = forking.run(
            [*forking.METIER, "serve", "--socket", str(path), *place(open_world)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "Address already in use" in done.stderr) == (2, True), "a server is listening there"
        with over(path) as client:
            assert client.get("/healthz").status_code == 200
    assert not path.exists()


@pytest.mark.system
def test_a_socket_that_was_left_behind_is_replaced_and_another_file_is_not(world: World) -> None:
    path = world.home / "metier.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with on_socket(world, path), over(path) as client:
        assert client.get("/healthz").status_code == 200
    path.write_text("precious")
    assert "cannot listen" in refused_start(world, "--socket", str(path))
    assert path.read_text() == "precious"
    shared = world.home / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "lets others replace" in refused_start(world, "--socket", str(shared / "metier.sock"))


@pytest.mark.system
def test_a_socket_with_a_token_in_the_environment_asks_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METIER_TOKEN", TOKEN)
    path = world.home / "metier.sock"
    with on_socket(world, path), over(path) as client, over(path, authorization=f"Bearer {TOKEN}") as known:
        assert client.get("/api/skills").status_code == 401
        assert known.get("/api/skills").status_code == 200


# --- the Host header ---

GOOD_HOSTS = ["localhost", "LOCALHOST", "localhost:1", "127.0.0.1:65535", "[::1]", "[::1]:80"]
BAD_HOSTS = [
    *("[::1]evil.com", "[::1]evil.com:80", "[::1]:80evil.com", "[::1].evil.com", "[::1]@evil.com", "[::1", "::1"),
    *("::1]", "[]", "[localhost]", "[::1%25lo]", "[::1%lo]", "[::ffff:127.0.0.1]", "[::]", "evil.com"),
    *("localhost.evil.com", "evil.com#localhost", "evil.com/localhost", "evil.com?localhost", "evil.com\\localhost"),
    *("localhost@evil.com", "evil@localhost", "evil:localhost@127.0.0.1", "localhost.", "127.0.0.1.", ".localhost"),
    *("localhost:", "localhost:80:80", "localhost:evil", "localhost:+80", "localhost:-1"),
    *("[0:0:0:0:0:0:0:1]", "localhost, evil.com", "localhost evil.com", "local host", "127.1", "127.0.1"),
    *("2130706433", "0x7f.0.0.1", "0x7f000001", "0177.0.0.1", "127.0.0.01", "0.0.0.0", "127.0.0.2", "ⅼocalhost"),
    *("localhost\u0660", "１２７.0.0.1", "xn--localhost-", "http://localhost", "//localhost", "*", ""),
]


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("hosts")
    world = World(folder / "home", folder / "project")
    (world.project / ".git").mkdir(parents=True)
    world.home.mkdir()
    with serve(world) as process:
        yield process


def raw(process: Process, head: bytes) -> int:
    with process.connect() as connection, connection.makefile("rb") as answer:
        connection.sendall(head + process.line.encode() + b"connection: close\r\n\r\n")
        return int(answer.readline().split()[1])


@pytest.mark.system
@pytest.mark.parametrize("path", ["/healthz", "/api/skills", "/login"])
def test_only_a_host_header_that_is_exactly_a_name_of_the_server_is_answered(listening: Process, path: str) -> None:
    for host in GOOD_HOSTS:
        assert raw(listening, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n".encode()) == 200, host
    for host in BAD_HOSTS:
        assert raw(listening, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n".encode()) in (400, 421), host


@pytest.mark.system
def test_a_host_that_is_missing_given_twice_or_part_of_the_target_is_refused(listening: Process) -> None:
    for head in (
        b"GET /healthz HTTP/1.1\r\n",
        b"GET /healthz HTTP/1.0\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n evil.com\r\n",
        b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"GET http://evil.com/healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"GET http://evil.com/healthz HTTP/1.1\r\nHost: evil.com\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n",
    ):
        assert raw(listening, head) in (400, 421), head


def test_a_name_of_the_server_is_a_host_name_without_a_port(world: World) -> None:
    assert "skills.example.com" in Gate.for_address("127.0.0.1", names=("Skills.Example.com", "[2001:db8::1]")).hosts
    for name in ("skills.example.com:8765", "http://x", "", "a b", "[::1"):
        with pytest.raises(ConfigError, match="is not a host name"):
            Gate.for_address("127.0.0.1", names=(name,))
    assert "" not in Gate.for_address("", TOKEN).hosts


# --- a browser ---


@pytest.fixture
def stranger(chromium: Browser, watch: Watch) -> Iterator[Page]:
    """A page that has no token."""
    with new_page(chromium, watch, token="") as made:
        yield made


@pytest.mark.system
def test_the_link_opens_the_app_signed_in_and_leaves_no_trace_of_its_code(world: World, stranger: Page) -> None:
    with serve(world) as process:
        code = process.link.partition("#")[2]
        asked: list[str] = []
        stranger.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer')}"))
        stranger.goto(process.link)
        stranger.wait_for_url(f"{process.url}/")
        expect(stranger.locator("[data-message]")).to_be_visible()
        assert not any(code in line for line in asked), "not in an address or a Referer"
        assert code not in stranger.evaluate("document.referrer + location.href")
        (cookie,) = [one for one in stranger.context.cookies() if one.get("name", "").startswith(COOKIE)]
        assert (cookie.get("httpOnly"), cookie.get("sameSite"), cookie.get("path")) == (True, "Strict", "/")
        assert cookie.get("domain") == "127.0.0.1"
        stranger.go_back()
        assert code not in stranger.url
        stranger.goto(process.link)  # a second time, by the same browser
        stranger.wait_for_url(f"{process.url}/")


@pytest.mark.system
def test_two_tabs_share_a_sign_in_and_signing_out_ends_both(world: World, stranger: Page, watch: Watch) -> None:
    world.skill(f"{SKILLS}/notes")
    with serve(world) as process:
        stranger.goto(process.link)
        stranger.wait_for_url(f"{process.url}/")
        second = stranger.context.new_page()
        second.goto(f"{process.url}/skills")
        expect(second.get_by_role("heading", name="Skills", exact=True)).to_be_visible()
        second.get_by_role("button", name="Sign out").click()
        second.wait_for_url(f"{process.url}/login")
        stranger.locator("[data-message]").fill("hello")
        stranger.locator("[data-message]").press("Enter")
        expect(stranger.locator("[data-toast]")).to_contain_text("You are signed out.")
        stranger.goto(process.link)
        expect(stranger.get_by_role("alert")).to_contain_text("This link was used already")
        stranger.goto(f"{process.url}/skills")
        stranger.get_by_label("Token").fill(process.token)
        stranger.get_by_role("button", name="Sign in").click()
        stranger.wait_for_url(f"{process.url}/skills")
    assert all("401" in line for line in watch.heard)


@pytest.mark.system
def test_a_browser_is_opened_signed_in_and_its_command_line_has_no_secret(world: World, stranger: Page) -> None:
    browser, opened = world.home / "browser.sh", world.home / "opened"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    with serve(world, "--open", env={"BROWSER": str(browser)}) as process:
        for _ in range(1_000):
            if opened.exists():
                break
            threading.Event().wait(0.03)
        arguments = opened.read_text()
        assert process.link.partition("#")[2] not in arguments
        (file,) = (world.home / ".config/metier").glob("*.html")
        assert arguments.strip() == file.as_uri()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        stranger.goto(file.as_uri())
        stranger.wait_for_url(f"{process.url}/")
        expect(stranger.locator("[data-message]")).to_be_visible()
        process.end()
    assert not file.exists()
