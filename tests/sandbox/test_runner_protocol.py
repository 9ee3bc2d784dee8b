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
from metier.sandbox import Job, OnOutput, Outcome, Runner, SandboxUnavailable, ScriptRefused, Stream, WrittenFile
from metier.sandbox.bounded import BoundedRunner
from metier.sandbox.stoppable import StoppableRunner, on_behalf_of
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
            try:
                job.started(("limit-time",))
                stdout, stderr = process.communicate(job.stdin, timeout=job.limits.seconds)
                return _outcome(process.returncode, stdout, stderr, work, on_output)
            finally:
                process.kill()
                process.wait()

    async def arun(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        program = self._check(job)
        with tempfile.TemporaryDirectory() as work:
            process = await asyncio.create_subprocess_exec(
                program,
                *job.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_variables(job, work),
            )
            try:
                job.started(("limit-time",))
                stdout, stderr = await asyncio.wait_for(process.communicate(job.stdin), job.limits.seconds)
                return _outcome(process.returncode or 0, stdout, stderr, work, on_output)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    def _check(self, job: Job) -> str:
        if self._problem is not None:
            raise SandboxUnavailable(self._problem)
        if not job.script.endswith(".sh"):
            raise ScriptRefused(job.script, "unknown-interpreter", "only .sh files can be run")
        return os.path.join(job.skill_dir, job.script)


def _variables(job: Job, work: str) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "SKILL_DIR": job.skill_dir, "WORK_DIR": work, **job.env}


def _outcome(code: int, stdout: bytes, stderr: bytes, work: str, on_output: OnOutput | None) -> Outcome:
    pieces: tuple[tuple[Stream, bytes], ...] = (("stdout", stdout), ("stderr", stderr))
    for stream, data in pieces:
        if data and on_output is not None:
            on_output(stream, data)
    found = [(path.name, path.read_bytes()) for path in sorted(Path(work).iterdir())]
    files = tuple(WrittenFile(name, len(data), digest_of(data), data) for name, data in found)
    return Outcome(
        exit_code=code,
        ended="exit",
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


def test_sessions_in_several_threads_and_loops_share_one_runner(world: World) -> None:
    runner = ScratchRunner()
    sessions = [opened(world, runner) for _ in range(8)]

    def call(number: int) -> str:
        if number % 2:
            return asyncio.run(sessions[number].arun("probe", "scripts/say.sh", [str(number)])).stdout
        return sessions[number].run("probe", "scripts/say.sh", [str(number)]).stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(8))) == [f"out {number}\n" for number in range(8)]


def test_the_wrappers_of_the_package_take_it(world: World) -> None:
    stoppable = StoppableRunner(BoundedRunner(ScratchRunner(), 1))
    session = opened(world, stoppable)
    refused: list[str] = []

    def run() -> None:
        try:
            on_behalf_of("chat", session.run, "probe", "scripts/slow.sh")
        except ScriptRefused as error:
            refused.append(error.reason)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 30
    while thread.is_alive() and time.monotonic() < deadline:
        stoppable.stop("chat")
        thread.join(0.05)
    assert refused == ["stopped"]
    assert session.run("probe", "scripts/say.sh").exit_code == 3, "the slot is free again"
