"""The container runner at a real Podman and a real Docker: the attempts of the sandbox, the limits, what is left."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator
from dataclasses import replace

import pytest

from bench.attack.attempts import ATTEMPTS, NOT_PROMISED_IN_CONTAINERS, NOTHING, PROJECT, WORKING, Grant
from bench.attack.boxes import Box, a_box, a_victim, knowledge, listeners, settled
from bench.attack.engines import engine_at, leftovers
from bench.attack.probes import MORE
from metier.running.sandbox import Job, RunLimits, SandboxUnavailable
from metier.running.sandbox.container import ContainerRunner, Engine, _Run

pytest_plugins = ["running.sandbox.sandbox_fixtures"]

pytestmark = pytest.mark.containers

MIB = 1 << 20


@pytest.fixture
def box() -> Generator[Box]:
    with a_box(uuid.uuid4().hex) as made:
        yield made


ALL = """
    import ctypes, errno, json, os, socket, sys
    folder = os.environ["SKILL_DIR"] + "/attempts"
    dumpable = lambda value: ctypes.CDLL(None).prctl(4, value, 0, 0, 0)
    dumpable(0)  # this process is not what they attack
    with open("/tmp/known", "wb") as file: file.write(sys.stdin.buffer.read())
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(folder + "/" + name) as file: text = file.read()
        os.makedirs("/tmp/" + name)
        child = os.fork()
        if child == 0:
            dumpable(1)
            os.chdir("/tmp/" + name)
            for place, path, flags in ((0, "/tmp/known", os.O_RDONLY), (1, "said", os.O_WRONLY | os.O_CREAT)):
                opened = os.open(path, flags)
                os.dup2(opened, place)
                os.close(opened)
            sys.argv, sys.stdin = [folder + "/" + name], open(0, closefd=False)
            exec(compile(text, name, "exec"), {"__name__": "__main__"})
            sys.stdout.flush()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        with open("/tmp/" + name + "/said") as file: found[name] = [os.waitstatus_to_exitcode(status), file.read()]
    json.dump(found, sys.stdout)
"""


@pytest.mark.parametrize("grant", [NOTHING, PROJECT, WORKING], ids=["nothing", "project", "working"])
def test_no_attempt_gets_out(
    container: ContainerRunner, box: Box, grant: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METIER_SECRET", box.token)
    tried = [attempt for attempt in (*ATTEMPTS, *MORE) if attempt.also == grant and "packages" not in attempt.name]
    (box.skill / "attempts").mkdir()
    for attempt in tried:
        (box.skill / "attempts" / attempt.name).write_text(attempt.text())
    with a_victim(box.token) as victim, listeners(box) as heard:
        known = knowledge(box, heard, victim.pid).encode()
        job = Job(
            str(box.skill),
            box.script("all.py", ALL),
            stdin=known,
            limits=RunLimits(seconds=120, processes=24),
            project=str(box.project) if grant.project else None,
            cwd=str(box.project) if grant.works_there else None,
        )
        before = box.fingerprint()
        outcome = container.run(job)
        assert outcome.ended == "exit", outcome
        found = json.loads(outcome.stdout)
        assert len(found) == len(tried) > (60 if grant == NOTHING else 1)
        # The filter ends some with a signal, and then they say nothing.
        out = {name for name, (code, said) in found.items() if code != -signal.SIGSYS and json.loads(said)[0]}
        assert out == set(NOT_PROMISED_IN_CONTAINERS) & {attempt.name for attempt in tried}
        assert (box.fingerprint(), heard.heard(), victim.poll()) == (before, [], None)
        assert box.token.encode() not in outcome.stdout
    assert leftovers(container) == []


WEAKER = [
    ("--cap-drop ALL", "--cap-drop NET_RAW", "capabilities are left"),
    ("--security-opt no-new-privileges", "", "new privileges"),
    (
        "--security-opt no-new-privileges",
        "--security-opt no-new-privileges --security-opt seccomp=unconfined",
        "filter",
    ),
    ("--read-only", "", "/ or /skill can be written to"),
    ("--memory 1073741824", "--memory 2147483648", "its memory"),
    ("--pids-limit 65", "--pids-limit 66", "its processes"),
    ("--user 65532:65532", "--user 0:0", "user without rights"),
    ("--network none", "--network host", "a network is there"),
    ("size=134217728,mode=1777", "mode=1777", "its folders are too large"),
    ("--hostname skill", "--hostname skill --tmpfs /srv:mode=1777", "more than its folders"),
    ("--hostname skill", "--hostname skill --pid host", "other processes"),
    ("--hostname skill", "--hostname skill --device /dev/kmsg", "devices"),
]


@pytest.mark.parametrize(("flag", "weaker", "gap"), WEAKER)
def test_a_script_does_not_start_without_a_protection(
    container: ContainerRunner, box: Box, flag: str, weaker: str, gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = _Run.__init__

    def changed(self: _Run, engine: Engine, name: str, line: list[str]) -> None:
        flags = " ".join(line[:-5])  # then come the image, its arguments and our program
        assert flag in flags
        other = flags.replace(flag, weaker)
        if "--memory " in weaker:
            other = other.replace("--memory-swap 1073741824", "--memory-swap 2147483648")
        started(self, engine, name, [*other.split(), *line[-5:]])

    monkeypatch.setattr(_Run, "__init__", changed)
    with pytest.raises(SandboxUnavailable) as refused:
        box.run(container, "self", "print('ran')")
    assert gap in " ".join(refused.value.tried), refused.value


MEMORY = """
    import os, time
    for _ in range(8):
        if os.fork() == 0:
            held = bytearray(40 << 20)
            time.sleep(60)
    time.sleep(60)
"""
BOMB = """
    import os
    with open("kept", "w") as file: file.write("before the bomb")
    print("begun", flush=True)
    while True:
        try: os.fork()
        except OSError: pass
"""
FILES = """
    number = 0
    while True:
        open(f"/tmp/f{number}", "w").close()
        number += 1
"""
FILL = """
    import os
    written = {}
    for place in ("/work", "/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/mqueue", "/skill", "/", "/etc", "/sys"):
        try:
            with open(place + "/fill", "wb", 0) as file:
                while True: written[place] = written.get(place, 0) + file.write(bytes(65536))
        except OSError: pass
    print(sorted(place for place, size in written.items() if size > 4 << 20), max(written.values()) <= 3 << 20)
"""


def test_the_limits_hold_and_nothing_is_left(container: ContainerRunner, box: Box) -> None:
    small = RunLimits(
        seconds=30, memory_bytes=160 * MIB, work_bytes=4 * MIB, file_bytes=3 * MIB, processes=16, files=10
    )
    assert box.run(container, "self", MEMORY, limits=small).ended == "memory-limit"
    assert box.run(container, "self", FILES, limits=small).ended == "files-limit"
    bomb = box.run(container, "self", BOMB, limits=replace(small, seconds=2))
    assert (bomb.ended, bomb.stdout) == ("timeout", b"begun\n")
    assert [file.data for file in bomb.files] == [b"before the bomb"], "it was ended from inside, in good order"
    assert box.run(container, "self", FILL, limits=small).stdout == b"[] True\n"
    assert settled(box.survivors, []) == []
    assert leftovers(container) == []


FIRST = """
    import os, signal
    project = os.environ["PROJECT_DIR"]
    def attempt(act):
        try: return act()
        except OSError as error: return type(error).__name__
    print(attempt(lambda: open("/proc/1/mem", "rb").read(1)))
    print(attempt(lambda: open("/proc/1/environ", "rb").read()))
    print(attempt(lambda: os.listdir("/proc/1/fd")))
    os.kill(1, signal.SIGKILL)
    os.kill(1, signal.SIGSTOP)
    print(open(project + "/notes.txt").read().split()[0])
    print(attempt(lambda: open(project + "/notes.txt", "w")) in ("OSError", "PermissionError"))
    print(os.path.lexists(project + "/link"), os.path.exists(project + "/link"))
    print(os.path.exists(project + "/pipe"), os.stat(project + "/again.txt").st_nlink)
    for path in ("/etc/hosts", "/etc/resolv.conf"):
        try: print(open(path).read(), end="")
        except FileNotFoundError: pass
"""


def test_the_first_process_is_out_of_reach_and_the_project_is_a_copy(container: ContainerRunner, box: Box) -> None:
    (box.project / "link").symlink_to(box.secret)
    os.mkfifo(box.project / "pipe")
    os.link(box.project / "notes.txt", box.project / "again.txt")
    outcome = box.run(container, "self", FIRST, project=str(box.project))
    said = ["PermissionError", "PermissionError", "PermissionError", "project/notes.txt", "True"]
    assert outcome.stdout.decode().split("\n") == [*said, "True False", "False 1", ""], outcome


HERE = """
import os
print(sorted(os.listdir(".")), open("data.csv").read(), os.path.exists("../notes.txt"))
try:
    open("made", "w")
except OSError as error:
    print(error.strerror)
open(os.environ["WORK_DIR"] + "/made", "w").write("kept")
raise SystemExit(3)
"""


def test_a_script_runs_in_a_copy_of_the_folder_with_the_files_it_is_given(container: ContainerRunner, box: Box) -> None:
    below = box.project / "below"
    below.mkdir()
    (below / "data.csv").write_text("of the project")
    (below / "own.txt").write_text("own")
    outcome = box.run(container, "here", HERE, project=str(box.project), cwd=str(below), files={"data.csv": b"given"})
    assert outcome.exit_code == 3, outcome.stderr.decode()
    assert outcome.stdout.decode().splitlines() == ["['data.csv', 'own.txt'] given True", "Read-only file system"]
    assert [file.path for file in outcome.files] == ["made"]
    assert any("WORK_DIR can" in note for note in outcome.notes)
    alone = box.run(container, "here", "print(open('data.csv').read())", files={"data.csv": b"given"})
    assert alone.stdout == b"given\n", alone
    assert (below / "data.csv").read_text() == "of the project"


HOST = """
import sys
from metier.files import process
from metier.running.sandbox import Job
from metier.running.sandbox.container import ContainerRunner
print(process.current(), flush=True)
job = Job(sys.argv[1], sys.argv[2], env={"METIER_TEST_MARK": sys.argv[3]})
ContainerRunner(sys.argv[4], sys.argv[5]).run(job, lambda stream, data: print(data.decode(), end="", flush=True))
"""


def test_a_killed_host_leaves_no_process_and_the_next_one_removes_the_rest(
    container: ContainerRunner, box: Box
) -> None:
    text = "import os, time; os.fork() or os.setsid(); print('up', flush=True); time.sleep(60)"
    engine = engine_at(str(container.socket))
    arguments = [str(box.skill), box.script("run.py", text), box.token, container.image, str(container.socket)]
    with subprocess.Popen([sys.executable, "-c", HOST, *arguments], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        label = host.stdout.readline().decode().strip()
        assert host.stdout.readline() == b"up\n"
        assert len(box.survivors()) == 2
        host.kill()
        host.wait()
    assert settled(box.survivors, []) == []
    # The engine removes the container by itself. Another process of this test run may have removed what has the files.
    assert settled(lambda: [name for name in leftovers(container, label) if not name.endswith("-files")], []) == []
    engine.sweep()
    assert leftovers(container, label) == []
