"""A temporary PostgreSQL server for tests and benchmarks, with its own folder and port and an unprivileged user."""

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
from typing import Self, TypedDict

import parts
from patience import PATIENCE


def programs() -> str | None:
    """Return the folder with initdb and postgres: the one in PATH, or the newest one where Debian puts them."""
    if "postgres" in parts.HIDDEN:
        return None
    found = shutil.which("initdb")
    if found and shutil.which("postgres", path=os.path.dirname(os.path.realpath(found))):
        return os.path.dirname(os.path.realpath(found))
    folders = [folder for folder in glob.glob("/usr/lib/postgresql/*/bin") if os.path.exists(f"{folder}/initdb")]
    return max(folders, key=lambda folder: int(folder.split("/")[-2]), default=None)


class Account(TypedDict, total=False):
    """The arguments of `subprocess` that choose the user of a child process."""

    user: int
    group: int
    extra_groups: list[int]


def unprivileged() -> Account:
    """Return an account other than root, which PostgreSQL refuses to run as. It is empty if we are not root."""
    if os.geteuid() != 0:
        return {}
    user = next((entry for entry in pwd.getpwall() if entry.pw_name == "postgres"), None) or pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class PostgresServer:
    """A server that `with` starts. Call `stop` and `start` to make it go away and come back on the same port."""

    def __init__(self, *, durable: bool) -> None:
        """Without `durable` there are no flushes to the disk, which only matters if the whole machine crashes."""
        folder = programs()
        assert folder, "PostgreSQL is not installed"
        self._bin, self._durable, self._account = folder, durable, unprivileged()
        # The path must be short: that of a Unix socket has at most 107 characters.
        self._folder = tempfile.mkdtemp(prefix="metier-pg-")
        self._data = os.path.join(self._folder, "data")
        if "user" in self._account and "group" in self._account:
            os.chown(self._folder, self._account["user"], self._account["group"])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

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
                **self._account,
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
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, **self._account)
            self._process = process
        deadline = time.monotonic() + PATIENCE
        while subprocess.run(
            [f"{self._bin}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
        ).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(self._folder, "log"), errors="replace") as log_text:
                    raise AssertionError(f"PostgreSQL does not start:\n{log_text.read()[-2000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server. SIGINT breaks all connections and shuts down; SIGQUIT is a crash."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGQUIT)  # a shutdown would write data that is deleted anyway
        shutil.rmtree(self._folder, ignore_errors=True)
