"""A process that has imported Metier and runs code in forks of itself, for `forking.py`.

A request is a connection. It gets the length of a message in eight bytes, with the descriptors of stdin, stdout and
stderr, and then the message: the code and its surroundings. It answers with the number of the new process and, once
that has ended, its status. The server ends when its stdin does.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any, Final, NoReturn

MODULES: Final = (
    *(f"metier.surfaces.cli.{name}" for name in ("session_commands", "serve", "mcp", "list", "record", "validate")),
    *(f"metier.surfaces.cli.{name}" for name in ("check", "policy", "doctor", "run", "scaffold")),
    *(
        "metier.session.session",
        "metier.skills",
        "metier.app",
        "metier.replay",
        "metier.testing",
        "metier.surfaces.rpc",
    ),
    *("metier.record.store.sqlite", "metier.record.store.postgres", "metier.running.sandbox.bubblewrap", "asyncio"),
    *(
        "metier.catalog.watch",
        "metier.surfaces.mcp.server",
        "metier.surfaces.mcp.http",
        "metier.surfaces.web.api",
    ),
    *("metier.surfaces.web.server", "uvicorn.protocols.http.h11_impl", "uvicorn.lifespan.on", "encodings.idna", "uuid"),
)
"""What takes long to import. A module that is missing here is imported by the process that needs it."""


def run(address: str) -> NoReturn:
    listening = socket.create_server(f"{address}-new", family=socket.AF_UNIX, backlog=128)
    os.rename(f"{address}-new", address)  # whoever finds it can connect: a socket has a name before it listens
    for name in MODULES:
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no fork copies these objects only to look whether they are garbage
    assert threading.active_count() == 1
    ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    under_way: dict[int, socket.socket] = {}
    while True:
        ready = select.select([listening, ended, 0], [], [])[0]
        if ended in ready:
            os.read(ended, 4096)
            _reap(under_way)
        if 0 in ready:
            os._exit(0)
        if listening not in ready:
            continue
        connection, _ = listening.accept()
        length, streams, _, _ = socket.recv_fds(connection, 8, 3)
        message = connection.recv(int.from_bytes(length), socket.MSG_WAITALL)
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(json.loads(message), streams)
        under_way[child] = connection
        connection.sendall(f"{child}\n".encode())
        for stream in streams:
            os.close(stream)


def _reap(under_way: dict[int, socket.socket]) -> None:
    while under_way:
        child, code = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        with under_way.pop(child) as connection, contextlib.suppress(OSError):  # nobody may wait any more
            connection.sendall(f"{code}\n".encode())


def _become(given: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be what the interpreter would be that starts with this code, and end as it does."""
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
    os.closerange(3, 1 << 20)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(given["files"]))
    if given["own_session"]:
        os.setsid()
    os.chdir(given["cwd"])
    os.environ.clear()
    os.environ.update(given["env"])
    unbuffered = bool(given["env"].get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), sys.stdin.encoding, sys.stdin.errors)
    for number, name in ((1, "stdout"), (2, "stderr")):
        old: io.TextIOWrapper = getattr(sys, name)
        raw = io.FileIO(number, "wb") if unbuffered else io.BufferedWriter(io.FileIO(number, "wb"))
        lines = number == 2 or os.isatty(number)
        made = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=lines, write_through=unbuffered)
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)
    sys.argv = ["-c", *given["arguments"]]
    search = [folder for folder in given["env"].get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[1:] = dict.fromkeys([*search, *sys.path[1:]])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    code = 1
    try:
        exec(compile(given["code"], "<string>", "exec"), main.__dict__)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code = -signal.SIGINT
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120  # as the interpreter ends then
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)
