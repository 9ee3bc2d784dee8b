"""The contract of `Runner`, tested with every runner that works here."""

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Unpack

import pytest

import parts
from metier.sandbox import (
    Job,
    Outcome,
    RunLimits,
    Runner,
    SandboxUnavailable,
    ScriptRefused,
    Stream,
    choose,
    install_hint,
)
from metier.sandbox.bubblewrap import BubblewrapRunner
from metier.sandbox.fake import FakeRunner
from metier.sandbox.unsandboxed import UnsandboxedRunner
from parts import needs
from sandbox.boxes import IDENTITIES, Box, JobOptions, a_box, as_user, settled

pytest_plugins = ["sandbox.sandbox_fixtures"]


@dataclass
class Case:
    """A runner, the user that uses it, and a box for its scripts."""

    runner: Runner
    identity: str
    box: Box

    def run(self, text: str, *argv: str, name: str = "run.py", **options: Unpack[JobOptions]) -> Outcome:
        return self.box.run(self.runner, self.identity, text, *argv, name=name, **options)


REAL: dict[str, Callable[[], Runner]] = {
    "bubblewrap": BubblewrapRunner,
    "none": UnsandboxedRunner,
}
CASES = [(name, identity) for name in REAL for identity in IDENTITIES]
# The rights on the socket of an engine decide who may use it, so that there is only one kind of user.
CASES.append(("container", IDENTITIES[0]))


@pytest.fixture(params=[pytest.param(case, id="-".join(case)) for case in CASES])
def case(request: pytest.FixtureRequest) -> Generator[Case]:
    name, identity = request.param
    runner: Runner = request.getfixturevalue("container") if name == "container" else REAL[name]()
    problem = as_user(identity, runner.problem)
    if problem is not None:
        parts.missing("bwrap", f"{identity}: {problem}")
    with a_box() as box:
        yield Case(runner, identity, box)


def test_a_script_gets_its_arguments_one_by_one_and_its_input(case: Case) -> None:
    text = "import sys; print(sys.argv[1:], sys.stdin.buffer.read())"
    outcome = case.run(text, "a b", "$HOME;`id`", "", "ü", stdin=b"\x00\xff in")
    assert outcome.stdout.decode() == "['a b', '$HOME;`id`', '', 'ü'] b'\\x00\\xff in'\n"
    assert (outcome.exit_code, outcome.ended, outcome.stderr) == (0, "exit", b"")


def test_without_input_the_end_is_there_at_once(case: Case) -> None:
    assert case.run("import sys; print(repr(sys.stdin.read()))").stdout == b"''\n"


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


def test_output_comes_in_order_while_the_script_runs(case: Case) -> None:
    text = """
        import sys, time
        for number in range(3):
            print(number, flush=True); print("e", number, file=sys.stderr, flush=True); time.sleep(0.05)
    """
    job = case.box.job(case.box.script("run.py", text))

    def streamed() -> tuple[list[tuple[Stream, bytes]], Outcome]:
        pieces: list[tuple[Stream, bytes]] = []
        outcome = case.runner.run(job, lambda stream, data: pieces.append((stream, data)))
        return pieces, outcome

    pieces, outcome = as_user(case.identity, streamed)
    assert b"".join(data for stream, data in pieces if stream == "stdout") == outcome.stdout == b"0\n1\n2\n"
    assert b"".join(data for stream, data in pieces if stream == "stderr") == outcome.stderr


def test_output_arrives_while_the_script_runs(case: Case) -> None:
    text = """
        import time
        print("first", flush=True); time.sleep(50); print("second")
    """
    job = case.box.job(case.box.script("run.py", text))

    def first() -> bytes:
        pieces: list[bytes] = []

        def enough(stream: Stream, data: bytes) -> None:
            pieces.append(data)
            raise EOFError  # which ends the script

        with pytest.raises(EOFError):
            case.runner.run(job, enough)
        return b"".join(pieces)

    assert as_user(case.identity, first) == b"first\n"


def test_a_flood_of_output_ends_the_run_and_is_cut_at_the_limit(case: Case) -> None:
    job = case.box.job(
        case.box.script("run.py", "import sys\nwhile True: sys.stdout.write('x' * 65536); sys.stderr.write('y' * 10)"),
        limits=RunLimits(seconds=30, output_bytes=300_000),
    )

    def flooded() -> tuple[int, Outcome]:
        passed: list[int] = []
        outcome = case.runner.run(job, lambda stream, data: passed.append(len(data)))
        return sum(passed), outcome

    passed, outcome = as_user(case.identity, flooded)
    assert outcome.ended == "output-limit"
    assert len(outcome.stdout) + len(outcome.stderr) == passed == 300_000
    assert 300_000 < outcome.stdout_total + outcome.stderr_total < 2_000_000
    assert case.box.survivors() == []


def test_exactly_the_limit_is_no_flood(case: Case) -> None:
    outcome = case.run("import sys; sys.stdout.write('x' * 1000)", limits=RunLimits(output_bytes=1000))
    assert (outcome.ended, len(outcome.stdout)) == ("exit", 1000)


def test_a_slow_consumer_slows_the_script_down_and_the_clock_goes_on(case: Case) -> None:
    job = case.box.job(
        case.box.script("run.py", "while True: print('x' * 1000)"),
        limits=RunLimits(seconds=1, output_bytes=1 << 30),
    )
    outcome = as_user(case.identity, lambda: case.runner.run(job, lambda stream, data: time.sleep(0.1)))
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
    assert settled(case.box.survivors, []) == []


def test_what_the_consumer_raises_ends_the_run(case: Case) -> None:
    job = case.box.job(case.box.script("run.py", "import time; print('x', flush=True); time.sleep(60)"))

    def refuse(stream: Stream, data: bytes) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        as_user(case.identity, lambda: case.runner.run(job, refuse))
    assert settled(case.box.survivors, []) == []


def test_asyncio_runs_several_at_once_and_passes_output_in_its_own_thread(case: Case) -> None:
    job = case.box.job(case.box.script("run.py", "import time; print('x', flush=True); time.sleep(0.3)"))

    async def several() -> tuple[set[bool], list[int], float]:
        threads: set[bool] = set()
        started = time.monotonic()

        def note(stream: Stream, data: bytes) -> None:
            threads.add(threading.current_thread() is threading.main_thread())

        outcomes = await asyncio.gather(*(case.runner.arun(job, note) for _ in range(3)))
        return threads, [outcome.exit_code for outcome in outcomes], time.monotonic() - started

    threads, codes, _ = as_user(case.identity, lambda: asyncio.run(several()))
    assert (threads, codes) == ({True}, [0, 0, 0])


def test_the_start_is_reported_once_before_output_and_in_the_thread_of_the_caller(case: Case) -> None:
    script = case.box.script("run.py", "print('x')")

    def observed() -> list[list[tuple[str, bool]]]:
        seen: list[tuple[str, bool]] = []

        def note(what: str) -> None:
            seen.append((what, threading.current_thread() is threading.main_thread()))

        job = case.box.job(script, on_started=lambda protections: note("started"))
        case.runner.run(job, lambda stream, data: note(stream))
        by_run = list(seen)
        seen.clear()
        asyncio.run(case.runner.arun(job, lambda stream, data: note(stream)))
        return [by_run, seen]

    assert as_user(case.identity, observed) == [[("started", True), ("stdout", True)]] * 2


def test_what_the_report_of_the_start_raises_ends_the_run(case: Case) -> None:
    script = case.box.script("run.py", "import time; time.sleep(60)")

    def refuse(protections: tuple[str, ...]) -> None:
        raise RuntimeError("not recorded")

    job = case.box.job(script, on_started=refuse)
    for run in (case.runner.run, lambda job: asyncio.run(case.runner.arun(job))):
        with pytest.raises(RuntimeError, match="not recorded"):
            as_user(case.identity, partial(run, job))
    assert settled(case.box.survivors, []) == []


def test_cancelling_a_task_ends_the_script_first(case: Case) -> None:
    job = case.box.job(case.box.script("run.py", "import time; print('x', flush=True); time.sleep(60)"))

    async def cancelled() -> bool:
        begun = asyncio.Event()
        task = asyncio.create_task(case.runner.arun(job, lambda stream, data: begun.set()))
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False

    assert as_user(case.identity, lambda: asyncio.run(cancelled()))
    assert settled(case.box.survivors, []) == []


@pytest.mark.parametrize("script", ["../secret.txt", "/etc/passwd", "scripts/none.py", "link", "scripts", "data.txt"])
def test_what_is_no_script_of_the_skill_is_refused(case: Case, script: str) -> None:
    with pytest.raises(ScriptRefused):
        as_user(case.identity, lambda: case.runner.run(case.box.job(script)))


def test_shell_scripts(case: Case) -> None:
    assert case.run('#!/bin/sh\necho "$1-$0"', "x", name="s").stdout.startswith(b"x-")
    assert case.run("a=(1 2); echo ${a[1]}", name="s.sh").stdout == b"2\n"


@needs("node")
def test_node_runs_where_it_is(case: Case) -> None:
    if case.runner.name == "container":
        pytest.skip("the image of the tests has no node")
    if not any(os.access(f"{folder}/node", os.X_OK) for folder in ("/usr/bin", "/usr/local/bin")):
        pytest.skip("node is not installed here")
    assert case.run("console.log(1 + 1, process.argv[2])", "x", name="s.mjs").stdout == b"2 x\n"


# --- FakeRunner and choose ---


def test_the_fake_answers_as_it_was_told_and_remembers() -> None:
    fake = FakeRunner(
        {"a.py": Outcome(exit_code=3, ended="exit", duration_ms=5, stdout=b"out", stderr=b"err")},
        default=ScriptRefused("x", "r", "m"),
    )
    pieces: list[tuple[str, bytes]] = []
    outcome = fake.run(Job("/s", "a.py", ["1"]), lambda stream, data: pieces.append((stream, data)))
    assert (outcome.exit_code, outcome.stdout_total, pieces) == (3, 3, [("stdout", b"out"), ("stderr", b"err")])
    cut = asyncio.run(fake.arun(Job("/s", "a.py", limits=RunLimits(output_bytes=4))))
    assert (cut.ended, cut.stdout, cut.stderr, cut.stderr_total) == ("output-limit", b"out", b"e", 3)
    with pytest.raises(ScriptRefused):
        fake.run(Job("/s", "b.py"))
    assert [job.script for job in fake.jobs] == ["a.py", "a.py", "b.py"]
    assert (
        FakeRunner(default=lambda job: Outcome(exit_code=len(job.argv), ended="exit", duration_ms=0))
        .run(Job("/", "s", ["1", "2"]))
        .exit_code
        == 2
    )


def test_the_choice_never_falls_back_to_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable) as caught:
        choose()
    assert caught.value.exit_code == 4
    assert any("bwrap is not installed" in why for why in caught.value.tried)
    assert caught.value.install == install_hint() != ""
    assert choose(["bubblewrap", "none"]).name == "none"
    with pytest.raises(ValueError, match="unknown runner"):
        choose(["docker"])


def test_a_sandbox_that_cannot_be_built_gets_another_hint_than_one_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = tmp_path / "bwrap"
    failing.write_text("#!/bin/sh\ncase $1 in --help) echo --size;; *) echo 'no namespaces' >&2; exit 1;; esac\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SandboxUnavailable) as caught:
        choose()
    assert caught.value.tried == ("bubblewrap: the sandbox could not be built: no namespaces",)
    assert "create namespaces" in caught.value.install
    assert install_hint() not in caught.value.install


def test_a_bwrap_that_does_not_work_is_a_problem_and_never_a_run(tmp_path: Path) -> None:
    liar = tmp_path / "bwrap"
    liar.write_text("#!/bin/sh\ncase $1 in --help) echo --size;; *) echo ready; cat;; esac\n")
    liar.chmod(0o755)
    assert "cannot be reached" in str(BubblewrapRunner(str(liar)).problem())
    liar.write_text("#!/bin/sh\necho 'usage: none'\n")
    assert "too old" in str(BubblewrapRunner(str(tmp_path / "../" / tmp_path.name / "bwrap")).problem())
    assert "cannot be run" in str(BubblewrapRunner("/nowhere/bwrap").problem())


def test_an_argument_with_a_nul_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        Job("/s", "a.py", ["a\0b"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": {"A=B": "c"}}, "variable name"),
        ({"env": {"A": "\0"}}, "NUL"),
        ({"project_writable": True}, "a project"),
    ],
)
def test_a_job_with_contradictory_options_is_refused(options: JobOptions, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Job("/s", "a.py", **options)
