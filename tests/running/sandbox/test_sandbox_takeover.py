"""No process of a sandbox can be taken over to get around its limits, and every kind of memory counts."""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.attack.boxes import IS_ROOT, Case, settled
from metier.limits import MIB
from metier.running.sandbox import RunLimits, SandboxUnavailable, ScriptRefused, bubblewrap, cgroup
from metier.running.sandbox.mounts import SandboxView
from metier.running.sandbox.unsandboxed import UnsandboxedRunner

pytest_plugins = ["running.sandbox.sandbox_fixtures"]


@pytest.fixture(params=["group", "watched"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With a control group, and without: most ordinary users cannot create one, so theirs are watched twice."""
    if request.param == "group" and IS_ROOT and cgroup.find_place() is not None:
        return "group"
    monkeypatch.setattr(cgroup, "find_place", lambda: None)
    return "watched"


# --- the processes of a sandbox ---


REACH = """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid == os.getpid(): continue
        for name, mode in (("mem", "r+b"), ("mem", "rb"), ("environ", "rb"), ("maps", "rb")):
            try:
                with open(f"/proc/{pid}/{name}", mode) as file: print("opened", pid, name)
            except OSError: pass
        for name in ("fd", "map_files"):
            try: print("listed", pid, os.listdir(f"/proc/{pid}/{name}"))
            except OSError: pass
        limits = (ctypes.c_ulong * 2)(1 << 40, 1 << 40)
        for resource in (6, 7, 9):
            if libc.prlimit(pid, resource, limits, None) == 0: print("raised", pid, resource)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    print("pids", pids[-1] == os.getpid(), flush=True)
    for pid in pids[:-1]: libc.kill(pid, 9)  # which can end this run and nothing else
"""


@pytest.mark.system
def test_no_other_process_can_be_read_written_or_unlimited(case: Case) -> None:
    outcome = case.run(REACH)
    assert outcome.stdout.decode().splitlines() == ["pids True"], outcome


@pytest.mark.system
@pytest.mark.parametrize(
    ("before", "after", "gap"),
    [
        (("--perms", "0111", "--file", "@init"), ("--perms", "0555", "--file", "@init"), "memory can be written"),
        (("--remount-ro", "/"), (), "/skill can be written to"),
    ],
)
def test_a_sandbox_without_a_protection_starts_nothing(
    case: Case, before: Sequence[str], after: Sequence[str], gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bubblewrap.view

    def weaker(*arguments: object) -> SandboxView:
        seen = real(*arguments)  # type: ignore[arg-type]
        words = list(seen.arguments)
        at = next(n for n in range(len(words)) if tuple(words[n : n + len(before)]) == tuple(before))
        words[at : at + len(before)] = after
        return replace(seen, arguments=tuple(words))

    monkeypatch.setattr(bubblewrap, "view", weaker)
    with pytest.raises(SandboxUnavailable) as caught:
        case.run("print('ran')")
    assert any(gap in why for why in (*caught.value.tried, str(caught.value))), caught.value.tried


# --- memory ---


LEADERLESS = """
    import ctypes, os, threading, time
    for _ in range(5):
        if os.fork() == 0:
            def hold():
                kept = bytearray(80 << 20)
                time.sleep(30)
                os._exit(0)
            threading.Thread(target=hold).start()
            ctypes.CDLL(None).pthread_exit(None)
    time.sleep(30)
"""

SOCKETS = """
    import os, socket, time
    def fill():
        kept = []
        try:
            while True:
                pair = socket.socketpair()
                kept.append(pair)
                for one in pair:
                    one.setblocking(False)
                    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                        one.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
                    try:
                        while True: one.send(b"x" * 60000)
                    except BlockingIOError: pass
        except OSError: pass
        time.sleep(30)
    for _ in range(9):
        if os.fork() == 0: fill()
    fill()
"""

FOLDERS = """
    import time
    kept = bytearray(100 << 20)
    for place in ("/tmp", "/dev/shm", "/work"):
        with open(place + "/x", "wb") as file:
            for _ in range(60): file.write(b"x" * (1 << 20))
    time.sleep(30)
"""

GROWING = """
    import mmap, os, time
    for _ in range(12):
        if os.fork() == 0:
            kept = mmap.mmap(-1, 90 << 20)
            for at in range(0, 90 << 20, 4096): kept[at] = 1
            time.sleep(30); os._exit(0)
    time.sleep(30)
"""


@pytest.mark.system
@pytest.mark.parametrize(
    "text", [LEADERLESS, SOCKETS, FOLDERS, GROWING], ids=["threads", "sockets", "folders", "pages"]
)
def test_every_kind_of_memory_counts(case: Case, text: str, memory: str) -> None:
    limits = RunLimits(seconds=25, memory_bytes=256 * MIB, processes=32)
    outcome = case.run(text, limits=limits)
    assert outcome.ended == "memory-limit", outcome
    limited = {name for name in outcome.protections if name.startswith("limit-memory")}
    assert limited == {"limit-memory" if memory == "group" else "limit-memory-per-process"}


@pytest.mark.system
def test_a_script_that_stays_within_its_memory_is_left_alone(case: Case, memory: str) -> None:
    text = """
        import socket, subprocess
        kept = bytearray(120 << 20)
        pairs = [socket.socketpair() for _ in range(40)]
        with open("x", "wb") as file: file.write(b"x" * (20 << 20))
        print(subprocess.run(["echo", "fine"], capture_output=True).stdout)
    """
    outcome = case.run(text, limits=RunLimits(memory_bytes=256 * MIB))
    assert (outcome.ended, outcome.stdout) == ("exit", b"b'fine\\n'\n"), outcome


# --- control groups ---


def test_version_2_is_set_up_as_its_rules_want(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("\n")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    written: list[tuple[str, str]] = []
    refusals = ["cgroup.subtree_control"]  # a group with processes cannot have groups with controllers

    def write(folder: str, name: str, value: str) -> None:
        if name in refusals:
            refusals.remove(name)
            raise OSError
        written.append((f"{os.path.basename(folder) if folder != str(tmp_path) else ''}/{name}", value))

    monkeypatch.setattr(cgroup, "_write", write)
    place = cgroup.Group(str(tmp_path), str(tmp_path), 2)
    cgroup._prepare(place)  # pyright: ignore[reportPrivateUsage]
    own = ("metier-host/cgroup.procs", str(os.getpid()))
    assert written == [own, ("/cgroup.subtree_control", "+memory +pids")]
    group = cgroup._create(place, 5 * MIB, 7)  # pyright: ignore[reportPrivateUsage]
    assert group is not None
    limits = {name.partition("/")[2]: value for name, value in written[2:]}
    assert limits == {"pids.max": "7", "memory.max": str(5 * MIB), "memory.oom.group": "1"}
    Path(group.memory, "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n")
    assert group.ran_out()


# --- what is reachable ---


@pytest.mark.system
def test_programs_that_talk_through_pairs_of_sockets_still_work(case: Case) -> None:
    text = """
        import asyncio, multiprocessing
        async def main():
            process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
            print((await process.communicate())[0])
        asyncio.run(main())
        with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, -2]))
    """
    outcome = case.run(text)
    assert outcome.stdout == b"b'hi\\n'\n[1, 2]\n", outcome.stderr


@pytest.mark.system
def test_nothing_in_proc_says_where_the_folders_are(case: Case) -> None:
    text = """
        import glob
        for path in glob.glob("/proc/self/*") + glob.glob("/proc/1/*"):
            try:
                with open(path, "rb") as file: print(file.read(1 << 20))
            except OSError: pass
    """
    outcome = case.run(text, project=str(case.box.project), project_writable=True)
    assert len(outcome.stdout) > 1000
    # The folder of the user has its own path. Nothing else of the host is named, such as the skill beside it.
    shown = outcome.stdout.replace(str(case.box.project).encode(), b"")
    assert shown != outcome.stdout
    assert case.box.base.name.encode() not in shown
    assert "no-host-paths" not in outcome.protections
    alone = case.run(text)
    assert case.box.base.name.encode() not in alone.stdout
    assert "no-host-paths" in alone.protections


@pytest.mark.system
def test_arguments_that_are_too_long_are_the_callers_error(case: Case, unprotected: UnsandboxedRunner) -> None:
    for runner in (case.runner, unprotected):
        for arguments in (["x" * (1 << 20)], ["x" * 1000] * 5000):
            with pytest.raises(ScriptRefused, match="standard input") as caught:
                case.box.run(runner, case.identity, "print(1)", *arguments)
            assert caught.value.reason == "arguments-too-long"


# --- the host is killed ---


HOST = """
    import os, sys
    if sys.argv[3] == "nobody":
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    mark = {"METIER_TEST_MARK": sys.argv[4]}
    job = Job(sys.argv[1], sys.argv[2], env=mark, project=sys.argv[5], project_writable=True)
    while True:
        BubblewrapRunner().run(job)
"""


@pytest.fixture
def adopting() -> Generator[None]:
    """What a killed host leaves becomes a child of this process, and so differs from what other tests have running."""
    prctl, set_child_subreaper = ctypes.CDLL(None, use_errno=True).prctl, 36
    assert prctl(set_child_subreaper, 1, 0, 0, 0) == 0
    yield
    assert prctl(set_child_subreaper, 0, 0, 0, 0) == 0


@pytest.mark.system
@pytest.mark.usefixtures("adopting")
def test_nothing_survives_a_host_that_is_killed_at_any_moment(case: Case) -> None:
    box = case.box
    script = box.script("run.py", "import os; os.fork(); os.setsid()")
    code = "import ctypes, encodings.ascii\nfrom metier.running.sandbox import Job\n"
    code += "from metier.running.sandbox.bubblewrap import BubblewrapRunner\n" + textwrap.dedent(HOST)
    line = [sys.executable, "-c", code, str(box.skill), script, case.identity, box.token, str(box.project)]
    moments = random.Random(16)
    for _ in range(10):
        with subprocess.Popen(line, env={**os.environ, "TMPDIR": str(box.base)}, process_group=0) as host:
            assert settled(lambda: bool(all_of_them()), True, 60)
            time.sleep(moments.random() * 0.08)
            os.kill(host.pid, signal.SIGKILL)
            host.wait()
        assert settled(all_of_them, []) == []


def all_of_them() -> list[int]:
    """Every process below this one that a sandbox of any kind consists of."""
    names, states, parents = dict[int, str](), dict[int, str](), dict[int, int]()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                before, _, after = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
                names[int(entry)] = before.partition("(")[2]
                states[int(entry)], parent, *_ = after.split()
                parents[int(entry)] = int(parent)
    found: list[int] = []
    for pid, name in names.items():
        above = pid
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above and name in ("bwrap", "unshare", "setpriv", "init"):
            if states[pid] != "Z":
                found.append(pid)
            elif parents[pid] == os.getpid():
                os.waitpid(pid, os.WNOHANG)
    return found
