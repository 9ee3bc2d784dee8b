"""Every limit applies to every launcher, also in parallel runs, and a run leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.attack.boxes import IS_ROOT, Box, Case, mounts, settled
from metier.limits import MIB
from metier.running.sandbox import Outcome, RunLimits, Runner
from metier.running.sandbox.bubblewrap import BubblewrapRunner
from metier.running.sandbox.fake import FakeRunner
from metier.running.sandbox.mounts import an_identity
from metier.running.sandbox.probe import examine
from metier.running.sandbox.unsandboxed import UnsandboxedRunner

pytest_plugins = ["running.sandbox.sandbox_fixtures"]


FILL = """
    import os, sys
    written = 0
    try:
        for number in range(40):
            with open(os.path.join(sys.argv[1], "fill%d" % number), "wb", buffering=0) as file:
                for _ in range(2):
                    written += file.write(b"x" * (1 << 19))
    except OSError as error:
        print(error.strerror, file=sys.stderr)
    print(written)
"""


@pytest.mark.system
def test_no_place_can_be_filled_beyond_the_limit(case: Case) -> None:
    for place in ("/work", "/tmp", "/dev/shm", "/", "/dev", "/etc", "/skill", "/proc"):
        outcome = case.run(FILL, place, limits=RunLimits(work_bytes=8 * MIB))
        limit = 8 * MIB if place in ("/work", "/tmp", "/dev/shm") else 0
        assert int(outcome.stdout) <= limit, (place, outcome.stderr)


@pytest.mark.system
def test_a_file_and_their_number_have_a_limit(case: Case) -> None:
    text = """
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for act in (lambda f: f.truncate(3 << 20), lambda f: f.write(b"x" * (3 << 20))):
            try:
                with open("f", "wb", buffering=0) as file: print(act(file))
            except OSError as error: print(error.strerror)
    """
    outcome = case.run(text, limits=RunLimits(file_bytes=2 * MIB))
    assert outcome.stdout == b"File too large\n" + str(2 * MIB).encode() + b"\n"
    flood = "n = 0\nwhile True:\n    open('/tmp/%d' % n, 'w').close(); n += 1"
    assert case.run(flood, limits=RunLimits(seconds=30, files=50)).ended == "files-limit"


# --- parallel runs ---


def leftovers(box: Box) -> tuple[list[int], list[str], list[str], int]:
    """The processes, mounts, folders and descriptors that a run left. The box is also the temporary folder."""
    return box.survivors(), mounts(box.base), sorted(box.fingerprint()), len(os.listdir("/proc/self/fd"))


MIXED = """
    import os, sys, time
    number = int(sys.argv[1])
    with open("number", "w") as file: file.write(str(number))
    if number % 5 == 1: sys.exit(3)
    if number % 5 == 2: time.sleep(60)
    if number % 5 == 3:
        while True: sys.stdout.write("x" * 65536)
    if number % 5 == 4:
        made = 0
        try:
            while made < 100:
                if os.fork() == 0: time.sleep(60)
                made += 1
        except OSError: pass
        sys.exit(0 if 1 < made < 12 else 99)
"""


@pytest.mark.system
def test_fifty_runs_at_once_each_within_its_limits_and_nothing_is_left(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(case.box.base))
    script = case.box.script("run.py", MIXED)
    limits = RunLimits(seconds=120, processes=12, output_bytes=100_000)
    slow = RunLimits(seconds=8, processes=12)  # long enough for fifty to start and write, also on a busy machine
    before = leftovers(case.box)
    with ThreadPoolExecutor(50) as pool:
        jobs = [case.box.job(script, str(n), limits=slow if n % 5 == 2 else limits) for n in range(50)]
        outcomes = list(pool.map(case.runner.run, jobs))
    assert leftovers(case.box) == before
    expected = [(0, "exit"), (3, "exit"), (137, "timeout"), (137, "output-limit"), (0, "exit")]
    assert [(one.exit_code, one.ended) for one in outcomes] == expected * 10
    written = [[(file.path, file.data) for file in one.files] for one in outcomes]
    assert written == [[("number", str(n).encode())] for n in range(50)]


HOST = """
import os, sys
from metier.running.sandbox import Job
from metier.running.sandbox.bubblewrap import BubblewrapRunner
job = Job(sys.argv[1], sys.argv[2], env={"METIER_TEST_MARK": sys.argv[3]})
BubblewrapRunner().run(job, lambda stream, data: os.write(1, data))
"""


@pytest.mark.system
def test_nothing_is_left_when_the_host_is_killed(case: Case) -> None:
    text = "import os, time; print('up', flush=True); os.fork(); os.setsid(); time.sleep(60)"
    before = leftovers(case.box)
    arguments = [sys.executable, "-c", HOST, str(case.box.skill), case.box.script("run.py", text), case.box.token]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(case.box.base)}) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"up\n"
        assert settled(lambda: len(case.box.survivors()), 3) == 3, "the shell, the script and its child"
        host.send_signal(signal.SIGKILL)
        host.wait()
    assert settled(case.box.survivors, []) == []
    assert leftovers(case.box) == before


# --- the user id of a script ---


@pytest.mark.skipif(not IS_ROOT, reason="only root has other ids to give")
def test_runs_of_a_root_launcher_never_share_an_id() -> None:
    inside = threading.Barrier(40)

    def take(_: int) -> int:
        with an_identity() as identity:
            assert identity.switch
            inside.wait()
            return identity.uid

    with ThreadPoolExecutor(40) as pool:
        seen = list(pool.map(take, range(40)))
    assert len(set(seen)) == 40
    assert min(seen) > 60_000


@pytest.mark.system
def test_a_skill_and_a_project_that_only_their_owner_may_read_still_work(case: Case) -> None:
    text = """
        import os
        print(open("/skill/data.txt").read(), open("/project/notes.txt").read()[:17])
        with open("/project/new.csv", "w") as file: file.write("x")
    """
    box, script = case.box, case.box.script("run.py", text, mode=0o600)
    paths = (box.skill, box.skill / "scripts", box.skill / "data.txt", box.project, box.project / "notes.txt")
    for path in paths:
        path.chmod(0o700 if path.is_dir() else 0o600)
    outcome = case.runner.run(box.job(script, project=str(box.project), project_writable=True))
    assert outcome.stdout == b"as shipped\n project/notes.txt\n", outcome.stderr
    owner, made = box.project.stat(), (box.project / "new.csv").stat()
    assert (made.st_uid, made.st_gid) == (owner.st_uid, owner.st_gid)


# --- the probe ---


@pytest.mark.system
def test_the_examination_finds_a_sandbox_whole_and_its_absence(
    sandbox: BubblewrapRunner, unprotected: UnsandboxedRunner
) -> None:
    held = examine(sandbox)
    assert [finding for finding in held if not finding.held] == []
    assert len(held) >= 15
    broken = {finding.promise for finding in examine(unprotected) if not finding.held}
    assert len(broken) >= 8
    assert {"files of the host cannot be read", "no UDP packet, not even to this machine"} <= broken


@pytest.mark.system
def test_the_examination_takes_silence_for_failure() -> None:
    runner: Runner = FakeRunner(default=Outcome(exit_code=0, ended="exit", duration_ms=1))
    assert not any(finding.held for finding in examine(runner))
