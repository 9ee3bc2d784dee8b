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
        if self._problem is not None:
            raise SandboxUnavailable(self._problem)
        if not job.script.endswith(".sh"):
            raise ScriptRefused(job.script, "unknown-interpreter", "only .sh files can be run")
        with tempfile.TemporaryDirectory() as work:
            variables = {"PATH": "/usr/bin:/bin", "SKILL_DIR": job.skill_dir, "WORK_DIR": work, **job.env}
            line, pipe = [os.path.join(job.skill_dir, job.script), *job.argv], subprocess.PIPE
            process = subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, env=variables)
            over = threading.Event()
            watching = threading.Thread(target=_end_when_stopped, args=(process, job, over))
            watching.start()
            try:
                job.started(("limit-time",))
                stdout, stderr = process.communicate(job.stdin, timeout=job.limits.seconds)
            finally:
                over.set()
                watching.join()
            pieces: tuple[tuple[Stream, bytes], ...] = (("stdout", stdout), ("stderr", stderr))
            for stream, data in pieces:
                if data and on_output is not None:
                    on_output(stream, data)
            found = [(path.name, path.read_bytes()) for path in sorted(Path(work).iterdir())]
        files = tuple(WrittenFile(name, len(data), digest_of(data), data) for name, data in found)
        ended = "killed" if job.stop is not None and job.stop.is_set() else "exit"
        return Outcome(process.returncode, ended, 5, stdout, stderr, files=files, protections=("limit-time",))


def _end_when_stopped(process: subprocess.Popen[bytes], job: Job, over: threading.Event) -> None:
    while not over.wait(0.01):
        if job.stop is not None and job.stop.is_set():
            process.kill()


def opened(world: World, runner: Runner) -> Session:
    files = {"scripts/say.sh": SCRIPT, "scripts/slow.sh": SLOW, "scripts/say.py": "print(1)\n"}
    world.skill(".agents/skills/probe", files=files)
    return world.discover().session(runner=runner, policy=ALLOW)


def frames(session: Session) -> list[tuple[str, str]]:
    """The frames of scripts: their type, and the field that matters here."""
    keys = {"tool_started": "sandbox", "tool_stdout": "text", "tool_stderr": "text", "tool_failed": "reason"}
    keys["tool_ended"] = "ended"
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


def test_a_problem_and_a_refusal_of_a_runner_reach_the_caller_and_the_record(world: World) -> None:
    session = opened(world, ScratchRunner())
    assert "skill_run" in [tool.name for tool in session.tools()]
    with pytest.raises(ScriptRefused, match=r"only \.sh files"):
        session.run("probe", "scripts/say.py")
    assert frames(session) == [("tool_failed", "unknown-interpreter")]
    session = opened(world, ScratchRunner("it is switched off"))
    assert "skill_run" not in [tool.name for tool in session.tools()]
    with pytest.raises(SandboxUnavailable, match="switched off"):
        session.run("probe", "scripts/say.sh")
    assert frames(session) == [("tool_failed", "sandbox")]


@pytest.mark.system
def test_stopped_work_and_a_cancelled_task_end_their_script(world: World) -> None:
    stop, began = threading.Event(), time.monotonic()
    session = opened(world, BoundedRunner(ScratchRunner(), 1))

    def run() -> str:
        with stopped_by(stop), pytest.raises(ScriptRefused) as refused:
            session.run("probe", "scripts/slow.sh")
        return refused.value.reason

    with ThreadPoolExecutor(1) as pool:
        reason = pool.submit(run)
        stop.set()
        assert reason.result() == "stopped"
    assert session.run("probe", "scripts/say.sh").exit_code == 3, "the slot is free again"
    session = opened(world, ScratchRunner())

    async def cancelled() -> None:
        task = asyncio.create_task(session.arun("probe", "scripts/slow.sh"))
        while ("tool_started", "scratch") not in frames(session):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert frames(session)[-1] == ("tool_failed", "stopped")
    assert time.monotonic() - began < 30, "each script would have slept for a minute"
