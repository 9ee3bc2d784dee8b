"""The contract of `Runner`, tested with every runner that works here."""

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import parts
from bench.attack.boxes import IS_ROOT, Box, Case, a_box, settled
from bench.attack.engines import ENGINES
from metier.errors import ConfigError
from metier.running.sandbox import Job, RunLimits, Runner, SandboxUnavailable, ScriptRefused, Stream
from metier.running.sandbox.bubblewrap import BubblewrapRunner, install_hint
from metier.running.sandbox.container import ContainerRunner
from metier.running.sandbox.runners import choose
from metier.running.sandbox.unsandboxed import UnsandboxedRunner

pytest_plugins = ["running.sandbox.sandbox_fixtures"]

pytestmark = pytest.mark.system


REAL: dict[str, Callable[[], Runner]] = {
    "bubblewrap": BubblewrapRunner,
    "none": UnsandboxedRunner,
}


@pytest.fixture(params=[*REAL, *ENGINES])
def case(
    request: pytest.FixtureRequest,
    engines: Callable[[str], ContainerRunner],
) -> Generator[Case]:
    name = request.param
    runner = REAL[name]() if name in REAL else engines(name)
    problem = runner.problem()
    if problem is not None:
        parts.missing("bwrap" if name in REAL else name, problem)
    with a_box() as box:
        yield Case(runner, "self", box)
        assert settled(box.survivors, []) == [], "every process has ended with its run"


def test_a_script_gets_its_arguments_one_by_one_and_its_input(case: Case) -> None:
    text = "import sys; print(sys.argv[1:], sys.stdin.buffer.read())"
    outcome = case.run(text, "a b", "$HOME;`id`", "", "ü", stdin=b"\x00\xff in")
    assert outcome.stdout.decode() == "['a b', '$HOME;`id`', '', 'ü'] b'\\x00\\xff in'\n"
    assert (outcome.exit_code, outcome.ended, outcome.stderr) == (0, "exit", b"")
    assert case.run(text).stdout == b"[] b''\n", "without input, the end is there at once"


def test_a_large_input_reaches_a_slow_reader_and_one_that_does_not_read(case: Case) -> None:
    data = bytes(range(256)) * 8192
    text = "import hashlib, sys, time; time.sleep(0.1); print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    assert case.run(text, stdin=data).stdout.decode().strip() == hashlib.sha256(data).hexdigest()
    assert case.run("print('done')", stdin=data).stdout == b"done\n"


def test_a_failure_is_an_outcome(case: Case) -> None:
    outcome = case.run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert (outcome.exit_code, outcome.ended, outcome.stdout, outcome.stderr) == (7, "exit", b"out\n", b"err\n")
    assert case.run("import os; os.kill(os.getpid(), 15)").exit_code == 128 + 15


def test_the_environment_is_the_fixed_one_and_the_granted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "x")
    outcome = case.run("import os; print(sorted(os.environ))", env={"GRANTED": "y"})
    seen = set(eval(outcome.stdout))
    assert "SECRET_KEY" not in seen
    set_by_programs = {"LC_CTYPE", "PWD", "OLDPWD", "SHLVL", "_", "METIER_TEST_MARK"}
    assert seen - set_by_programs == {"GRANTED", "PATH", "HOME", "TMPDIR", "LANG", "SKILL_DIR", "WORK_DIR"}


def test_the_work_folder_is_empty_at_first_and_its_files_come_back(case: Case) -> None:
    text = """
        import os
        print(os.listdir("."), os.getcwd() == os.path.realpath(os.environ["WORK_DIR"]))
        os.makedirs("b/c")
        for path in ("b/c/two.bin", "a.txt"):
            with open(path, "wb") as file: file.write(path.encode() * 3)
        os.symlink("/etc/passwd", "link"); os.symlink("/", "folder"); os.mkfifo("pipe"); os.mkdir("empty")
        with open("closed", "w") as file: file.write("x")
        os.chmod("closed", 0); os.chmod("b/c", 0); os.chmod("b", 0o400)
        if os.stat(".").st_uid == os.getuid(): os.chmod(".", 0)
    """
    for _ in range(2):
        outcome = case.run(text)
        assert outcome.stdout == b"[] True\n", outcome.stderr
        assert [(file.path, file.data) for file in outcome.files] == [
            ("a.txt", b"a.txt" * 3),
            ("b/c/two.bin", b"b/c/two.bin" * 3),
            ("closed", b"x"),
        ]
        assert outcome.left_out == ("folder: a symbolic link", "link: a symbolic link", "pipe: not a regular file")


def test_the_files_that_come_back_are_within_the_limits(case: Case) -> None:
    text = """
        import os
        for number in range(6):
            with open(f"f{number}", "w") as file: file.write("x" * 1000)
        with open("sparse", "w") as file: file.truncate(200_000)
        os.makedirs("d/" * 40)
    """
    limits = RunLimits(files=4, file_bytes=100 * 1024 * 1024, work_bytes=102_400)
    outcome = case.run(text, limits=limits)
    assert [file.path for file in outcome.files] == ["f0", "f1", "f2", "f3"]
    assert any("more than 4 files" in why for why in outcome.left_out)
    outcome = case.run(text, limits=RunLimits(work_bytes=102_400))
    assert [file.path for file in outcome.files] == [f"f{number}" for number in range(6)]
    assert any(why.startswith("sparse: too large") for why in outcome.left_out)
    assert any("folders deep" in why for why in outcome.left_out)


def test_output_arrives_while_the_script_runs_and_what_its_consumer_raises_ends_the_run(case: Case) -> None:
    text = """
        import sys, time
        for number in range(3):
            print(number, flush=True); print("e", number, file=sys.stderr, flush=True); time.sleep(0.05)
        if sys.argv[1:]: time.sleep(50)
    """
    script, pieces = case.box.script("run.py", text), list[tuple[Stream, bytes]]()
    outcome = case.runner.run(case.box.job(script), lambda stream, data: pieces.append((stream, data)))
    assert b"".join(data for stream, data in pieces if stream == "stdout") == outcome.stdout == b"0\n1\n2\n"
    assert b"".join(data for stream, data in pieces if stream == "stderr") == outcome.stderr

    def refuse(*_: object) -> None:
        raise EOFError  # which ends the script

    with pytest.raises(EOFError):
        case.runner.run(case.box.job(script, "slowly"), refuse)
    with pytest.raises(EOFError):
        case.runner.run(case.box.job(script, "slowly", on_started=refuse))


def test_a_flood_of_output_ends_the_run_and_is_cut_at_the_limit(case: Case) -> None:
    text = "import sys\nwhile True: sys.stdout.write('x' * 65536); sys.stderr.write('y' * 10)"
    job = case.box.job(case.box.script("run.py", text), limits=RunLimits(seconds=30, output_bytes=300_000))
    passed: list[int] = []
    outcome = case.runner.run(job, lambda stream, data: passed.append(len(data)))
    assert outcome.ended == "output-limit"
    assert len(outcome.stdout) + len(outcome.stderr) == sum(passed) == 300_000
    assert 300_000 < outcome.stdout_total + outcome.stderr_total < 2_000_000
    outcome = case.run("import sys; sys.stdout.write('x' * 1000)", limits=RunLimits(output_bytes=1000))
    assert (outcome.ended, len(outcome.stdout)) == ("exit", 1000), "exactly the limit is no flood"


def test_a_slow_consumer_slows_the_script_down_and_the_clock_goes_on(case: Case) -> None:
    limits = RunLimits(seconds=1, output_bytes=1 << 30)
    job = case.box.job(case.box.script("run.py", "while True: print('x' * 1000)"), limits=limits)
    outcome = case.runner.run(job, lambda stream, data: time.sleep(0.1))
    assert outcome.ended == "timeout"
    assert outcome.stdout_total < 5_000_000, "output that is not consumed is not read"


def test_the_whole_tree_ends_at_the_time_limit(case: Case) -> None:
    text = """
        import os, signal, subprocess, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        children = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
        print("started", flush=True)
        os.close(1); os.close(2)
        time.sleep(600)
    """
    started = time.monotonic()
    outcome = case.run(text, limits=RunLimits(seconds=3))
    assert (outcome.ended, outcome.stdout) == ("timeout", b"started\n")
    assert time.monotonic() - started < 300


def test_several_threads_run_scripts_at_once_and_each_hears_of_its_own(case: Case) -> None:
    script = case.box.script("run.py", "import time; print('x', flush=True); time.sleep(0.3)")

    def one(number: int) -> tuple[int, list[str], set[int]]:
        seen, threads = list[str](), set[int]()

        def note(what: str) -> None:
            seen.append(what)
            threads.add(threading.get_ident())

        job = case.box.job(script, on_started=lambda protections: note("started"))
        outcome = case.runner.run(job, lambda stream, data: note(stream))
        return outcome.exit_code, seen, threads ^ {threading.get_ident()}

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, range(3))) == [(0, ["started", "stdout"], set())] * 3


def test_the_stop_event_ends_the_script_before_the_run_returns(case: Case) -> None:
    script, stop = case.box.script("run.py", "import time; print('x', flush=True); time.sleep(60)"), threading.Event()
    outcome = case.runner.run(case.box.job(script, stop=stop), lambda stream, data: stop.set())
    assert (outcome.ended, outcome.stdout, outcome.exit_code) == ("killed", b"x\n", 137)


def test_what_is_no_script_of_the_skill_is_refused(case: Case) -> None:
    for script in ("../secret.txt", "/etc/passwd", "scripts/none.py", "link", "scripts", "data.txt"):
        with pytest.raises(ScriptRefused):
            case.runner.run(case.box.job(script))


def test_shell_scripts(case: Case) -> None:
    assert case.run('#!/bin/sh\necho "$1-$0"', "x", name="s").stdout.startswith(b"x-")
    assert case.run("a=(1 2); echo ${a[1]}", name="s.sh").stdout == b"2\n"


# --- FakeRunner and choose ---


def test_the_choice_never_falls_back_to_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "bwrap"
    failing.write_text("#!/bin/sh\ncase $1 in --help) echo --size;; *) echo 'no namespaces' >&2; exit 1;; esac\n")
    failing.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        with pytest.raises(SandboxUnavailable) as caught:
            choose()
        assert caught.value.tried == ("bubblewrap: the sandbox could not be built: no namespaces",)
        assert "create namespaces" in caught.value.install
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable) as caught:
        choose()
    assert caught.value.exit_code == 4
    assert any("bwrap is not installed" in why for why in caught.value.tried)
    assert caught.value.install == install_hint() != ""
    assert choose(["bubblewrap", "none"]).name == "none"
    with pytest.raises(ConfigError, match="unknown runner"):
        choose(["containers"])


BROKEN = {
    "no process in it": ("echo --size", "echo ready; exec cat", "the sandbox cannot be reached from outside"),
    "no protection": ("echo --size", "sleep 60 & echo ready; wait", "the sandbox"),
    "too old": ("echo none", "exit 1", "too old"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bwrap_that_does_not_work_is_a_problem_and_never_a_run(box: Box, kind: str) -> None:
    helps, does, says = BROKEN[kind]
    text = f"#!/bin/sh\ncase $1 in --help) {helps};; *) {does};; esac\n"
    runner = BubblewrapRunner(str(box.skill / box.script("bwrap", text)))
    assert says in str(runner.problem())
    with pytest.raises(SandboxUnavailable):
        box.run(runner, "self", f"open({str(box.base / 'ran')!r}, 'w')")
    assert not (box.base / "ran").exists()


JOBS: list[tuple[dict[str, Any], str]] = [
    ({"argv": ["a\0b"]}, "NUL"),
    ({"env": {"A=B": "c"}}, "variable name"),
    ({"env": {"A": "\0"}}, "NUL"),
    ({"project_writable": True}, "a project"),
    ({"cwd": "/a"}, "cwd"),
    ({"cwd": "/ab", "project": "/a"}, "cwd"),
    ({"files": {"../x": b""}}, "name of a file"),
    ({"files": {"..": b""}}, "name of a file"),
    ({"files": {"a\0b": b""}}, "NUL"),
]


def test_a_job_with_contradictory_options_or_paths_that_lead_elsewhere_is_refused() -> None:
    for options, message in JOBS:
        with pytest.raises(ValueError, match=message):
            Job("/s", "a.py", **options)


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a folder to another user")
def test_a_folder_is_given_to_the_script_only_if_it_is_in_a_sandbox(box: Box) -> None:
    root = box.base / "root"
    for place in ("work", "tmp", "dev/shm", "proc"):
        (root / place).mkdir(parents=True)
    script = f"""
        #!{sys.executable}
        import os, sys, time
        if "--help" in sys.argv:
            sys.exit("--size")
        if os.fork() == 0:
            os.chroot({str(root)!r})
            print("ready", flush=True)
            time.sleep(60)
        os.wait()
    """
    runner = BubblewrapRunner(str(box.skill / box.script("bwrap", script)))
    assert "cannot be reached" in str(runner.problem())
    assert (root / "work").stat().st_uid == 0
