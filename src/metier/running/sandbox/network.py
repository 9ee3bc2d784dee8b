"""Gives a sandbox its filtered way to the network: a socket in its namespace, and the proxy that answers there."""

import functools
import os
import socket
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Final

from metier.running.sandbox import Job, SandboxUnavailable
from metier.running.sandbox.proxy import HostProxy, Resolver
from metier.values.network import PROXY_PORT, HostList

_LISTENER: Final = os.path.join(os.path.dirname(__file__), "listener.py")
_SECONDS: Final = 20.0


def proxy_variables(job: Job) -> dict[str, str]:
    """The variables by which programs find the proxy. Some read only one spelling of a name.

    What a script itself serves in its sandbox is reached without the proxy, unless a rule gives it that host.
    """
    address = f"http://127.0.0.1:{PROXY_PORT}"
    listed = HostList.parse(job.hosts).allowed
    own = ",".join(name for name in ("localhost", "127.0.0.1") if not any(one.names(name) for one in listed))
    named = {"http_proxy": address, "https_proxy": address, "all_proxy": address, "no_proxy": own}
    return named | {name.upper(): value for name, value in named.items()} | {"NODE_USE_ENV_PROXY": "1"}


@contextmanager
def a_proxy(job: Job, first: int, python: str, resolver: Resolver | None) -> Generator[HostProxy]:
    """Run the proxy of a job that lists hosts, for the sandbox whose first process is `first`."""
    listener = _listener(first, python)
    proxy = HostProxy(listener, HostList.parse(job.hosts), private=job.private_hosts, resolver=resolver)
    try:
        yield proxy
    finally:
        proxy.close()


def _listener(first: int, python: str) -> socket.socket:
    with ExitStack() as stack:
        ours, theirs = socket.socketpair()
        stack.callback(ours.close)
        stack.callback(theirs.close)
        try:
            namespace = os.open(f"/proc/{first}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, namespace)
            done = subprocess.run(  # noqa: S603
                [python, "-I", "-S", "-c", _code(), str(namespace), str(PROXY_PORT)],
                stdin=theirs.fileno(),
                capture_output=True,
                env={},
                cwd="/",
                pass_fds=[namespace],
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxUnavailable(f"the sandbox has no way to the network: {error}") from error
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 16, 1)
        if not descriptors:
            why = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
            raise SandboxUnavailable(f"the sandbox has no way to the network: {why}")
        return socket.socket(fileno=descriptors[0])


@functools.cache
def _code() -> str:
    with open(_LISTENER, encoding="utf-8") as file:
        return file.read()
