"""The container runner: what a broken engine or container can do to the host, with a program that plays the engine."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.attack.boxes import Box
from metier.files import process
from metier.running.sandbox import Job, Outcome, RunLimits, SandboxUnavailable, ScriptRefused, container
from metier.running.sandbox.container import ContainerRunner
from metier.running.sandbox.runners import choose

pytest_plugins = ["running.sandbox.sandbox_fixtures"]

pytestmark = pytest.mark.containers

LIMITS = RunLimits(seconds=20, work_bytes=1 << 20, file_bytes=1 << 19, files=4)
GOOD = {"gaps": [], "program": "/usr/bin/python3", "machine": "x86_64"}
DONE = [("X", '{"code": 0, "ended": ""}'), (".", "")]

PROGRAM = """#!{python} -IS
import json, os, sys, time
folder, words = os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]
with open(folder + "/plan") as file: plan = json.load(file)
with open(folder + "/log", "a") as file: file.write(json.dumps(words) + chr(10))
def take():
    return sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), "big"))
def send(kind, text):
    data = text.encode("utf-8", "surrogateescape")
    os.write(1, kind.encode() + len(data).to_bytes(4, "big") + data)
for start, (status, said, complaint) in plan["answers"].items():
    if " ".join(words).startswith(start):
        sys.stderr.write(complaint)
        sys.stdout.write(said)
        sys.exit(status)
if words[0] == "run" and "--rm" in words:
    with open(folder + "/told", "wb") as file: file.write(take())
    sys.stderr.write(plan["complaint"])
    os.write(1, bytes.fromhex(plan["raw"]))
    if plan["report"] is None: sys.exit(1)
    send("R", json.dumps(plan["report"]))
    if not take(): sys.exit(0)
    take()
    with open(folder + "/went", "w"): pass
    for kind, text in plan["frames"]: send(kind, text)
    if plan["hangs"]: time.sleep(60)
    sys.exit(plan["status"])
"""


class FakeEngine:
    """A program `podman` or `docker` that answers as it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = {"answers": {}, "complaint": "", "raw": "", "report": GOOD, "frames": DONE}
        self.plan |= {"hangs": False, "status": 0}
        self.install("podman")

    def install(self, name: str) -> None:
        for other in container.ENGINES:
            (self.folder / other).unlink(missing_ok=True)
        (self.folder / name).write_text(PROGRAM.replace("{python}", sys.executable))
        (self.folder / name).chmod(0o755)

    def answers(self, start: str, said: str = "", status: int = 0, complaint: str = "") -> None:
        self.plan["answers"][start] = (status, said, complaint)
        self.write()

    def write(self, **changed: object) -> None:
        self.plan |= changed
        (self.folder / "plan").write_text(json.dumps(self.plan))

    def commands(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    @property
    def went(self) -> bool:
        return (self.folder / "went").exists()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    monkeypatch.setattr(container, "END_SECONDS", 0.5)
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    container.engine_for.cache_clear()
    made = FakeEngine(tmp_path)
    (tmp_path / "log").touch()
    made.write()
    return made


def job_in(box: Box) -> Job:
    return box.job(box.script("run.py", "print('hello')"), limits=LIMITS)


def run(engine: FakeEngine, box: Box, job: Job | None = None) -> Outcome:
    try:
        return ContainerRunner("image").run(job or job_in(box))
    finally:
        made = [words[words.index("--name") + 1] for words in engine.commands() if "--volume" in words[:-1]]
        made = [name for name in made if name.endswith("-files")]
        assert all(["rm", "--force", "--volumes", name] in engine.commands() for name in made), "nothing is left"


def test_a_run_asks_the_engine_for_every_protection_and_removes_everything(engine: FakeEngine, box: Box) -> None:
    frames = [("O", "hello\n"), ("X", '{"code": 3, "ended": ""}'), ("F", "a"), ("D", "one"), ("F", "b/c"), ("D", "t")]
    engine.write(frames=[*frames, ("D", "wo"), ("L", "l\0link"), (".", "")])
    outcome = run(engine, box, replace(job_in(box), env={"API_KEY": "s3cret"}, argv=("word",)))
    assert (outcome.exit_code, outcome.ended, outcome.stdout) == (3, "exit", b"hello\n")
    assert [(file.path, file.data) for file in outcome.files] == [("a", b"one"), ("b/c", b"two")]
    assert outcome.left_out == ("l: link",)
    assert {"no-network", "no-capabilities", "seccomp", "limit-memory"} <= set(outcome.protections)
    assert "ends-with-host" not in outcome.protections, "only the engine could promise it"
    unpacked, started = (" ".join(words) for words in engine.commands() if words[0] == "run")
    assert "--rm" in started
    for line in (unpacked, started):
        for flags in ("--pull never", "--network none", "--cap-drop ALL", "--read-only", "no-new-privileges"):
            assert flags in line
        assert "s3cret" not in line, "the engine never sees a variable"
    memory = LIMITS.memory_bytes
    for flags in (
        f"--memory {memory} --memory-swap {memory}",
        "--pids-limit 65",
        "--user 65532:65532",
        "-files:ro --user",
    ):
        assert flags in started
    mounts = [word for word in started.split() if word.count(":") == 2 and word.endswith(":ro")]
    assert [mount.split(":")[0] for mount in mounts if not mount.startswith("metier-")] == ["/dev/null"] * 2
    assert b"s3cret" in (engine.folder / "told").read_bytes()


PLANS: list[tuple[dict[str, Any], str]] = [
    ({"report": {**GOOD, "gaps": ["capabilities are left"]}}, "capabilities are left"),
    ({"report": {**GOOD, "gaps": None}}, "no filter for x86_64"),
    ({"report": {**GOOD, "machine": "mips"}}, "no filter for mips"),
    ({"report": {}}, "no filter"),
    ({"report": None}, "ended early"),
    ({"report": None, "complaint": 'Error: exec: "python3": not found\nRun help\n'}, '"python3": not found'),
    ({"raw": b"R\xff\xff\xff\xff".hex()}, "too long"),
    ({"raw": b"R\0\0\0\1{".hex()}, "makes no sense"),
    ({"raw": b"Q\0\0\0\2{}".hex()}, "no filter"),
]


def test_a_script_does_not_start_if_a_protection_is_missing(engine: FakeEngine, box: Box) -> None:
    reported: list[object] = []
    for plan, why in PLANS:
        engine.write(**{"report": GOOD, "raw": "", "complaint": "", **plan})
        with pytest.raises(SandboxUnavailable) as refused:
            run(engine, box, replace(job_in(box), on_started=reported.append))
        assert why in " ".join((str(refused.value), *refused.value.tried)), plan
    engine.write(report={**GOOD, "program": ""}, raw="", complaint="")
    with pytest.raises(ScriptRefused, match="needs python3, which the image image does not have"):
        run(engine, box)
    engine.write(report=GOOD)
    with (box.project / "large").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(ScriptRefused, match="256 MiB or 20,000 files and folders, which is too much"):
        run(engine, box, replace(job_in(box), project=str(box.project)))
    assert (engine.went, reported) == (False, [])


@pytest.mark.parametrize("command", ["version", "image inspect", "run"])
def test_a_command_that_fails_is_a_sandbox_that_does_not_work(engine: FakeEngine, box: Box, command: str) -> None:
    engine.answers(command, status=125, complaint="Error: no container today\n")
    with pytest.raises(SandboxUnavailable):
        run(engine, box)
    assert ContainerRunner("image").problem()


def test_a_run_that_ends_badly_is_an_outcome_that_says_so_and_is_removed(engine: FakeEngine, box: Box) -> None:
    engine.write(frames=[("O", "begun\n")], status=1)
    outcome = run(engine, box)
    assert (outcome.ended, outcome.exit_code, outcome.stdout, outcome.files) == ("killed", 137, b"begun\n", ())
    assert outcome.notes == ("the container ended early",)
    assert "could not be fetched" in outcome.left_out[0]
    engine.write(frames=[*[("E", "x" * (1 << 15))] * 40, *DONE], status=0)
    outcome = run(engine, box, replace(job_in(box), limits=replace(LIMITS, output_bytes=1000)))
    assert (outcome.ended, len(outcome.stderr)) == ("output-limit", 1000)
    (engine.folder / "log").write_text("")
    engine.write(frames=[], hangs=True)
    outcome = run(engine, box, replace(job_in(box), limits=replace(LIMITS, seconds=0.2)))
    assert (outcome.ended, outcome.files) == ("timeout", ())
    assert [words[0] for words in engine.commands() if words[0] in ("kill", "rm")] == ["kill", "rm", "rm"]


PIECE = ("D", "x" * (1 << 15))
NAMES = ("../up", "/etc/passwd", "a/../../b", "a//b", "a/./b", "", "a\0b")
BAD_FILES: list[list[tuple[str, str]]] = [
    *([("F", name)] for name in NAMES),
    [("F", "a"), ("F", "a")],
    [("F", str(number)) for number in range(5)],
    [("F", "a"), *[PIECE] * 17],
    [("F", "a"), *[PIECE] * 15, ("F", "b"), *[PIECE] * 15, ("F", "c"), *[PIECE] * 3],
    [("Q", "")],
]


def test_files_that_cannot_be_in_the_work_folder_bring_nothing(engine: FakeEngine, box: Box) -> None:
    for frames in BAD_FILES:
        engine.write(frames=[DONE[0], *frames, DONE[1]])
        outcome = run(engine, box)
        assert (outcome.exit_code, outcome.files) == (0, ()), frames
        assert "could not be fetched: the container sends" in outcome.left_out[0]


def test_what_this_runner_does_not_know_is_refused_and_never_ignored(engine: FakeEngine, box: Box) -> None:
    for what, job in (
        ("project_writable", replace(job_in(box), project=str(box.project), project_writable=True)),
        ("hosts", replace(job_in(box), hosts=("api.example.org",))),
    ):
        with pytest.raises(SandboxUnavailable, match=f"does not support {what}"):
            run(engine, box, job)
    assert not engine.went


def test_an_engine_or_image_that_is_not_there_is_a_problem_with_a_way_out(engine: FakeEngine, box: Box) -> None:
    engine.answers("image inspect", status=1, complaint="Error: no such image\n")
    runner = ContainerRunner("docker.io/library/python:3.13-slim")
    assert "is not there" in str(runner.problem())
    assert runner.remedy() == "podman pull docker.io/library/python:3.13-slim"
    with pytest.raises(SandboxUnavailable) as refused:
        runner.run(job_in(box))
    assert refused.value.install == runner.remedy()
    engine.answers("image inspect")
    assert runner.problem() is None, "as soon as the user has pulled it"
    engine.answers("run", status=126, complaint="Error: crun: cgroups in hybrid mode not supported\n")
    with pytest.raises(SandboxUnavailable, match="crun: cgroups in hybrid mode not supported") as refused:
        choose(["container"], image="image-for-crun")
    assert 'runtime = "runc"' in refused.value.install
    (engine.folder / "podman").unlink()
    container.engine_for.cache_clear()
    assert "neither podman nor docker is installed" in str(ContainerRunner("image").problem())


def test_a_container_is_used_only_if_it_is_named(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metier.running.sandbox.bubblewrap.shutil.which", lambda _: None)
    with pytest.raises(SandboxUnavailable, match="bwrap is not installed"):
        choose()
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(engine.folder))
    assert choose(["bubblewrap", "container"], image="image").name == "container"
    with pytest.raises(SandboxUnavailable, match=r"run\.sandbox is empty"):
        choose([])


def test_what_a_killed_host_left_is_removed_and_nothing_else(engine: FakeEngine) -> None:
    code = "from metier.files import process; print(process.current())"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    place, pid, _ = process.current().split("-")
    owners = [dead, f"{place}-{pid}-1", process.current(), "other-1-1", f"{place}-x-1", "odd"]
    names = [f"metier-{owner}-0123456789abcdef" for owner in owners]
    engine.answers("ps", "\n".join(names))
    assert ContainerRunner("image").problem() is None
    removed = [words[-1] for words in engine.commands() if "--force" in words and words[-1] in names]
    assert removed == names[:2]
