"""Attempts to break out of the sandbox fail, as seen from inside and outside. Each succeeds without the sandbox."""

import json
import os
import socket
import subprocess
import uuid
from collections.abc import Generator
from dataclasses import replace

import pytest

import parts
from bench.attack.attempts import ATTEMPTS, NOTHING, Attempt, Grant
from bench.attack.boxes import IDENTITIES, IS_ROOT, NOBODY, Box, Case, a_box, a_victim, as_user, knowledge, listeners
from metier.running.sandbox import Job, Outcome, RunLimits
from metier.running.sandbox.unsandboxed import UnsandboxedRunner

pytest_plugins = ["running.sandbox.sandbox_fixtures"]


@pytest.fixture(params=IDENTITIES)
def identity(request: pytest.FixtureRequest) -> str:
    return str(request.param)


LIMITS = RunLimits(seconds=30, processes=24)
TOKEN = uuid.uuid4().hex


def with_control(*controls: str) -> pytest.MarkDecorator:
    chosen = [attempt for attempt in ATTEMPTS if attempt.control in controls]
    return pytest.mark.parametrize("attempt", chosen, ids=lambda attempt: attempt.name)


by_name = with_control("none", "root", "grant", "")


@pytest.fixture(scope="module")
def victim() -> Generator[subprocess.Popen[bytes]]:
    with a_victim(TOKEN) as process:
        yield process


@pytest.fixture
def box() -> Generator[Box]:
    with a_box(TOKEN) as made:
        yield made


def job_for(box: Box, attempt: Attempt, grant: Grant, known: str) -> Job:
    return box.job(
        box.script("attempt.py", attempt.text()),
        stdin=known.encode(),
        limits=LIMITS,
        network=grant.network,
        env={"METIER_SECRET": "granted"} if grant.secret else {},
        project=str(box.project) if grant.project else None,
        project_writable=grant.project_writable,
        cwd=str(box.project) if grant.works_there else None,
    )


def verdict(outcome: Outcome) -> tuple[bool, str]:
    """Whether an attempt reported success. Being killed by the filter is a failure; no report is an error."""
    if not outcome.stdout and outcome.exit_code == 128 + 31:
        return False, "killed by the filter"
    out, detail = json.loads(outcome.stdout)
    return out, detail


@pytest.mark.system
@by_name
def test_an_attempt_does_not_get_out(
    case: Case, attempt: Attempt, victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METIER_SECRET", case.box.token)
    with listeners(case.box) as heard:
        job = job_for(case.box, attempt, attempt.also, knowledge(case.box, heard, victim.pid))
        before = case.box.fingerprint()
        outcome = as_user(case.identity, lambda: case.runner.run(job))
        assert verdict(outcome)[0] is False, outcome
        assert case.box.fingerprint() == before
        assert heard.heard() == []
        assert victim.poll() is None
        carried = b"".join(file.data for file in outcome.files) + outcome.stdout
        assert attempt.also != NOTHING or case.box.token.encode() not in carried


@pytest.mark.system
@with_control("none", "root")
def test_the_same_attempt_gets_out_where_nothing_stops_it(
    attempt: Attempt, unprotected: UnsandboxedRunner, box: Box, victim: subprocess.Popen[bytes]
) -> None:
    if attempt.control == "root" and not IS_ROOT:
        pytest.skip("only root could do it without a sandbox")
    if "bwrap" in attempt.body:
        parts.require("bwrap")
    with listeners(box) as heard:
        grant = replace(attempt.also, project=True) if "PROJECT_DIR" in attempt.body else attempt.also
        # Without a sandbox, a script is in the folder of the user only if it may write there.
        grant = replace(grant, project_writable=True) if grant.works_there else grant
        job = job_for(box, attempt, grant, knowledge(box, heard, victim.pid))
        outcome = unprotected.run(job)
        assert verdict(outcome)[0] is True, outcome
        assert outcome.protections == ()


@pytest.mark.system
@with_control("grant")
def test_the_same_attempt_succeeds_where_it_is_granted(
    case: Case, attempt: Attempt, victim: subprocess.Popen[bytes]
) -> None:
    with listeners(case.box) as heard:
        if heard.tcp6 is None and attempt.name.startswith("tcp6"):
            pytest.skip("this machine has no IPv6")
        if case.identity == "nobody":
            for path in (case.box.project, case.box.project / "notes.txt"):
                os.chown(path, NOBODY, NOBODY)  # a grant cannot exceed the rights of the launcher
        job = job_for(case.box, attempt, attempt.grant, knowledge(case.box, heard, victim.pid))
        outcome = as_user(case.identity, lambda: case.runner.run(job))
        assert verdict(outcome)[0] is True, outcome
        reached = {"tcp-to-the-host": "tcp", "tcp6-to-the-host": "tcp6", "udp-to-the-host": "udp", "dns-query": "udp"}
        assert heard.heard() == ([reached[attempt.name]] if attempt.name in reached else [])
        assert ("no-network" in outcome.protections) is not job.network


@pytest.mark.system
def test_a_descriptor_that_the_host_lets_slip_does_not_reach_the_script(case: Case) -> None:
    descriptor = os.open(case.box.secret, os.O_RDONLY)
    left, right = socket.socketpair()
    try:
        for slipped in (descriptor, left.fileno()):
            os.set_inheritable(slipped, True)
        text = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
        assert case.run(text).stdout == b"[0, 1, 2, 3]\n"  # 3 is the listing itself
    finally:
        os.close(descriptor)
        left.close()
        right.close()
