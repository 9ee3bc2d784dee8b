"""The attack suite finds nothing in Metier, and finds something as soon as a protection is taken out.

Each family is run for a moment, as root and as an ordinary user. `make attack` and CI run the same for longer.
"""

import dataclasses
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import parts
from bench.attack import families, probes, rounds
from bench.attack.boxes import IDENTITIES, as_user
from bench.attack.containers import NOT_HERE
from bench.attack.engines import ENGINES
from bench.attack.families import FAMILIES
from bench.attack.rounds import Plan, Result
from metier.adapters.conversation import Conversations
from metier.catalog import modes
from metier.files import beneath, source, tree
from metier.hosts import trust
from metier.policy import asking, windows
from metier.policy import rules as policy_rules
from metier.record.store import parse_frame, sql
from metier.record.store.sqlite_file import SqliteFile
from metier.running.grants import folder
from metier.running.packages import declared, node, programs
from metier.running.sandbox import Job, OnOutput, Outcome, Runner, container
from metier.running.sandbox.bubblewrap import BubblewrapRunner
from metier.running.sandbox.runners import choose
from metier.running.sandbox.unsandboxed import UnsandboxedRunner
from metier.session import operations
from metier.session.visibility import Visibility
from metier.sources.install import archive
from metier.surfaces.chat import history
from metier.values.network import HostList

RUNS_SCRIPTS = ("races", "sandbox", "hosts", "limits", "project", "kills", "approvals")


@pytest.fixture
def identity() -> str:
    """An ordinary user, where the tests may become one."""
    return IDENTITIES[-1]


def attacked(family: str, identity: str, *, number: int = 0, seconds: float = 1.5, enough: int = 20) -> Result:
    """One round of a family. In CI, scripts must be able to run; elsewhere the families that need it are skipped."""
    if family in RUNS_SCRIPTS and (problem := as_user(identity, lambda: BubblewrapRunner().problem())) is not None:
        parts.missing("bwrap", f"{identity}: {problem}")
    result = rounds.run(Plan(family, 1, number, identity, seconds, enough), FAMILIES[family])
    for finding in result.findings:
        if finding.what.startswith(NOT_HERE):
            parts.missing(family, finding.what)
    return result


@pytest.mark.parametrize(
    ("family", "identity"), [(family, identity) for family in FAMILIES for identity in families.identities(family)]
)
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
    monkeypatch.setattr(tree, "OPEN", os.O_RDONLY | os.O_CLOEXEC)
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


@pytest.mark.parametrize("name", ENGINES)
def test_a_container_that_may_start_more_processes_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = container._Run.__init__

    def wider(self: container._Run, engine: container.Engine, name: str, line: list[str]) -> None:
        at = line.index("--pids-limit") + 1
        started(self, engine, name, [*line[:at], "99", *line[at + 1 :]])

    monkeypatch.setattr(container._Run, "__init__", wider)
    monkeypatch.setattr(container, "_FIRST", container._FIRST.replace('"gaps": gaps(job)', '"gaps": []'))
    assert "limit" in kinds(attacked(name, IDENTITIES[0], number=4, enough=1))


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
    def credulous(data: bytes) -> list[tree.TreeFile]:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            return [tree.TreeFile(name, opened.read(name), False) for name in opened.namelist()]

    monkeypatch.setattr(archive, "unpack", credulous)
    assert "escape" in kinds(attacked("archives", identity, seconds=20, enough=1))


def test_a_clone_that_counts_as_trusted_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Everything(dict[str, Any]):
        def __contains__(self, path: object) -> bool:
            return True

    def trusted(*_: object) -> dict[str, Any]:
        return Everything()

    for module in (trust, modes):
        monkeypatch.setattr(module, "trusted_projects", trusted)
    assert kinds(attacked("repositories", identity, seconds=20, enough=1)) == {"escape"}


@pytest.mark.parametrize("language", ["node", "python"])
def test_packages_that_nobody_checks_are_found(identity: str, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def credulous(*_: object) -> bool:
        return True

    def as_it_is(text: str) -> str:
        return text

    if language == "node":
        monkeypatch.setattr(node, "is_registry_package", credulous)
    else:
        monkeypatch.setattr(declared, "requirement", as_it_is)
    assert "escape" in kinds(attacked("packages", identity, seconds=60, enough=1))


def test_a_script_that_is_taken_from_disk_after_the_answer_is_found(
    identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, lambda: Weakened(from_the_folder))
    assert kinds(attacked("approvals", identity, seconds=20, enough=1)) == {"escape"}


def test_an_index_whose_packages_are_built_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    call = programs.call

    def building(command: Sequence[str], **given: Any) -> str:
        return call([word for word in command if word != "--no-build"], **given)

    monkeypatch.setattr(programs, "call", building)
    assert "escape" in kinds(attacked("packages", IDENTITIES[0], seconds=60, enough=1))


def test_an_answer_that_counts_as_a_yes_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "read_answer", lambda given: "once" if given else "no")
    assert "escape" in kinds(attacked("approvals", identity, number=4, seconds=20, enough=1))


def test_a_private_folder_that_is_shown_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_private", lambda *_: "")
    assert "escape" in kinds(attacked("project", identity, seconds=10, enough=1))


conversation_of = Conversations.of
WEAKER: dict[str, tuple[str, object, str, object]] = {
    "spellings": ("rules", policy_rules, "_check_path", lambda *_: None),
    "windows": ("rules", windows, "_commands", lambda line: [line.split()]),
    "switches": ("rules", Visibility, "refuse_off", lambda *_: None),
    "links": ("rules", source, "location", lambda *_: ""),
    "the file": ("records", SqliteFile, "_check_same", lambda *_: None),
    "the columns": ("records", sql, "frame_of", lambda row: parse_frame(row[1])),
    "the ids": ("records", Conversations, "of", lambda several, id_: conversation_of(several, id_.strip().lower())),
}


@pytest.mark.parametrize("what", WEAKER)
def test_what_does_not_hold_any_more_is_found(what: str, identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, place, name, weaker = WEAKER[what]
    monkeypatch.setattr(place, name, weaker)
    assert kinds(attacked(family, identity, seconds=20, enough=1)) == {"escape"}


def test_a_result_that_is_cut_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_notice", lambda card, output, again: card.text[:200])
    assert "escape" in kinds(attacked("messages", identity, seconds=10, enough=1))


def test_a_message_that_nobody_foresaw_is_found(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("not foreseen")

    monkeypatch.setattr(operations.Load, "perform", fails)
    # The answer of the server is wrong, or no answer can be read because it printed a traceback.
    assert kinds(attacked("messages", identity, seconds=10, enough=1)) & {"escape", "broken"}
