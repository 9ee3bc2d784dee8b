"""A real PostgreSQL server for tests and benchmarks: of its own folder, port and unprivileged user, gone afterwards."""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any, Self


def programs() -> str | None:
    """The folder with initdb and postgres, from PATH or where Debian puts them; the newest."""
    found = shutil.which("initdb")
    if found and shutil.which("postgres", path=os.path.dirname(os.path.realpath(found))):
        return os.path.dirname(os.path.realpath(found))
    folders = [folder for folder in glob.glob("/usr/lib/postgresql/*/bin") if os.path.exists(f"{folder}/initdb")]
    return max(folders, key=lambda folder: int(folder.split("/")[-2]), default=None)


def unprivileged() -> dict[str, Any]:
    """Arguments of `subprocess` that make a child run without root's rights, where we have them: PostgreSQL insists."""
    if os.geteuid() != 0:
        return {}
    user = next((entry for entry in pwd.getpwall() if entry.pw_name == "postgres"), None) or pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class PostgresServer:
    """Started by `with`; `stop` and `start` in between are a server that goes away and comes back on the same port."""

    def __init__(self, *, durable: bool) -> None:
        """`durable` False leaves out flushes to the disk, which only a crash of the whole machine would show."""
        folder = programs()
        assert folder, "PostgreSQL is not installed"
        self._bin, self._durable, self._who = folder, durable, unprivileged()
        # A short path: a Unix socket's may not be longer than 107 characters.
        self._folder = tempfile.mkdtemp(prefix="metier-pg-")
        self._data = os.path.join(self._folder, "data")
        if self._who:
            os.chown(self._folder, self._who["user"], self._who["group"])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[Any] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://metier@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        try:
            command = [f"{self._bin}/initdb", "-D", self._data, "-U", "metier", "-A", "trust", "-E", "UTF8"]
            subprocess.run(
                [*command, "--no-sync", "--locale=C"],
                check=True,
                capture_output=True,
                cwd=self._folder,
                **self._who,
            )
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._folder,
            "max_connections": 60,
            "shared_buffers": "32MB",
            "fsync": "on" if self._durable else "off",
        }
        arguments = [item for key, value in settings.items() for item in ("-c", f"{key}={value}")]
        with open(os.path.join(self._folder, "log"), "ab") as log:
            command = [f"{self._bin}/postgres", "-D", self._data, *arguments]
            process: subprocess.Popen[Any] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, **self._who
            )
            self._process = process
        deadline = time.monotonic() + 30
        while subprocess.run(
            [f"{self._bin}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
        ).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(self._folder, "log"), errors="replace") as log_text:
                    raise AssertionError(f"PostgreSQL does not start:\n{log_text.read()[-2000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT breaks all connections and shuts down; SIGQUIT is a crash."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGQUIT)  # what it would still write is thrown away
        shutil.rmtree(self._folder, ignore_errors=True)
