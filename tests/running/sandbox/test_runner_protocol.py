"""A runner that is written against the protocol alone works with sessions and with the wrappers of the package."""

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metier.files.digests import digest_of
from metier.running.sandbox import (
    Job,
    OnOutput,
    Outcome,
    Runner,
    SandboxUnavailable,
    ScriptRefused,
    Stream,
    WrittenFile,
    stopped_by,
)
from metier.running.sandbox.runners import BoundedRunner
from metier.session.session import Session
from worlds import World

ALLOW = {"allow": [{"tool": "skill_run"}]}
SCRIPT = """\
#!/bin/sh
echo "out $1"
echo "err $1" >&2
printf done > "$WORK_DIR/made.txt"
exit 3
"""
SLOW = "#!/bin/sh\necho begun\nexec sleep 60\n"


class ScratchRunner:
    """The minimum that the contract requires. It has no sandbox, so `protections` names only its time limit."""

    name = "scratch"

    def __init__(self, problem: str | None = None) -> None:
        self._problem = problem

    def problem(self) -> str | None:
        return self._problem

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        program = self._check(job)
        with tempfile.TemporaryDirectory() as work:
            process = subprocess.Popen(
                [program, *job.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_variables(job, work),
            )
            over = threading.Event()
            watching = threading.Thread(target=_end_when_stopped, args=(process, job, over))
            watching.start()
            try:
                job.started(("limit-time",))
                stdout, stderr = process.communicate(job.stdin, timeout=job.limits.seconds)
                return _outcome(job, process.returncode, stdout, stderr, work, on_output)
            finally:
                over.set()
                watching.join()
                process.kill()
                process.wait()

    def _check(self, job: Job) -> str:
        if self._problem is not None:
            raise SandboxUnavailable(self._problem)
        if not job.script.endswith(".sh"):
            raise ScriptRefused(job.script, "unknown-interpreter", "only .sh files can be run")
        return os.path.join(job.skill_dir, job.script)


def _variables(job: Job, work: str) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "SKILL_DIR": job.skill_dir, "WORK_DIR": work, **job.env}


def _end_when_stopped(process: subprocess.Popen[bytes], job: Job, over: threading.Event) -> None:
    while not over.wait(0.01):
        if job.stop is not None and job.stop.is_set():
            process.kill()


def _outcome(job: Job, code: int, stdout: bytes, stderr: bytes, work: str, on_output: OnOutput | None) -> Outcome:
    pieces: tuple[tuple[Stream, bytes], ...] = (("stdout", stdout), ("stderr", stderr))
    for stream, data in pieces:
        if data and on_output is not None:
            on_output(stream, data)
    found = [(path.name, path.read_bytes()) for path in sorted(Path(work).iterdir())]
    files = tuple(WrittenFile(name, len(data), digest_of(data), data) for name, data in found)
    return Outcome(
        exit_code=code,
        ended="killed" if job.stop is not None and job.stop.is_set() else "exit",
        duration_ms=5,
        stdout=stdout,
        stderr=stderr,
        files=files,
        protections=("limit-time",),
    )


def opened(world: World, runner: Runner) -> Session:
    files = {"scripts/say.sh": SCRIPT, "scripts/slow.sh": SLOW, "scripts/say.py": "print(1)\n"}
    world.skill(".agents/skills/probe", files=files)
    return world.discover().session(runner=runner, policy=ALLOW)


def frames(session: Session) -> list[tuple[str, str]]:
    """The frames of scripts: their type, and the field that matters here."""
    keys = {
        "tool_started": "sandbox",
        "tool_stdout": "text",
        "tool_stderr": "text",
        "tool_failed": "reason",
        "tool_ended": "ended",
    }
    return [(frame["type"], frame[keys[frame["type"]]]) for frame in session.events if frame["type"] in keys]


@pytest.mark.system
def test_a_session_needs_nothing_of_a_runner_but_the_protocol(world: World) -> None:
    assert ScratchRunner.__mro__ == (ScratchRunner, object)
    session = opened(world, ScratchRunner())
    result = session.run("probe", "scripts/say.sh", ["one"])
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out one\n", "err one\n")
    assert [(one.path, one.digest, one.size) for one in result.artifacts] == [("made.txt", digest_of(b"done"), 4)]
    assert result.protections == ("limit-time",)
    assert frames(session) == [
        ("tool_started", "scratch"),
        ("tool_stdout", "out one\n"),
        ("tool_stderr", "err one\n"),
        ("tool_ended", "exit"),
    ]


def test_the_tool_for_scripts_is_offered_only_without_a_problem(world: World) -> None:
    assert "skill_run" in [tool.name for tool in opened(world, ScratchRunner()).tools()]
    assert "skill_run" not in [tool.name for tool in opened(world, ScratchRunner("it is switched off")).tools()]


def test_what_a_runner_refuses_reaches_the_caller_and_the_record(world: World) -> None:
    session = opened(world, ScratchRunner())
    with pytest.raises(ScriptRefused, match=r"only \.sh files"):
        session.run("probe", "scripts/say.py")
    assert frames(session) == [("tool_failed", "unknown-interpreter")]
    session = opened(world, ScratchRunner("it is switched off"))
    with pytest.raises(SandboxUnavailable, match="switched off"):
        session.run("probe", "scripts/say.sh")
    assert frames(session) == [("tool_failed", "sandbox")]


@pytest.mark.system
def test_sessions_in_several_threads_and_loops_share_one_runner(world: World) -> None:
    runner = ScratchRunner()
    sessions = [opened(world, runner) for _ in range(8)]

    def call(number: int) -> str:
        if number % 2:
            return asyncio.run(sessions[number].arun("probe", "scripts/say.sh", [str(number)])).stdout
        return sessions[number].run("probe", "scripts/say.sh", [str(number)]).stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(8))) == [f"out {number}\n" for number in range(8)]


@pytest.mark.system
def test_stopped_work_ends_its_script_and_the_wrappers_of_the_package_take_part(world: World) -> None:
    stop = threading.Event()
    session = opened(world, BoundedRunner(ScratchRunner(), 1))
    refused: list[str] = []

    def run() -> None:
        try:
            with stopped_by(stop):
                session.run("probe", "scripts/slow.sh")
        except ScriptRefused as error:
            refused.append(error.reason)

    thread = threading.Thread(target=run)
    thread.start()
    stop.set()
    thread.join()
    assert refused == ["stopped"]
    assert session.run("probe", "scripts/say.sh").exit_code == 3, "the slot is free again"


@pytest.mark.system
def test_a_cancelled_task_ends_its_script(world: World) -> None:
    session = opened(world, ScratchRunner())

    async def cancelled() -> None:
        task = asyncio.create_task(session.arun("probe", "scripts/slow.sh"))
        while ("tool_started", "scratch") not in frames(session):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.monotonic()
    asyncio.run(cancelled())
    assert time.monotonic() - started < 30, "the script would have slept for a minute"
    assert frames(session)[-1] == ("tool_failed", "stopped")
