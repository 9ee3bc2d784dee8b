"""The stores under 8 writers: events a second and the time of one append, against the disk's own flush.

    python -m bench.store [--writers 8] [--events 10000] [--batch 1] [--folder DIR]

Each writer is a process that appends its events to a stream of its own (or all to one), `batch` events an append, every
append durable on return. PostgreSQL is a server of its own on the same disk, with flushes on. The floor is what the
disk takes to flush one page that was appended to a file: no store that keeps its word can be faster than one flush an
append, unless writers share one.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTS = os.path.join(ROOT, "tests")
sys.path.insert(0, TESTS)

from metier.record.store import open_store  # noqa: E402
from record.store.server import PostgresServer, programs  # noqa: E402

Figures = dict[str, object]


def floor(folder: str, rounds: int = 300) -> list[float]:
    """Seconds of one append of a page with a flush."""
    times: list[float] = []
    path = os.path.join(folder, "floor")
    with open(path, "wb", buffering=0) as stream:
        for _ in range(rounds):
            begun = time.perf_counter()
            stream.write(b"x" * 4096)
            os.fdatasync(stream.fileno())
            times.append(time.perf_counter() - begun)
    os.unlink(path)
    return times


def measure(name: str, url: str, folder: str, writers: int, events: int, batch: int, streams: int) -> Figures:
    """One run with its own floor right before it, checked for completeness afterwards."""
    flush = statistics.median(floor(folder))
    command = [sys.executable, "-m", "record.store.writer", "crowd", url]
    begun = time.perf_counter()
    done = subprocess.run(
        [*command, *map(str, (writers, events, batch, streams))],
        cwd=TESTS,
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - begun
    times = sorted(value for line in done.stdout.splitlines() if line for value in json.loads(line))
    with open_store(url) as store:
        for number in range(streams):
            seqs = [frame["seq"] for frame in store.read(stream_id=f"stream-{number}")]
            assert seqs == list(range(len(seqs))), "a gap"
        total = store.stats().events
    assert total == writers * events, f"{total} of {writers * events} events"
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    found: Figures = {
        "store": name,
        "writers": writers,
        "streams": streams,
        "batch": batch,
        "events": total,
        "events_per_second": round(total / seconds),
        "append_p50_ms": round(p50 * 1000, 3),
        "append_p99_ms": round(p99 * 1000, 3),
        "flush_p50_ms": round(flush * 1000, 3),
        "append_to_flush": round(p50 / flush, 1),
    }
    print(
        f"{name:<10} {writers:>7} {streams:>7} {batch:>5} {total:>8} {total / seconds:>10.0f} "
        f"{p50 * 1000:>10.2f} {p99 * 1000:>10.2f} {flush * 1000:>9.2f} {p50 / flush:>7.1f}",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--events", type=int, default=10_000, help="of each writer")
    parser.add_argument("--batch", type=int, default=1, help="events an append")
    parser.add_argument("--folder", default=os.path.join(ROOT, "bench"), help="a folder on the disk to measure")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix=".store-", dir=given.folder)
    os.chmod(folder, 0o755)
    tempfile.tempdir = folder
    results: list[Figures] = []
    try:
        print("STORE      WRITERS STREAMS BATCH   EVENTS   EVENTS/S     p50 ms     p99 ms  FLUSH ms   RATIO")
        crowds = [(1, 1, given.events), (given.writers, given.writers, given.events), (given.writers, 1, given.events)]
        for number, (writers, streams, events) in enumerate(crowds):
            url = f"sqlite://{folder}/trail-{number}.db"
            results.append(measure("sqlite", url, folder, writers, events, given.batch, streams))
        if programs():
            for writers, streams, events in crowds:
                with PostgresServer(durable=True) as server:
                    results.append(measure("postgres", server.url, folder, writers, events, given.batch, streams))
        else:
            print("postgres   is not installed: skipped")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    target = os.path.join(ROOT, "bench", "results", "store.json")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as stream:
        json.dump({"cpus": os.cpu_count(), "results": results}, stream, indent=2)
        stream.write("\n")


if __name__ == "__main__":
    main()
