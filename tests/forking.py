"""Processes that have Metier's modules from their start, because importing them takes longer than most commands.

`start` and `run` take what `subprocess.Popen` and `subprocess.run` take, for a command `[sys.executable, "-c", code,
...]`, and give a process of its own with its own streams, environment, folder and exit code. It is a fork of a process
that imported everything before. A test of how a process starts, of a terminal, or of another user starts a real one.
"""

import atexit
import functools
import json
import os
import resource
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from patience import PATIENCE

METIER: Final = (sys.executable, "-c", "from metier.surfaces.cli import main; main()")
STARTED_WITH: Final = ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONWARNINGS", "PYTHONHOME")
"""What the interpreter reads before it runs any code. With another value, a process is a real one."""

_HERE: Final = os.path.dirname(__file__)
_SERVER: Final = f"""
import sys
sys.path.insert(0, {_HERE!r})
import fork_server
del sys.path[0]
fork_server.run(sys.argv[1])
"""


@functools.cache
def _server() -> tuple[str, Mapping[str, str]]:
    """The address of the server, which ends with this process, and its environment."""
    folder, owner = tempfile.mkdtemp(prefix="metier-fork-"), os.getpid()
    address, environment = os.path.join(folder, "socket"), dict(os.environ)
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, address], stdin=subprocess.PIPE, env=environment, cwd="/"
    )
    until = time.monotonic() + PATIENCE
    while not os.path.exists(address):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.01)

    def end() -> None:
        if os.getpid() != owner:
            return  # a fork of the process that started the server
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return address, environment


class _Forked(subprocess.Popen[Any]):
    """`subprocess.Popen`, but for how a process begins and how its end is noticed: it is the server's child."""

    _connection: socket.socket
    _close_pipe_fds: Callable[..., None]
    _handle_exitstatus: Callable[[int], None]
    _waitpid_lock: threading.Lock

    def _execute_child(
        self,
        args: Sequence[str],
        executable: object,
        preexec_fn: object,
        close_fds: object,
        pass_fds: object,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        startupinfo: object,
        creationflags: object,
        shell: object,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: object,
        gid: object,
        gids: object,
        uid: object,
        umask: object,
        start_new_session: bool,
        *more: object,
    ) -> None:
        assert not preexec_fn
        assert not pass_fds
        given = {
            "code": args[2],
            "arguments": args[3:],
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "own_session": start_new_session,
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        message = json.dumps(given).encode()
        streams = [own if fd == -1 else fd for own, fd in enumerate((p2cread, c2pwrite, errwrite))]
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(PATIENCE)
        try:
            self._connection.connect(_server()[0])
            socket.send_fds(self._connection, [len(message).to_bytes(8)], streams)
            self._connection.sendall(message)
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        self.pid = self._number()
        self._child_created = True

    def _number(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            more = self._connection.recv(1)
            assert more, "the process that forks for the tests has ended"
            line += more
        return int(line)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        with self._connection:
            return self.pid, self._number()

    def _internal_poll(self, *more: object, **named: object) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def start(command: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[Any]:
    """A running process."""
    assert command[:2] == [sys.executable, "-c"], command
    given = os.environ if env is None else env
    own = _server()[1]
    real = any(given.get(name) != own.get(name) for name in STARTED_WITH)
    return (subprocess.Popen if real else _Forked)(list(command), env=env, **options)


def run(
    command: Sequence[str],
    *,
    input: str | bytes | None = None,  # noqa: A002 (as subprocess calls it)
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """A process that has ended."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with start(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout=PATIENCE)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def program(*arguments: str, code: str = METIER[2]) -> list[str]:
    """A command for others to start: a small process that lends its streams to `metier` and ends as it does."""
    return [sys.executable, "-I", "-S", os.path.join(_HERE, "forked_program.py"), _server()[0], code, *arguments]


def install(folder: str | os.PathLike[str]) -> str:
    """Put such a program into a folder as `metier`, for a shell that has the folder on its PATH. Returns its path."""
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "metier")
    with open(file, "w") as text:
        text.write(f'#!/bin/sh\nexec {shlex.join(program())} "$@"\n')
    os.chmod(file, 0o755)
    return file
