"""A process that forks short-lived writers, to kill them at random moments or to let many of them write at once.
`python -m record.store.writer`, in the folder of the tests, and then:

    kill URL COUNT SEED        kill writers of one store; print what each had acknowledged
    create PATH COUNT SEED     kill writers that create a store each, at PATH-0, PATH-1, ...
    crowd URL WRITERS EVENTS BATCH STREAMS     many writers at once; print the seconds of each append
    race URL WRITERS EVENTS    append where the stream is seen to end; print the seqs each has written
    open URL COUNT             open the store COUNT times at once

It has no store and no thread itself, so its children start within a millisecond and from a clean state.
"""

import contextlib
import importlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import TypeVarTuple, Unpack

from metier.files.digests import digest_of
from metier.record.store import Draft, StreamConflict, open_store
from patience import PATIENCE

for module in ("metier.record.store.sqlite", "metier.record.store.postgres"):
    with contextlib.suppress(ImportError):  # the driver of PostgreSQL is not installed
        importlib.import_module(module)  # before the first fork, so that children spend their time on their work

Arguments = TypeVarTuple("Arguments")


def payload(name: str) -> bytes:
    """Return the artifact of an event: some kilobytes that no other has, so that half of one would be noticed."""
    return name.encode() * 400


def write_until_killed(url: str, name: str, pipe: int) -> None:
    """Append events with artifacts to two streams, and acknowledge each append after it has returned."""
    with open_store(url) as store:
        os.write(pipe, b"open\n")
        for number in range(1_000_000):
            ids = [f"{name}-{number}-{part}" for part in range(1 + number % 3)]
            contents = [payload(id_) for id_ in ids]
            drafts = [
                Draft(id_, number, "written", {"digest": digest_of(content), "text": "x" * 50})
                for id_, content in zip(ids, contents, strict=True)
            ]
            frames = store.append("s", "session", f"stream-{number % 2}", drafts, contents)
            acknowledged = [[frame["stream_id"], frame["seq"], frame["id"]] for frame in frames]
            os.write(pipe, f"ack {json.dumps(acknowledged)}\n".encode())


def fork(work: Callable[[Unpack[Arguments], int], None], *arguments: *Arguments) -> tuple[int, int]:
    """Start a child that runs `work(*arguments, pipe)`. Return its id and the other end of the pipe."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child:
        os.close(theirs)
        return child, ours
    code = 1
    try:
        os.close(ours)
        work(*arguments, theirs)
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    os._exit(code)


def drain(pipe: int, content: bytes = b"") -> list[str]:
    """Return the complete lines of a pipe: a killed child may leave half of one."""
    while chunk := os.read(pipe, 1 << 16):
        content += chunk
    os.close(pipe)
    return content.decode().split("\n")[:-1]


def end(child: int, pipe: int, first: bytes = b"") -> list[str]:
    """Kill a writer, and return the complete lines that it had sent."""
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status), f"the writer ended by itself: {status}"
    return drain(pipe, first)


def kill(url: str, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        child, pipe = fork(write_until_killed, url, f"{seed}-{number}")
        # Some are killed while they open the store, but most during their first appends.
        first = b""
        if chance.random() < 0.8:
            wanted = chance.randint(1, 5)
            while first.count(b"\n") < wanted:
                chunk = os.read(pipe, 4096)
                assert chunk, "the writer ended by itself"
                first += chunk
        time.sleep(chance.uniform(0, 0.004) if first else chance.uniform(0, 0.05))
        lines = end(child, pipe, first)
        acknowledged = [entry for line in lines if line.startswith("ack ") for entry in json.loads(line[4:])]
        print(json.dumps({"opened": bool(lines), "acknowledged": acknowledged}), flush=True)


def create(path: str, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        child, pipe = fork(write_until_killed, f"{path}-{number}", "w")
        first = os.read(pipe, 4096) if number % 4 == 0 else b""
        time.sleep(chance.uniform(0, 0.025))
        print(json.dumps(end(child, pipe, first)), flush=True)


def write_many(url: str, name: str, events: int, batch: int, stream: str, pipe: int) -> None:
    with open_store(url, patience=PATIENCE) as store:
        times: list[float] = []
        for start in range(0, events, batch):
            drafts = [
                Draft(f"{name}-{number}", number, "tool_stdout", {"text": f"line {number} of the output", "n": number})
                for number in range(start, min(start + batch, events))
            ]
            began = time.perf_counter()
            store.append(f"session-{stream}", "session", stream, drafts)
            times.append(time.perf_counter() - began)
    os.write(pipe, f"{json.dumps(times)}\n".encode())


def crowd(url: str, writers: int, events: int, batch: int, streams: int) -> None:
    children = [
        fork(write_many, url, f"w{number}", events, batch, f"stream-{number % streams}") for number in range(writers)
    ]
    for child, pipe in children:
        print("\n".join(drain(pipe)), flush=True)
        assert os.waitpid(child, 0)[1] == 0


def append_at_the_end(url: str, name: str, events: int, pipe: int) -> None:
    won: list[int] = []
    with open_store(url, patience=PATIENCE) as store:
        while (last := store.last_seq("st")) < events - 1:
            draft = Draft(f"{name}-{last}", 1, "x", {})
            with contextlib.suppress(StreamConflict):
                won += [frame["seq"] for frame in store.append("s", "session", "st", [draft], expected_seq=last)]
    os.write(pipe, f"{json.dumps(won)}\n".encode())


def race(url: str, writers: int, events: int) -> None:
    children = [fork(append_at_the_end, url, f"w{number}", events) for number in range(writers)]
    for child, pipe in children:
        print("\n".join(drain(pipe)), flush=True)
        assert os.waitpid(child, 0)[1] == 0


def open_at_once(url: str, count: int) -> None:
    def work(number: int, go: int, pipe: int) -> None:
        os.read(go, 1)
        with open_store(url) as store:
            store.append("s", "session", "st", [Draft(f"e{number}", number, "x", {})])
        os.write(pipe, b"done\n")

    go, start = os.pipe()
    children = [fork(work, number, go) for number in range(count)]
    os.close(go)
    os.write(start, b"!" * count)
    for child, pipe in children:
        drain(pipe)
        assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "kill": kill,
        "create": create,
        "crowd": crowd,
        "race": race,
        "open": open_at_once,
    }
    commands[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
