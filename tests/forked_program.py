"""Runs code in a fork of the server, for a program that starts its processes itself; see `forking.program`."""

import json
import os
import resource
import signal
import socket
import sys

_, address, code, *arguments = sys.argv
given = {
    "code": code,
    "arguments": arguments,
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "own_session": False,
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
}
message = json.dumps(given).encode()
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(address)
    socket.send_fds(connection, [len(message).to_bytes(8)], [0, 1, 2])
    connection.sendall(message)
    answer = connection.makefile("r")
    child = int(answer.readline())
    for descriptor in range(3):
        os.close(descriptor)  # the streams end when the fork closes them
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda which, _: os.kill(child, which))
    status = os.waitstatus_to_exitcode(int(answer.readline() or 9))
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
