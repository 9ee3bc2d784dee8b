"""The container runner: what a broken engine or container can do to the host, without an engine."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.attack.boxes import Box
from metier.running.sandbox import Job, Outcome, RunLimits, SandboxUnavailable, ScriptRefused, container
from metier.running.sandbox.container import ContainerRunner, find_socket
from metier.running.sandbox.container_engine import LABEL, has_ended, owner
from metier.running.sandbox.runners import choose
from running.sandbox.fake_engine import GOOD, FakeEngine, Line, Speaks, a_fake_engine, started, well_behaved

pytest_plugins = ["running.sandbox.sandbox_fixtures"]

LIMITS = RunLimits(seconds=20, work_bytes=1 << 20, file_bytes=1 << 19, files=4)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeEngine]:
    monkeypatch.setattr(container, "START_SECONDS", 5.0)
    monkeypatch.setattr(container, "END_SECONDS", 0.3)
    monkeypatch.setattr(container, "COLLECT_SECONDS", 5.0)
    monkeypatch.setattr(container, "REMOVE_SECONDS", 0.3)
    with a_fake_engine() as made:
        yield made


def job_in(box: Box) -> Job:
    return box.job(box.script("run.py", "print('hello')"), limits=LIMITS)


def run(engine: FakeEngine, box: Box, job: Job | None = None) -> Outcome:
    try:
        return ContainerRunner("image", engine.path).run(job or job_in(box))
    finally:
        assert (engine.containers, engine.volumes) == ({}, {}), "nothing is left at the engine"


def test_a_run_asks_the_engine_for_every_protection_and_removes_everything(engine: FakeEngine, box: Box) -> None:
    seen: list[dict[str, Any]] = []
    told: list[bytes] = []
    engine.inspected = lambda found: seen.append(found) or found

    def speaks(line: Line) -> None:
        told.append(line.expect(b"J"))
        line.send(b"R", json.dumps(GOOD).encode())
        line.expect(b"G")
        line.send(b"O", b"hello\n")
        line.send(b"X", b'{"code": 3, "ended": ""}')
        for frame in (b"Fa", b"Done", b"Fb/c", b"Dt", b"Dwo", b"Ll\0link", b"."):
            line.send(frame[:1], frame[1:])

    engine.speaks = speaks
    outcome = run(engine, box, replace(job_in(box), env={"API_KEY": "s3cret"}, argv=("word",)))
    assert (outcome.exit_code, outcome.ended, outcome.stdout) == (3, "exit", b"hello\n")
    assert [(file.path, file.data) for file in outcome.files] == [("a", b"one"), ("b/c", b"two")]
    assert outcome.left_out == ("l: link",)
    assert {"no-network", "no-capabilities", "seccomp", "limit-memory"} <= set(outcome.protections)
    assert "ends-with-host" not in outcome.protections, "only the engine could promise it"
    host = seen[-1]["HostConfig"]
    assert (host["NetworkMode"], host["CapDrop"], host["ReadonlyRootfs"]) == ("none", ["ALL"], True)
    assert host["MaskedPaths"] == ["/proc/kcore", "/proc/cmdline", "/etc/hosts", "/etc/resolv.conf"]
    assert not host.get("Binds"), "no folder of the host"
    assert b"s3cret" in told[0]
    assert "s3cret" not in json.dumps(seen), "the engine never sees a variable"


def without(*keys: str, value: object = None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The same facts, with another value at a place."""

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        copy: dict[str, Any] = json.loads(json.dumps(found))
        inner = copy
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        return copy

    return changed


@pytest.mark.parametrize(
    ("changed", "gap"),
    [
        (without("HostConfig", "ReadonlyRootfs", value=False), "root folder"),
        (without("HostConfig", "Privileged", value=True), "privileged"),
        (without("HostConfig", "CapAdd", value=["SYS_ADMIN"]), "capabilities are added"),
        (without("HostConfig", "CapDrop"), "capabilities are left"),
        (without("HostConfig", "SecurityOpt", value=[]), "new privileges"),
        (without("HostConfig", "SecurityOpt", value=["no-new-privileges", "seccomp=unconfined"]), "filter is off"),
        (without("HostConfig", "Memory", value=0), "memory is not limited"),
        (without("HostConfig", "MemorySwap", value=-1), "swap"),
        (without("HostConfig", "PidsLimit", value=0), "processes"),
        (without("HostConfig", "Devices", value=[{"PathOnHost": "/dev/sda"}]), "devices"),
        (without("HostConfig", "NetworkMode", value="bridge"), "network is bridge"),
        (without("HostConfig", "PidMode", value="host"), "PidMode is host"),
        (without("HostConfig", "IpcMode", value="container:x"), "IpcMode"),
        (without("HostConfig", "AutoRemove", value=False), "not removed"),
        (without("HostConfig", "PortBindings", value={"80/tcp": [{}]}), "reachable"),
        (without("HostConfig", "RestartPolicy", value={"Name": "always"}), "started again"),
        (without("HostConfig"), "root folder"),
        (without("Config", "User", value="0:0"), "another user"),
        (without("Mounts"), "mounts are not known"),
        (without("Mounts", value=[]), "nothing is mounted at /skill"),
        (lambda found: {**found, "Mounts": [{**found["Mounts"][0], "RW": True}]}, "/skill can be written"),
        (lambda found: {**found, "Mounts": [*found["Mounts"], {"Type": "bind", "Destination": "/etc"}]}, "at /etc"),
    ],
)
def test_a_container_whose_inspection_lacks_a_protection_does_not_start(
    engine: FakeEngine, box: Box, changed: Callable[[dict[str, Any]], object], gap: str
) -> None:
    engine.inspected = changed
    with pytest.raises(SandboxUnavailable, match=gap):
        run(engine, box)
    assert engine.started == []


@pytest.mark.parametrize(
    ("changed", "gap"),
    [
        (without("status", "CapBnd", value="0000000000000400"), "CapBnd"),
        (without("status", "CapEff"), "CapEff"),
        (without("status", "NoNewPrivs", value="0"), "new privileges"),
        (without("status", "Seccomp", value="0"), "filter is not in force"),
        (without("status", "Uid", value="0\t0\t0\t0"), "user without rights"),
        (without("pid", value=77), "other processes"),
        (without("processes", value=[1, 2]), "other processes"),
        (without("memory_protected", value=False), "its memory can be written"),
        (without("root_read_only", value=False), "root folder"),
        (without("skill_read_only", value=False), "/skill"),
        (without("writable", value=["/work", "/var/lib"]), "/var/lib can be written"),
        (without("writable"), "what can be written"),
        (without("sizes", "/work", value=1 << 40), "/work has no size limit"),
        (without("sizes"), "sizes"),
        (without("shown", value=["/etc/hosts"]), "/etc/hosts can be read"),
        (without("shown"), "what can be read"),
        (without("memory_limit", value=-1), "memory is not limited"),
        (without("process_limit", value=-1), "processes are not limited"),
        (without("kills_counted", value=False), "ran out"),
        (without("interfaces", value=["lo", "eth0"]), "network"),
        (without("devices", value=["null", "sda"]), "devices"),
        (without("machine", value="mips"), "no system call filter"),
        (lambda found: {}, "user without rights"),
    ],
)
def test_a_script_does_not_start_if_the_kernel_reports_less(
    engine: FakeEngine, box: Box, changed: Callable[[dict[str, Any]], dict[str, Any]], gap: str
) -> None:
    heard: list[bytes] = []

    def speaks(line: Line) -> None:
        line.expect(b"J")
        line.send(b"R", json.dumps(changed(GOOD)).encode())
        heard.append(line.receive()[0])

    engine.speaks = speaks
    reported: list[object] = []
    with pytest.raises(SandboxUnavailable, match=gap):
        run(engine, box, replace(job_in(box), on_started=reported.append))
    assert (heard in ([], [b""]), reported) == (True, [])


CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ("GET /images/.*", b""),
        ("GET /images/.*", b"220 smtp.example.org\r\n"),
        ("GET /images/.*", b"HTTP/1.1 500 No\r\nContent-Length: 99999\r\n\r\n{"),
        ("GET /images/.*", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n"),
        ("POST /volumes/create", CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n"),
        ("POST /containers/create", CHUNKED + b"-5\r\n{}"),
        ("POST /containers/create", CHUNKED + b"5\r\n{}"),
        ("PUT /containers/.*/archive", b'HTTP/1.1 400 Bad\r\nContent-Length: 17\r\n\r\n{"message": "no"}'),
        ("GET /containers/.*/json", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"),
        ("GET /containers/.*/json", b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"a": NaN'),
        ("GET /containers/.*/json", b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * (9 << 20)),
        ("POST /containers/.*/attach", b"HTTP/1.1 404 Not Found\r\n\r\n"),
        ("POST /containers/.*/attach", b"H" * 100_000),
        ("POST /containers/.*/start", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_an_answer_that_makes_no_sense_is_a_sandbox_that_does_not_work(
    engine: FakeEngine, box: Box, request_: str, answer: bytes
) -> None:
    engine.answers[request_] = answer
    with pytest.raises(SandboxUnavailable):
        run(engine, box)
    assert "container" in str(ContainerRunner("image", engine.path).problem())


def ends(line: Line) -> None:
    line.expect(b"J")


def complains(line: Line) -> None:
    line.expect(b"J")
    line.engine(b"exec: python3: not found\n", stream=2)


def wrong_stream(line: Line) -> None:
    line.expect(b"J")
    line.engine(b"x", stream=7)


def huge_frame(line: Line) -> None:
    line.expect(b"J")
    line.raw(struct.pack(">BxxxI", 1, 0xFFFFFFFF) + b"R\xff\xff\xff\xff" + bytes(1 << 20))


def no_json(line: Line) -> None:
    line.expect(b"J")
    line.send(b"R", b"{")


@pytest.mark.parametrize(
    ("speaks", "words"),
    [
        (ends, "ended early"),
        (complains, "python3: not found"),
        (wrong_stream, "stream 7"),
        (huge_frame, "too long"),
        (no_json, "not JSON"),
    ],
)
def test_a_container_that_does_not_start_well_starts_no_script(
    engine: FakeEngine, box: Box, speaks: Speaks, words: str
) -> None:
    engine.speaks = speaks
    reported: list[object] = []
    with pytest.raises(SandboxUnavailable, match=words):
        run(engine, box, replace(job_in(box), on_started=reported.append))
    assert reported == []


def test_a_script_without_its_interpreter_in_the_image_is_refused(engine: FakeEngine, box: Box) -> None:
    engine.speaks = lambda line: started(line, {**GOOD, "program": ""})
    with pytest.raises(ScriptRefused, match="needs python3, which the image image does not have") as refused:
        run(engine, box)
    assert refused.value.reason == "interpreter-missing"


def test_an_engine_that_dies_in_the_middle_is_an_outcome_that_says_so(engine: FakeEngine, box: Box) -> None:
    def speaks(line: Line) -> None:
        started(line)
        line.send(b"O", b"begun\n")

    engine.speaks = speaks
    outcome = run(engine, box)
    assert (outcome.ended, outcome.exit_code, outcome.stdout, outcome.files) == ("killed", 137, b"begun\n", ())
    assert outcome.notes == ("the container ended early",)
    assert "could not be fetched" in outcome.left_out[0]


def test_a_container_that_does_not_end_is_removed_by_the_engine(engine: FakeEngine, box: Box) -> None:
    def speaks(line: Line) -> None:
        started(line)
        while line.receive()[0]:
            pass

    engine.speaks = speaks
    outcome = run(engine, box, replace(job_in(box), limits=replace(LIMITS, seconds=0.2)))
    assert (outcome.ended, outcome.files) == ("timeout", ())


def test_a_flood_from_the_container_is_cut_at_the_limit(engine: FakeEngine, box: Box) -> None:
    def speaks(line: Line) -> None:
        started(line)
        for _ in range(100):
            line.send(b"E", bytes(1 << 15))
        line.send(b"X", b'{"code": 0, "ended": ""}')
        line.send(b".")

    engine.speaks = speaks
    outcome = run(engine, box, replace(job_in(box), limits=replace(LIMITS, output_bytes=1000)))
    assert (outcome.ended, len(outcome.stderr)) == ("output-limit", 1000)


@pytest.mark.parametrize(
    "frames",
    [
        [(b"F", b"../up")],
        [(b"F", b"/etc/passwd")],
        [(b"F", b"a/../../b")],
        [(b"F", b"a//b")],
        [(b"F", b"a/./b")],
        [(b"F", b"")],
        [(b"F", b"a\0b")],
        [(b"F", b"a"), (b"F", b"a")],
        [(b"F", str(number).encode()) for number in range(5)],
        [(b"F", b"a"), *[(b"D", bytes(1 << 15))] * 17],
        [(b"F", b"a"), *[(b"D", bytes(1 << 15))] * 15, (b"F", b"b"), *[(b"D", bytes(1 << 15))] * 15, (b"F", b"c")]
        + [(b"D", bytes(1 << 15))] * 3,
    ],
    ids=["up", "absolute", "up-in-the-middle", "empty-part", "dot", "empty", "nul", "twice", "many", "large", "sum"],
)
def test_files_that_cannot_be_in_the_work_folder_bring_nothing(
    engine: FakeEngine, box: Box, frames: list[tuple[bytes, bytes]]
) -> None:
    def speaks(line: Line) -> None:
        started(line)
        line.send(b"X", b'{"code": 0, "ended": ""}')
        for kind, content in frames:
            line.send(kind, content)
        line.send(b".")

    engine.speaks = speaks
    outcome = run(engine, box)
    assert (outcome.exit_code, outcome.files) == (0, ())
    assert "could not be fetched: the container sends" in outcome.left_out[0]


def test_what_this_runner_does_not_know_is_refused_and_never_ignored(engine: FakeEngine, box: Box) -> None:
    job = replace(job_in(box), project=str(box.project), project_writable=True)
    with pytest.raises(SandboxUnavailable, match="does not support project_writable"):
        run(engine, box, job)
    with pytest.raises(SandboxUnavailable, match="does not support hosts"):
        run(engine, box, replace(job_in(box), hosts=("api.example.org",)))
    # A field that somebody adds to jobs later is refused, too, until this runner knows it.
    fewer = container._SUPPORTED - {"stdin"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container, "_SUPPORTED", fewer)
        with pytest.raises(SandboxUnavailable, match="stdin"):
            run(engine, box, replace(job_in(box), stdin=b"x"))
        run(engine, box)
    assert engine.started, "without it, the job runs"


def test_a_project_that_is_too_large_is_refused_before_anything_starts(engine: FakeEngine, box: Box) -> None:
    with (box.project / "large").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(ScriptRefused, match="256 MiB or 20,000 files and folders, which is too much") as refused:
        run(engine, box, replace(job_in(box), project=str(box.project)))
    assert (refused.value.reason, engine.started) == ("project-too-large", [])


def test_an_image_that_is_not_there_is_a_problem_with_the_command_that_gets_it(engine: FakeEngine, box: Box) -> None:
    engine.answers["GET /images/.*"] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    runner = ContainerRunner("docker.io/library/python:3.13-slim", engine.path)
    assert "is not there" in str(runner.problem())
    assert runner.remedy() == "docker pull docker.io/library/python:3.13-slim"
    engine.name = "Podman Engine"
    with pytest.raises(SandboxUnavailable, match="podman pull"):
        runner.run(job_in(box))
    del engine.answers["GET /images/.*"]
    assert runner.problem() is None, "as soon as the user has pulled it"


def test_podman_is_told_in_its_own_way_what_to_hide(engine: FakeEngine, box: Box) -> None:
    seen: list[dict[str, Any]] = []
    engine.inspected = lambda found: seen.append(found["HostConfig"]) or found
    engine.name = "Podman Engine"
    run(engine, box)
    assert seen[-1]["SecurityOpt"] == ["no-new-privileges", "mask=/proc/cmdline:/etc/hosts:/etc/resolv.conf"]
    run(engine, box, replace(job_in(box), network=True))
    assert seen[-1]["SecurityOpt"][1] == "mask=/proc/cmdline", "with a network, names are found"


CRUN = b'{"message": "crun: cgroups in hybrid mode not supported"}'


def test_what_the_runtime_of_the_engine_refuses_reaches_the_user_with_a_way_out(
    engine: FakeEngine, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = f"HTTP/1.1 500 Internal Server Error\r\nContent-Length: {len(CRUN)}\r\n\r\n"
    engine.answers["POST /containers/.*/attach"] = head.encode() + CRUN
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.path}")
    with pytest.raises(SandboxUnavailable, match="crun: cgroups in hybrid mode not supported") as refused:
        choose(["container"], image="image")
    assert 'runtime = "runc"' in refused.value.install


def test_only_a_unix_socket_is_used(tmp_path: Path) -> None:
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        assert find_socket({name: "unix:///run/x.sock"}) == "/run/x.sock"
        with pytest.raises(SandboxUnavailable, match=f"{name} is tcp://10.0.0.1:2375; only a Unix socket"):
            find_socket({name: "tcp://10.0.0.1:2375"})
    assert "does not answer" in str(ContainerRunner("image", str(tmp_path / "none.sock")).problem())
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(tmp_path / "dead.sock"))
        assert "does not answer" in str(ContainerRunner("image", str(tmp_path / "dead.sock")).problem())
    usual = tmp_path / "podman"
    usual.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(usual / "podman.sock"))
        assert find_socket({"XDG_RUNTIME_DIR": str(tmp_path)}) == str(usual / "podman.sock")


def test_the_socket_of_docker_desktop_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, usual = os.access, tmp_path / ".docker" / "run" / "docker.sock"
    usual.parent.mkdir(parents=True)

    def elsewhere(path: str, mode: int) -> bool:
        """No engine of this machine may be used."""
        return path.startswith(str(tmp_path)) and real(path, mode)

    monkeypatch.setattr(os, "access", elsewhere)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(usual))
        assert find_socket({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}) == str(usual)


def test_a_container_is_used_only_if_it_is_named(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.path}")
    monkeypatch.setattr("metier.running.sandbox.bubblewrap.shutil.which", lambda _: None)
    with pytest.raises(SandboxUnavailable, match="bwrap is not installed"):
        choose()
    assert choose(["bubblewrap", "container"], image="image").name == "container"
    with pytest.raises(SandboxUnavailable, match=r"run\.sandbox is empty"):
        choose([])


def test_what_a_killed_host_left_is_removed_and_nothing_else(engine: FakeEngine, box: Box) -> None:
    dead = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, text=True, check=True).stdout.strip()
    machine, boot, name = owner().split("|")
    place, pid, _ = name.split("-")
    labels = {
        "dead": dead,
        "before-the-restart": f"{machine}|other-boot|{name}",
        "reused-number": f"{machine}|{boot}|{place}-{pid}-1",
        "alive": owner(),
        "other-machine": f"other|{boot}|{place}-1-1",
        "other-namespace": f"{machine}|{boot}|other-999999-1",
        "odd": "x",
    }
    assert [name for name, label in labels.items() if has_ended(label)] == [*labels][:3]
    for name, label in labels.items():
        engine.containers[name] = {"Labels": {LABEL: label}}
        engine.volumes[name] = {"Labels": {LABEL: label}}
    assert ContainerRunner("image", engine.path).problem() is None
    left = [*labels][3:]
    assert ([*engine.containers], [*engine.volumes]) == (left, left)


OWNER = "from metier.running.sandbox.container_engine import owner; print(owner())"


def test_an_engine_that_removes_nothing_does_not_hold_up_the_host(engine: FakeEngine, box: Box) -> None:
    engine.answers["DELETE .*"] = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
    engine.speaks = well_behaved
    before = time.monotonic()
    assert ContainerRunner("image", engine.path).run(job_in(box)).stdout == b"hello\n"
    assert time.monotonic() - before < 60
