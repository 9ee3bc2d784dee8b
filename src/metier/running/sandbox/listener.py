"""Opens a listening socket in the network namespace of a sandbox, and hands it to the host. It is a separate program.

A sandbox without a network has a loopback interface of its own. A socket that listens there can be reached by the
script and by nobody else, and a socket stays in its namespace wherever its descriptor goes. So the host accepts the
connections of a script itself, and no process of ours has to be in the sandbox. Entering the namespace of an ordinary
user needs a process with one thread, which the host is not.

    python -I -S listener.py NAMESPACE PORT        standard input is a Unix socket, over which the descriptor is sent
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import sys

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_NS_GET_USERNS = 0xB701
_BACKLOG = 64


def main(namespace: int, port: int) -> None:
    owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        _enter(owner, _CLONE_NEWUSER)
    _enter(namespace, _CLONE_NEWNET)
    listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
    # Fails if the loopback interface is down. Nobody else is in the namespace yet.
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        listener.accept()[0].close()
    with socket.socket(fileno=0) as host:
        socket.send_fds(host, [b"listening"], [listener.fileno()])


def _enter(namespace: int, kind: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, kind) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]))
    except OSError as error:
        sys.exit(f"no socket in the sandbox: {error}")
