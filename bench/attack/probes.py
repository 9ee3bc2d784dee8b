"""Attempts to get out of the sandbox. Each is harmless where it succeeds (see bench/attack/attempts.py)."""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Generator
from typing import Final

from metier.errors import MetierError
from metier.running.sandbox import Job, Outcome, RunLimits, Runner
from metier.running.sandbox.runners import choose

from . import measure
from .attempts import ATTEMPTS, NOTHING, PROJECT, WORKING, WRITABLE, Attempt
from .boxes import Box, Listeners, a_victim, as_user, knowledge, listeners
from .rounds import Round

_OTHERS: Final = """
found = []
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        try:
            {do}
        except OSError: pass
return found
"""

MORE: Final = [
    Attempt("memory-of-the-first-process", 'return open("/proc/1/mem", "r+b")', ""),
    Attempt("memory-of-any-process", _OTHERS.format(do='found.append(open("/proc/%s/mem" % pid, "r+b"))'), ""),
    Attempt(
        "memory-of-any-thread",
        _OTHERS.format(
            do='found += [open("/proc/%s/task/%s/mem" % (pid, t), "r+b") for t in os.listdir("/proc/%s/task" % pid)]'
        ),
        "",
    ),
    Attempt(
        "descriptors-of-any-process",
        _OTHERS.format(
            do="""where = "/proc/%s/fd/" % pid
            found += [n for n in os.listdir(where) if "pipe:" not in os.readlink(where + n)]"""
        ),
        "",
    ),
    Attempt(
        "root-of-any-process", _OTHERS.format(do='found += [os.listdir("/proc/%s/root%s" % (pid, A["base"]))]'), ""
    ),
    Attempt(
        "limits-of-the-first-process",
        "import resource; resource.prlimit(1, resource.RLIMIT_NPROC, (4000, 4000)); return True",
        "",
    ),
    Attempt(
        "limits-of-ourselves",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2); return True",
        "",
    ),
    Attempt(
        "score-of-the-first-process",
        'os.write(os.open("/proc/1/oom_score_adj", os.O_WRONLY), b"-1000"); return True',
        "",
    ),
    Attempt("ids-of-the-first-process", 'os.write(os.open("/proc/1/uid_map", os.O_WRONLY), b"0 0 1"); return True', ""),
    Attempt(
        "change-its-packages",
        """
import tiny
folder = os.path.dirname(tiny.__file__)
for change in (
    lambda: open(tiny.__file__, "a").write("x"),
    lambda: open(folder + "/new.py", "w").write("x"),
    lambda: os.rename(tiny.__file__, folder + "/moved.py"),
    lambda: os.chmod(folder, 0o700),
    lambda: os.unlink(tiny.__file__),
):
    try: change()
    except OSError: continue
    return change
""",
        "",
    ),
    Attempt(
        "host-paths-in-mounts",
        """
names = ["mountinfo", "mounts", "mountstats"]
paths = ["/proc/%s/%s" % (pid, name) for pid in ("self", "1") for name in names]
def of(path):
    try: return content(path)
    except OSError: return b""
own = os.environ.get("PROJECT_DIR", "no folder").encode()  # it may know this one
return [path for path in paths if A["base"].encode() in of(path).replace(own, b"")]
""",
        also=PROJECT,
    ),
    Attempt(
        "host-paths-of-any-process",
        """
for pid in os.listdir("/proc"):
    for name in ("environ", "cmdline", "maps", "cgroup", "comm"):
        try:
            if pid.isdigit() and int(pid) != os.getpid() and A["base"].encode() in content("/proc/%s/%s" % (pid, name)):
                return "/proc/%s/%s" % (pid, name)
        except OSError: pass
""",
        "",
        also=PROJECT,
    ),
    Attempt(
        "our-control-group",
        """
lines = content("/proc/self/cgroup").decode().splitlines()
parts = [part for line in lines for part in line.split(":", 2)[2].split("/")]
return [part for part in parts if part not in ("", "..") and not part.startswith("metier-")]
""",
        "",
    ),
    Attempt("control-groups", 'return os.listdir("/sys/fs/cgroup")'),
    Attempt(
        "socket-in-the-project", 'return connect(socket.AF_UNIX, os.environ["PROJECT_DIR"] + "/s")', "", also=PROJECT
    ),
    Attempt(
        "socket-in-a-writable-project",
        'return connect(socket.AF_UNIX, os.environ["PROJECT_DIR"] + "/s")',
        "",
        also=WRITABLE,
    ),
    Attempt(
        "socket-in-the-project-by-another-way",
        """
os.chdir(os.environ["PROJECT_DIR"])
try: return connect(socket.AF_UNIX, "s")
except OSError: pass
fd = os.open("s", os.O_PATH)
return connect(socket.AF_UNIX, "/proc/self/fd/%d" % fd)
""",
        "",
        also=WRITABLE,
    ),
    Attempt(
        "write-to-the-read-only-project",
        'open(os.environ["PROJECT_DIR"] + "/x", "w").close(); return True',
        also=PROJECT,
    ),
    Attempt("socket-in-the-working-folder", 'return connect(socket.AF_UNIX, "s")', "", also=WORKING),
    Attempt(
        "what-is-above-the-working-folder",
        """
above = os.path.dirname(os.getcwd())
found = [name for name in os.listdir(above) if name != os.path.basename(os.getcwd())]
return found or has(above + "/home/.ssh/id")
""",
        also=WORKING,
    ),
    Attempt("secrets-of-the-skill-behind-links", 'return has(os.environ["SKILL_DIR"] + "/link-folder/.ssh/id")'),
    Attempt("files-of-the-skill-through-its-descriptors", 'return has("/proc/self/cwd/../.." + A["secret"])'),
]
"""Attempts besides those of the tests."""


def runner() -> Runner:
    """The sandbox that is attacked: the one that a user gets."""
    return choose()


def attack(
    round_: Round, sandbox: Runner | None = None, must_fail: Callable[[Attempt], bool] = lambda attempt: True
) -> None:
    """As many attempts as fit into the round, in an order of its own, the further ones before those of the tests."""
    order = [*round_.chance.sample(MORE, len(MORE)), *round_.chance.sample(ATTEMPTS, len(ATTEMPTS))]
    box = Box(round_.folder / "box", round_.token)
    os.environ["METIER_SECRET"] = round_.token
    sandbox = sandbox or runner()
    with listeners(box) as heard, _socket_in(box), a_victim(round_.token) as victim:
        for attempt in filter(must_fail, order):
            if not round_.goes_on():
                return
            _attempt(round_, box, sandbox, attempt, knowledge(box, heard, victim.pid), heard)
            if victim.poll() is not None:
                round_.escape(f"{attempt.name} ended a process of the host", attempt.body)
                return


def _attempt(round_: Round, box: Box, sandbox: Runner, attempt: Attempt, known: str, heard: Listeners) -> None:
    grant = attempt.also
    packed = sandbox.name != "container" and (round_.chance.random() < 0.5 or "packages" in attempt.name)
    job = box.job(
        box.script("attempt.py", attempt.text()),
        stdin=known.encode(),
        limits=RunLimits(seconds=30, processes=24),
        network=grant.network,
        project=str(box.project) if grant.project else None,
        project_writable=grant.project_writable,
        cwd=str(box.project) if grant.works_there else None,
        packages=box.environment() if packed else None,
    )
    before = box.fingerprint()
    outcome = run(round_, sandbox, job)
    round_.tried()
    if outcome is None:
        return
    script = attempt.body
    got_out = _verdict(outcome)
    if got_out is None:
        round_.found("broken", f"{attempt.name} said nothing: {outcome}", script)
    elif got_out:
        round_.escape(f"{attempt.name} succeeded", script)
    if box.fingerprint() != before:
        round_.escape(f"{attempt.name} changed files of the host", script)
    if reached := heard.heard():
        round_.escape(f"{attempt.name} reached services of the host: {reached}", script)
    carried = b"".join(file.data for file in outcome.files) + outcome.stdout
    if attempt.also == NOTHING:
        round_.secret_in(attempt.name, carried, script)


def run(round_: Round, sandbox: Runner, job: Job) -> Outcome | None:
    """Run a job as the identity, and check that nothing of it is left when it returns."""
    try:
        outcome = as_user(round_.identity, lambda: sandbox.run(job))
    except MetierError as error:
        round_.found("broken", f"a run could not start: {error} {getattr(error, 'tried', '')}")
        return None
    if left := measure.inside(os.getpid()):
        round_.found("survivor", f"{len(left)} processes are left when a run returns")
    return outcome


def _verdict(outcome: Outcome) -> bool | None:
    if not outcome.stdout and outcome.exit_code == 128 + 31:
        return False  # killed by the filter
    try:
        return bool(json.loads(outcome.stdout)[0])
    except ValueError:
        return None


@contextlib.contextmanager
def _socket_in(box: Box) -> Generator[None, None, None]:
    """A service of the host whose socket lies in the project."""
    with socket.socket(socket.AF_UNIX) as service:
        here = os.open(box.project, os.O_RDONLY)
        service.bind(f"/proc/self/fd/{here}/s")  # the whole path may be too long for an address
        os.close(here)
        os.chmod(box.project / "s", 0o777)
        service.listen()
        yield
