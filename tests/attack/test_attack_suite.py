"""The attack suite finds nothing in Metier, and finds something as soon as a protection is taken out.

Each family is run for a moment, as root and as an ordinary user. `make attack` runs the same for longer.
"""

import dataclasses
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable

import pytest

import parts
from bench.attack import families, probes, rounds
from bench.attack.__main__ import Tally, main, table
from bench.attack.families import FAMILIES
from bench.attack.project import guarded
from bench.attack.rounds import Plan, Result, Round
from metier.catalog import foreign, modes
from metier.files import beneath, tree
from metier.hosts import trust
from metier.install import archive
from metier.sandbox import Job, OnOutput, Outcome, Runner, choose
from metier.sandbox.bubblewrap import BubblewrapRunner
from metier.sandbox.hosts import HostList
from metier.sandbox.unsandboxed import UnsandboxedRunner
from metier.session import operations
from sandbox.boxes import IDENTITIES, as_user

RUNS_SCRIPTS = ("races", "sandbox", "hosts", "limits", "project", "kills", "approvals")


@pytest.fixture(params=IDENTITIES)
def identity(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def attacked(family: str, identity: str, *, number: int = 0, seconds: float = 1.5, enough: int = 20) -> Result:
    """One round of a family. In CI, scripts must be able to run; elsewhere the families that need it are skipped."""
    if family in RUNS_SCRIPTS and (problem := as_user(identity, lambda: BubblewrapRunner().problem())) is not None:
        parts.missing("bwrap", f"{identity}: {problem}")
    return rounds.run(Plan(family, 1, number, identity, seconds, enough), FAMILIES[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_short_attack_finds_nothing(family: str, identity: str) -> None:
    result = attacked(family, identity)
    assert [finding.what for finding in result.findings] == []
    assert result.attempts > 0


# --- with a protection taken out ---


class Weakened:
    """A sandbox that is given other jobs than it should."""

    name = "bubblewrap"

    def __init__(self, change: Callable[[Job], Job]) -> None:
        self._runner, self._change = choose(), change

    def problem(self) -> str | None:
        return self._runner.problem()

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        return self._runner.run(self._change(job), on_output)

    async def arun(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        return await self._runner.arun(self._change(job), on_output)


def without_limits(job: Job) -> Job:
    wider = {
        name: getattr(job.limits, name) * 3
        for name in ("memory_bytes", "processes", "output_bytes", "work_bytes", "file_bytes")
    }
    return dataclasses.replace(job, limits=dataclasses.replace(job.limits, **wider))


def from_the_folder(job: Job) -> Job:
    """What runs is what is on disk when the run starts, not what was approved."""
    return dataclasses.replace(job, tree=None)


def use(monkeypatch: pytest.MonkeyPatch, runner: Callable[[], Runner]) -> None:
    monkeypatch.setattr(probes, "runner", runner)


def kinds(result: Result) -> set[str]:
    return {finding.kind for finding in result.findings}


def test_paths_that_are_opened_anywhere_are_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def anywhere(folder: int, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder)

    monkeypatch.setattr(beneath, "_open", anywhere)
    assert kinds(attacked("paths", identity, number=1, seconds=10, enough=1)) == {"escape"}


def test_a_check_before_opening_loses_a_race_and_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_OPEN", os.O_RDONLY | os.O_CLOEXEC)
    assert kinds(attacked("races", identity, seconds=20, enough=1)) == {"escape"}


def test_scripts_without_a_sandbox_are_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, UnsandboxedRunner)
    assert "escape" in kinds(attacked("sandbox", identity, seconds=10, enough=1))


def test_hosts_that_nobody_checks_are_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostList, "allows", lambda *_: True)
    assert "escape" in kinds(attacked("hosts", identity, seconds=10, enough=1))


@pytest.mark.parametrize("number", [4, 5], ids=["processes", "output"])
def test_limits_that_are_not_kept_are_found(number: int, identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda: Weakened(without_limits))
    assert "limit" in kinds(attacked("limits", identity, number=number, seconds=5, enough=1))


def test_a_project_that_a_script_writes_to_itself_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, UnsandboxedRunner)
    assert "escape" in kinds(attacked("project", identity, seconds=10, enough=1))


def test_processes_that_outlive_the_host_are_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, UnsandboxedRunner)
    monkeypatch.setattr("bench.attack.kills.WAIT", 1.0)
    assert "survivor" in kinds(attacked("kills", identity, seconds=20, enough=1))


def test_a_server_that_takes_any_token_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def equal(one: object, other: object) -> bool:
        return True

    monkeypatch.setattr("hmac.compare_digest", equal)
    assert "escape" in kinds(attacked("http", identity, seconds=120, enough=1))


def test_an_archive_that_is_unpacked_as_it_is_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def credulous(data: bytes) -> list[archive.ArchiveEntry]:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            return [archive.ArchiveEntry(name, opened.read(name), False) for name in opened.namelist()]

    monkeypatch.setattr(archive, "unpack", credulous)
    assert "escape" in kinds(attacked("archives", identity, seconds=20, enough=1))


def test_a_clone_that_counts_as_trusted_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Everything(list[str]):
        def __contains__(self, path: object) -> bool:
            return True

    def trusted(*_: object) -> list[str]:
        return Everything()

    for module in (trust, modes, foreign):
        monkeypatch.setattr(module, "trusted_projects", trusted)
    assert kinds(attacked("repositories", identity, seconds=20, enough=1)) == {"escape"}


def test_a_script_that_is_taken_from_disk_after_the_answer_is_found(
    identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, lambda: Weakened(from_the_folder))
    assert kinds(attacked("approvals", identity, seconds=20, enough=1)) == {"escape"}


def test_a_message_that_nobody_foresaw_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("not foreseen")

    monkeypatch.setattr(operations.Load, "perform", fails)
    # The answer of the server is wrong, or no answer can be read because it printed a traceback.
    assert kinds(attacked("messages", identity, seconds=10, enough=1)) & {"escape", "broken"}


# --- the harness itself ---


def test_what_a_round_leaves_behind_is_found_and_removed(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE", 0.5)

    def leaves(round_: Round) -> None:
        round_.tried()
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        (round_.folder / "tmp" / "left").touch()

    result = rounds.run(Plan("paths", 1, 0, identity, 0.1), leaves)
    assert [finding.kind for finding in result.findings] == ["survivor", "survivor"]
    assert "time.sleep(600)" in result.findings[0].what


def test_a_round_that_fails_proves_nothing_and_counts_as_bad(identity: str) -> None:
    def fails(round_: Round) -> None:
        raise ValueError("no attack")

    result = rounds.run(Plan("paths", 1, 0, identity, 0.1), fails)
    tally = Tally()
    tally.add(result)
    assert [finding.kind for finding in result.findings] == ["broken"]
    assert tally.bad
    assert "broken" in table({("paths", identity): tally})


def test_a_round_says_how_to_repeat_it() -> None:
    again = Plan("kills", 7, 3, "nobody").again()
    assert again == "python -m bench.attack --only kills --seed 7 --number 3 --identity nobody --seconds 4"


def test_the_command_ends_with_1_if_something_is_found_and_2_if_it_is_misused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def escapes(round_: Round) -> None:
        round_.tried()
        round_.escape("it got out", "the script")

    def nothing(round_: Round) -> None:
        round_.tried()

    def run(family: str, attack: rounds.Attack) -> int:
        monkeypatch.setattr(families, "FAMILIES", {"paths": attack})
        monkeypatch.setattr(sys, "argv", ["attack", "--only", family, "--minutes", "0"])
        return main()

    assert run("none", nothing) == 2
    assert run("paths", nothing) == 0
    assert run("paths", escapes) == 1
    said = capsys.readouterr().out
    assert "it got out" in said
    assert "the script" in said
    assert "repeat it: python -m bench.attack --only paths --seed 1 --number 0" in said


def test_a_guarded_path_is_known_in_every_spelling() -> None:
    guarded_ones = (".git/hooks/x", "a/.GIT/config", ".g\u200cit/x", "sub/agents.MD", "x/.Metier./y", "s/SKILL.md")
    assert all(map(guarded, guarded_ones))
    assert not any(map(guarded, ("git/x", "notes.md", "docs/agents.txt", ".gitignore")))
