"""The web server under load: one and two replicas on PostgreSQL, one on SQLite, and clients on loopback.

    python -m bench.load [--seconds 3] [--skills 500] [--connections 64] [--streams 1000] [--only rates,streams,trouble]
                         [--kinds list,search,load]

Requests a second and the 99th percentile of listing, searching and loading (a call of a session, recorded before it is
answered); a thousand open streams of events; and then calls while the database restarts and while one replica is
killed, with every acknowledged event looked for afterwards. It prints tables and writes nothing.
"""

import argparse
import asyncio
import contextlib
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "web")]

import httpx2  # noqa: E402
from processes import Process, serve  # noqa: E402

from record.store.server import PostgresServer, programs  # noqa: E402
from worlds import World  # noqa: E402

from .generate import generate  # noqa: E402
from .http_clients import Measured, Plan, measure, request  # noqa: E402

SESSIONS = 64
TOKEN = "a-token-of-all-replicas"


@dataclass
class Setup:
    """One service to measure: its replicas, and what to ask them for."""

    name: str
    replicas: Sequence[Process]
    names: list[str]
    sessions: list[str] = field(default_factory=list[str])

    def begin(self, count: int) -> None:
        self.sessions = [self.replicas[number % len(self.replicas)].begin() for number in range(count)]


@contextlib.contextmanager
def service(name: str, folder: Path, names: list[str], store: str, replicas: int) -> Generator[Setup, None, None]:
    with contextlib.ExitStack() as stack:
        running: list[Process] = []
        for number in range(replicas):
            world = World(folder / f"home-{name}-{number}", folder / "project")
            world.home.mkdir()
            running.append(stack.enter_context(serve(world, store=store, env={"METIER_TOKEN": TOKEN})))
        setup = Setup(name, running, names)
        setup.begin(SESSIONS)
        yield setup


# --- requests a second ---


KINDS = ("list", "search", "load")


def requests(setup: Setup, kind: str) -> list[list[str]]:
    """The requests of a kind. Loads are those of one session for each client, as conversations are."""
    token = setup.replicas[0].token
    if kind == "list":
        return [[request("GET", "/api/skills", token)]]
    if kind == "search":
        words = sorted({word for name in setup.names for word in name.split("-") if word.isalpha()})[:100]
        return [[request("GET", f"/api/search?q={word}", token) for word in words]]
    loads = [{"tool": "skill_load", "args": {"name": name}} for name in setup.names[:200]]
    return [
        [request("POST", f"/api/sessions/{session}/call", token, load) for load in loads] for session in setup.sessions
    ]


def hammer(setup: Setup, kind: str, seconds: float, connections: int) -> Measured:
    """One run of the clients, their connections shared evenly between the replicas."""
    targets = [(one.host, one.port) for one in setup.replicas]
    return measure(
        Plan(targets=targets, requests=requests(setup, kind), connections=connections, seconds=seconds, warm_up=0)
    )


def rates(setups: Sequence[Setup], kinds: Sequence[str], seconds: float, connections: int) -> None:
    heads = f"{'PER SECOND':>10} {'P50 ms':>8} {'P99 ms':>8} {'CPU ms':>7} {'ERRORS':>7}"
    print(f"\n{'REQUESTS':<10} {'SERVICE':<28} {heads}")
    for kind in kinds:
        for setup in setups:
            for replica in setup.replicas:  # so that the index is built before anything is measured
                assert replica.client.get("/api/search?q=anything").status_code == 200
            hammer(setup, kind, 1, connections)
            before = sum(processor_ms(replica.process.pid) for replica in setup.replicas)
            found = hammer(setup, kind, seconds, connections)
            spent = sum(processor_ms(replica.process.pid) for replica in setup.replicas) - before
            print(
                f"  {kind:<8} {setup.name:<28} {found.rate:>10,.0f} {found.p50:>8.1f} {found.p99:>8.1f}"
                f" {spent / max(found.requests, 1):>7.2f}"
                f" {found.failed + found.refused:>7,}",
                flush=True,
            )


# --- streams ---


WORD = "news-for-all-streams"


class Audience:
    """Open streams on the sessions of a service, spread over its replicas."""

    def __init__(self, setup: Setup, count: int) -> None:
        self.setup, self.count = setup, count
        self.opened, self.failed = 0, 0
        self.told: list[float] = []
        self._opening = asyncio.Semaphore(50)

    async def listen(self, replica: Any, session: str) -> None:
        """One stream, from its first frame to the one that everybody waits for."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with self._opening:
                reader, writer = await asyncio.open_connection(replica.host, replica.port)
                asked = f"GET /api/sessions/{session}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream"
                writer.write(f"{asked}\r\n{replica.line}\r\n".encode())
                await reader.readuntil(b"id: 0\n")
                self.opened += 1
            while WORD.encode() not in await reader.readuntil(b"\n"):
                pass
            self.told.append(time.perf_counter())
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self.failed += 1
        finally:
            if writer is not None:
                writer.close()

    async def attend(self) -> tuple[float, float, float, int]:
        """Seconds until all are open, until all calls are answered, until all streams showed theirs; and memory."""
        replicas, sessions = self.setup.replicas, self.setup.sessions
        begun = time.perf_counter()
        tasks = [
            asyncio.create_task(self.listen(replicas[number % len(replicas)], sessions[number % len(sessions)]))
            for number in range(self.count)
        ]
        while self.opened + self.failed < self.count and time.perf_counter() - begun < 60:
            await asyncio.sleep(0.02)
        opening = time.perf_counter() - begun
        memory = sum(_resident(replica.process.pid) for replica in replicas)
        begun = time.perf_counter()
        await asyncio.to_thread(self._tell)
        calls = time.perf_counter() - begun
        _, late = await asyncio.wait(tasks, timeout=30)
        for task in late:
            task.cancel()
        self.failed += len(late)
        return opening, calls, max(self.told, default=begun) - begun, memory

    def _tell(self) -> None:
        """A search in each session, asked of the replica that few of its streams are at."""
        for number, session in enumerate(self.setup.sessions):
            replica = self.setup.replicas[(number + 1) % len(self.setup.replicas)]
            replica.call(session, "skill_search", query=WORD)


def processor_ms(pid: int) -> float:
    """The processor time of a process so far, which other work on the machine hardly disturbs."""
    with open(f"/proc/{pid}/stat") as status:
        user, system = status.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as status:
        return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def streams(setups: Sequence[Setup], count: int) -> None:
    heads = f"{'OPEN s':>8} {'64 CALLS s':>11} {'ALL TOLD s':>11} {'MiB':>6} {'LOST':>5}"
    print(f"\n{'STREAMS':<10} {'SERVICE':<28} {heads}")
    for setup in setups:
        setup.begin(SESSIONS)
        audience = Audience(setup, count)
        opening, calls, last, memory = asyncio.run(audience.attend())
        print(
            f"  {count:<8,} {setup.name:<28} {opening:>8.1f} {calls:>11.2f} {last:>11.2f} {memory / (1 << 20):>6.0f}"
            f" {audience.failed:>5}",
            flush=True,
        )


# --- trouble ---


class Crowd:
    """Clients that search for words of their own and remember which searches were acknowledged."""

    def __init__(self, setup: Setup, clients: int) -> None:
        self.setup, self.stop = setup, threading.Event()
        self.acknowledged: dict[str, list[str]] = {session: [] for session in setup.sessions[:clients]}
        self.errors: Counter[str] = Counter()
        self.longest = 0.0
        self.threads = [
            threading.Thread(target=self._work, args=(number, session))
            for number, session in enumerate(self.acknowledged)
        ]

    def _work(self, number: int, session: str) -> None:
        turn = number
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(httpx2.Client(base_url=one.url, headers=one.headers, timeout=60, trust_env=False))
                for one in self.setup.replicas
            ]
            while not self.stop.is_set():
                word = f"word-{number}-{len(self.acknowledged[session])}"
                turn += 1
                begun = time.perf_counter()
                try:
                    answer = clients[turn % len(clients)].post(
                        f"/api/sessions/{session}/call", json={"tool": "skill_search", "args": {"query": word}}
                    )
                except httpx2.TransportError as error:
                    self.errors[type(error).__name__] += 1
                    continue  # as a balancer would: the other one
                self.longest = max(self.longest, time.perf_counter() - begun)
                if answer.status_code == 200 and answer.json()["ok"]:
                    self.acknowledged[session].append(word)
                else:
                    self.errors[str(answer.status_code)] += 1

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def lost(self, replica: Any) -> int:
        """Acknowledged searches that are not in the trail, asked of a replica that is alive."""
        missing = 0
        for session, words in self.acknowledged.items():
            frames = replica.frames(session)
            assert [frame["seq"] for frame in frames] == list(range(len(frames))), "a gap"
            kept = {frame["query"] for frame in frames if frame["type"] == "skills_searched"}
            missing += len(set(words) - kept)
        return missing


def trouble(setup: Setup, database: Any, seconds: int) -> None:
    print(f"\n{'TROUBLE':<30} {'CALLS':>8} {'ERRORS':>7} {'LONGEST s':>10} {'LOST':>5}  WHICH ERRORS")

    def report(what: str, crowd: Crowd, alive: Any) -> None:
        calls = sum(len(words) for words in crowd.acknowledged.values())
        which = ", ".join(f"{count} {name}" for name, count in crowd.errors.most_common()) or "none"
        print(
            f"  {what:<28} {calls:>8,} {crowd.errors.total():>7,} {crowd.longest:>10.2f} {crowd.lost(alive):>5}"
            f"  {which}",
            flush=True,
        )

    for what, how in (("PostgreSQL restarts", signal.SIGINT), ("PostgreSQL crashes", signal.SIGQUIT)):
        setup.begin(16)
        with Crowd(setup, 16) as crowd:
            time.sleep(seconds)
            database.stop(how)
            time.sleep(1)
            database.start()
            time.sleep(seconds)
        report(what, crowd, setup.replicas[0])
    setup.begin(16)
    with Crowd(setup, 16) as crowd:
        time.sleep(seconds)
        setup.replicas[1].end(signal.SIGKILL)
        time.sleep(seconds)
    report("one of two replicas is killed", crowd, setup.replicas[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description="Measure the web server under load.")
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--skills", type=int, default=500, help="in the catalog")
    parser.add_argument("--connections", type=int, default=64, help="of the clients")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of requests, with commas between them")
    parser.add_argument("--streams", type=int, default=1_000, help="open at once")
    parser.add_argument("--only", default="rates,streams,trouble", help="which parts, with commas between them")
    given = parser.parse_args()
    parts = set(given.only.split(","))
    if not programs():
        parser.error("PostgreSQL must be installed")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, given.streams * 4), hard), hard))
    random.seed(1)
    with tempfile.TemporaryDirectory(prefix="metier-load-") as made, PostgresServer(durable=True) as database:
        folder = Path(made)
        (folder / "project" / ".git").mkdir(parents=True)
        tree = generate(str(folder / "project" / ".agents" / "skills"), given.skills, "flat")
        names = [os.path.basename(os.path.dirname(path)) for path in tree.files]
        print(f"{given.skills} skills, {given.connections} connections, {given.seconds} s each; {os.cpu_count()} cores")
        sqlite = f"sqlite:///{folder}/events.db"
        with (
            service("1 server, SQLite", folder, names, sqlite, 1) as alone,
            service("1 server, PostgreSQL", folder, names, database.url, 1) as single,
            service("2 servers, PostgreSQL", folder, names, database.url, 2) as pair,
        ):
            if "rates" in parts:
                rates((alone, single, pair), given.kinds.split(","), given.seconds, given.connections)
            if "streams" in parts:
                streams((alone, pair), given.streams)
            if "trouble" in parts:
                trouble(pair, database, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
