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

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect
from processes import Process, messages, serve
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
from watching import wait_for
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
    done = forking.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert (done.returncode, done.stderr.strip().count("\n")) == (2, 0), done.stderr
    return done.stderr


def sign_in(process: Process, jar: httpx2.Client | None = None) -> httpx2.Client:
    """A client that signed in with the token, as a browser does."""
    client = jar or process.browser()
    answer = client.post(f"{process.url}/login", data={"token": process.token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return client


def attempt(port: int, method: str, path: str, body: object, headers: dict[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(body), {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.system
@needs_root
@needs("bwrap")
def test_another_user_of_the_machine_gets_nothing_and_cannot_answer_an_approval(open_world: World) -> None:
    with serve(open_world) as process:
        chat, session = process.client.post("/api/chats").json()["id"], process.begin()
        body = {"text": "/runner run scripts/go.sh"}
        client = process.connected()
        turn = threading.Thread(target=client.post, args=(f"/api/chats/{chat}/messages",), kwargs={"json": body})
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
            ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize"}, {"accept": "application/json"}),
            ("GET", "/skills", None, {}),
            ("PUT", "/api/model", {"provider": "openai", "base_url": "http://127.0.0.1:1/"}, {}),
        ]
        answers = as_user("nobody", lambda: [attempt(process.port, *one) for one in tries])
        for (status, said), (_, path, *_) in zip(answers, tries, strict=True):
            assert (status, json.loads(said)["error"]["code"]) == (401, "UNAUTHORIZED"), path
        assert waiting(process, chat) == [ask], "the question still waits for the person"
        with pytest.raises(PermissionError):
            as_user("nobody", Path(open_world.home, ".config/metier/token").read_text)
        answered = process.client.post(f"/api/chats/{chat}/answers/{ask}", json={"answer": "no"})
        assert answered.status_code == 204
        turn.join()


def waiting(process: Process, chat: str) -> list[str]:
    """The ids of the questions that wait for an answer, as soon as there is one."""

    def found() -> list[str]:
        items = process.client.get(f"/api/chats/{chat}").json()["items"]
        return [item["id"] for item in items if item["type"] == "ask" and item["state"] == "waiting"]

    wait_for(lambda: bool(found()), "a question")
    return found()


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


def test_the_mode_of_the_token_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert len(access.token(str(tmp_path / "config"))) >= 40
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "config/token").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "config").stat().st_mode) == 0o700
    assert [path.name for path in (tmp_path / "config").iterdir()] == ["token"], "nothing temporary is left"


def test_a_token_that_others_can_use_or_that_is_no_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"

    def refused(match: str) -> None:
        with pytest.raises(ConfigError, match=match):
            access.token(str(tmp_path))

    access.token(str(tmp_path))
    for mode in (0o640, 0o604, 0o660, 0o610, 0o602):
        file.chmod(mode)
        refused("can be used by other users")
    file.chmod(0o600)
    if IS_ROOT:
        os.chown(file, 65534, 65534)
        refused("belongs to another user")
    file.rename(tmp_path / "elsewhere")
    for target in ("elsewhere", "nowhere"):
        file.symlink_to(target)
        refused("cannot be kept")
        file.unlink()
    assert not (tmp_path / "nowhere").exists()
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
def test_the_environment_can_give_the_token_and_going_without_one_must_be_asked_for(world: World) -> None:
    file = world.home / ".config/metier/token"
    with serve(world, env={"METIER_TOKEN": TOKEN}) as process:
        assert process.client.get("/api/skills").status_code == 200
        assert process.stranger.get("/api/skills").status_code == 401
    assert "sign in" not in (world.home / "serve.log").read_text()
    with serve(world, "--no-token") as process:
        assert process.stranger.get("/api/skills").status_code == 200
    assert not file.exists()
    assert "needs a token" in refused_start(world, "--no-token", "--host", "0.0.0.0")
    assert "--no-token" in refused_start(world, "--no-token", env={"METIER_TOKEN": TOKEN})
    command = [*forking.METIER, "serve", "--port", "0", "--quiet", "--no-token", *place(world)]
    with forking.start(command, stderr=subprocess.PIPE, text=True) as quiet:
        assert quiet.stderr is not None
        try:
            assert quiet.stderr.readline().startswith("warning: no token")
        finally:
            quiet.terminate()
            quiet.wait()
    access.token(str(file.parent))
    file.chmod(0o644)
    assert "can be used by other users" in refused_start(world)


@pytest.mark.system
def test_the_link_signs_in_once_and_does_not_hold_the_token(world: World) -> None:
    with serve(world) as process:
        address, _, code = process.link.partition("#")
        assert (address, process.token in process.link) == (f"{process.url}/login", False)
        first = process.browser()
        signed_in = first.post("/login", data={"code": code})
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/")
        assert first.get("/api/skills").status_code == 200
        assert first.post("/login", data={"code": code}).status_code == 303, "a browser that is signed in goes on"
        again = process.stranger.post("/login", data={"code": code})
        assert (again.status_code, "set-cookie" in again.headers) == (401, False)
        assert "This link was used already" in again.text
        for wrong in ("", code[:-1], code.upper()):
            assert process.stranger.post("/login", data={"code": wrong}).status_code == 401
        assert process.stranger.get("/login", params={"code": code, "token": process.token}).status_code == 200
        assert process.stranger.get("/api/skills", params={"token": process.token}).status_code == 401


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
def test_servers_share_sign_ins_and_each_ends_with_signing_out_or_a_new_token(world: World, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/events.db"

    def answers(process: Process, *values: str) -> list[int]:
        """What copies of cookies are good for."""
        headers = [{"cookie": f"{COOKIE}_{process.port}={value}"} for value in values]
        return [process.stranger.get("/api/skills", headers=header).status_code for header in headers]

    with (
        serve(world, store=store) as one,
        serve(world, store=store) as two,
        httpx2.Client(timeout=PATIENCE, trust_env=False) as jar,
    ):
        sign_in(one, jar)
        sign_in(two, jar)
        left, stays = (jar.cookies[f"{COOKIE}_{process.port}"] for process in (one, two))
        for process in (one, two):
            assert jar.get(f"{process.url}/api/skills").status_code == 200, "neither took the cookie of the other"
            assert answers(process, left, stays) == [200, 200], "they share a store and a token"
        assert jar.post(f"{one.url}/logout").headers["location"] == "/login"
        assert jar.get(f"{one.url}/api/skills").status_code == 401
        for process in (one, two):
            assert answers(process, left, stays) == [401, 200]
    with serve(world, store=store) as process:
        assert answers(process, left, stays) == [401, 200], "after a restart, too"
    Path(world.home, ".config/metier/token").unlink()
    with serve(world, store=store) as process:
        assert answers(process, left, stays) == [401, 401], "a new token ends all sign-ins"


@pytest.mark.system
def test_signing_out_ends_the_streams_of_that_browser_and_no_others(world: World) -> None:
    world.skill(f"{SKILLS}/notes")
    with serve(world) as process:
        session = process.begin()
        path, accept = f"/api/sessions/{session}/events", {"accept": "text/event-stream"}
        leaving, staying = sign_in(process), sign_in(process)
        with leaving.stream("GET", path, headers=accept) as ending, staying.stream("GET", path, headers=accept) as on:
            lines, others = messages(ending.iter_lines()), messages(on.iter_lines())
            assert (next(lines)["id"], next(others)["id"]) == (0, 0)
            name = f"{COOKIE}_{process.port}"
            process.stranger.post("/logout", headers={"cookie": f"{name}={leaving.cookies[name]}"})
            list(lines)  # it ends
            process.call(session, "skill_load", name="notes")
            while next(others)["event"] != "skill_loaded":
                pass
    assert "ASGI" not in Path(world.home, "serve.log").read_text(), "no error of the server"


@pytest.fixture
def client(world: World) -> Iterator[TestClient]:
    app = App(world.project, home=world.home, store="memory:")
    with TestClient(build(app, Gate(token=TOKEN), watch=False), base_url="http://localhost") as made:
        yield made


def cookie_from(client: TestClient) -> str:
    """The cookie of a new sign-in, which the client forgets."""
    client.post("/login", data={"token": TOKEN}, follow_redirects=False)
    value = client.cookies[COOKIE]
    client.cookies.clear()
    return value


def status_with(client: TestClient, cookies: str) -> int:
    return client.get("/api/skills", headers={"cookie": cookies}).status_code


def test_only_a_cookie_of_a_sign_in_lets_in_whatever_other_cookies_there_are(client: TestClient) -> None:
    sent = client.get("/api/skills", headers={"accept": "text/html"}, follow_redirects=False)
    assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=%2Fapi%2Fskills")
    assert "not the token" in client.post("/login", data={"token": "wrong"}).text
    mine = cookie_from(client)
    assert TOKEN not in mine
    for line in (
        f"{COOKIE}={mine}",
        f'x={{"a": "b;c}}; {COOKIE}={mine}',
        f"{COOKIE}=planted; {COOKIE}={mine}",
        f"=;;={COOKIE}; {COOKIE}={mine}",
    ):
        assert status_with(client, line) == 200, line
    name, _, proof = mine.partition(".")
    for wrong in ("", TOKEN, mine[:-1], f"x{mine}", name, f".{proof}"):
        assert status_with(client, f"{COOKIE}={wrong}") == 401, wrong


def test_sign_ins_are_bounded_and_the_latest_stay(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SIGN_INS", 3)
    cookies: list[str] = []
    for _ in range(5):
        cookies.append(cookie_from(client))
        threading.Event().wait(0.002)  # times have milliseconds
    assert [status_with(client, f"{COOKIE}={one}") for one in cookies] == [401, 401, 200, 200, 200]


def test_a_comparison_takes_texts_of_any_kind(world: World) -> None:
    app = App(world.project, home=world.home, store="memory:")
    known = Access(app.store, TOKEN)
    for given in ("", "é", "\ud800".encode("utf-8", "replace").decode(), TOKEN + "\0", TOKEN[:-1]):
        assert (known.is_token(given), known.take_code(given)) == (False, False), given
    assert (known.is_token(TOKEN), Access(app.store, "").is_token("")) == (True, False)
    app.close()


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
            with pytest.raises(PermissionError), socket.socket(socket.AF_UNIX) as other:
                as_user("nobody", lambda: other.connect(str(path)))
        assert "Address already in use" in refused_start(open_world, "--socket", str(path)), "a server listens there"
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
    with (
        pytest.MonkeyPatch.context() as environment,
        over(path) as client,
        over(path, authorization=f"Bearer {TOKEN}") as known,
    ):
        environment.setenv("METIER_TOKEN", TOKEN)
        with on_socket(world, path):
            assert (client.get("/api/skills").status_code, known.get("/api/skills").status_code) == (401, 200)
    path.write_text("precious")
    assert "cannot listen" in refused_start(world, "--socket", str(path))
    assert path.read_text() == "precious"
    shared = world.home / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "lets others replace" in refused_start(world, "--socket", str(shared / "metier.sock"))


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


def raw(process: Process, head: bytes) -> int:
    with process.connect() as connection, connection.makefile("rb") as answer:
        connection.sendall(head + process.line.encode() + b"connection: close\r\n\r\n")
        return int(answer.readline().split()[1])


@pytest.mark.system
def test_only_a_host_header_that_is_exactly_a_name_of_the_server_is_answered(world: World) -> None:
    with serve(world) as process:
        for host in GOOD_HOSTS:
            assert raw(process, f"GET /api/skills HTTP/1.1\r\nHost: {host}\r\n".encode()) == 200, host
        heads = [f"GET /api/skills HTTP/1.1\r\nHost: {host}\r\n".encode() for host in BAD_HOSTS]
        heads += [
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
        ]
        assert [head for head in heads if raw(process, head) not in (400, 421)] == []


def test_a_name_of_the_server_is_a_host_name_without_a_port(world: World) -> None:
    assert "skills.example.com" in Gate.for_address("127.0.0.1", names=("Skills.Example.com", "[2001:db8::1]")).hosts
    for name in ("skills.example.com:8765", "http://x", "", "a b", "[::1"):
        with pytest.raises(ConfigError, match="is not a host name"):
            Gate.for_address("127.0.0.1", names=(name,))
    assert "" not in Gate.for_address("", TOKEN).hosts


@pytest.fixture
def stranger(chromium: Browser, watch: Watch) -> Iterator[Page]:
    """A page that has no token."""
    with new_page(chromium, watch, token="") as made:
        yield made


@pytest.mark.system
def test_the_link_opens_the_app_signed_in_and_leaves_no_trace_of_its_code(
    world: World, stranger: Page, watch: Watch
) -> None:
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
        # Signing out in one tab ends the other one.
        second = stranger.context.new_page()
        second.goto(f"{process.url}/skills")
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
        wait_for(opened.exists, "a browser that is opened")
        (file,) = (world.home / ".config/metier").glob("*.html")
        assert opened.read_text().strip() == file.as_uri()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        stranger.goto(file.as_uri())
        stranger.wait_for_url(f"{process.url}/")
        expect(stranger.locator("[data-message]")).to_be_visible()
        process.end()
    assert not file.exists()
