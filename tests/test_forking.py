"""Forked processes behave as those that an interpreter starts: each of these cases runs both ways."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forking

CODES = {
    "surroundings": """
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ), __name__, os.getsid(0) == os.getpid()]))
""",
    "streams": "import sys; print(sys.stdin.read()[::-1]); print('err\\u00e9', file=sys.stderr); sys.exit(7)",
    "a message": "import sys; sys.exit('no')",
    "at exit": "import atexit; atexit.register(print, 'bye'); print('hello')",
    "a thread": "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "a kill": "import os; os.kill(os.getpid(), 9)",
    "an own child": "import subprocess; print(subprocess.run(['sh', '-c', 'exit 3']).returncode)",
    "descriptors": "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:3])",
    "buffers": "import os, sys; sys.stdout.write('first '); os.write(1, b'second ')",
    "a large argument": "import sys; print(len(sys.argv[2]))",
}


@pytest.mark.parametrize("case", CODES)
def test_a_fork_is_like_a_real_process(case: str, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    env = {**os.environ, "ONLY": "here"}
    del env["HOME"]
    command = [sys.executable, "-c", CODES[case], "a b", "x" * 120_000, "--", "ü"]

    def ran(how: Callable[..., subprocess.CompletedProcess[Any]]) -> list[object]:
        done = how(
            command, cwd=tmp_path / "place", env=env, input="stdin ö", capture_output=True, text=True, timeout=60
        )
        return [done.returncode, done.stdout, done.stderr]

    assert ran(forking.run) == ran(subprocess.run)


def test_what_cannot_be_changed_any_more_starts_a_real_process() -> None:
    code = "import sys; print(sys.stdout.encoding)"
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    assert forking.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "iso8859-1\n"


def test_processes_run_at_once_are_waited_for_signalled_and_get_input_line_by_line() -> None:
    code = "import sys, os\nfor line in sys.stdin: print(os.getpid(), line, end='', flush=True)"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        forking.start([sys.executable, "-c", code], **pipes) as one,
        forking.start([sys.executable, "-c", code], **pipes) as two,
    ):
        for process, word in ((one, "a"), (two, "b"), (one, "c")):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{process.pid} {word}\n"
            assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            two.wait(0.01)
        two.send_signal(signal.SIGTERM)
        assert two.wait(60) == -signal.SIGTERM
        one.communicate(timeout=60)
        assert one.returncode == 0


def test_the_modules_are_there_and_no_process_sees_what_another_did() -> None:
    code = (
        "import sys, json, metier\nprint(json.dumps(['mcp' in sys.modules, hasattr(metier, 'seen')])); metier.seen = 1"
    )
    for _ in range(2):
        done = forking.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert json.loads(done.stdout) == [True, False]


def test_a_program_that_others_start_is_the_command_line_on_their_streams() -> None:
    for arguments in (["--version"], ["list", "--nonsense"], ["list", "--cwd", "/nowhere/at/all"]):
        one, two = (
            subprocess.run([*how, *arguments], capture_output=True, text=True, timeout=60)
            for how in (forking.METIER, forking.program())
        )
        assert (one.returncode, one.stdout, one.stderr) == (two.returncode, two.stdout, two.stderr)
