"""The folder of the user in which a script runs.

A run happens in the working folder, which the script can read; what it writes there stays in memory. The home folder,
hidden folders in it, those of Metier, what contains one of these, and folders of the system are never shown, whoever
asks: keys and settings are there. Folders that users share are shown only where a rule or the person says so. The
invariant: what a question names is what the script is shown, and nothing else of the user.
"""

import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

from metier.errors import PolicyDenied
from metier.files.text import storable_text
from metier.hosts.settings import Settings
from metier.policy.decide import Policy
from metier.running.grants import RunGrant
from metier.running.sandbox import Job, Outcome, is_within
from metier.running.scripts import WantedRun
from metier.values.grants import WRITES, Entry
from metier.values.results import Request
from metier.values.skill import JsonObject

READS: Final = "run_project"

_SYSTEM: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/proc", "/run", "/sbin", "/sys"),
    *("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share", "/usr/local/bin"),
    *("/usr/local/lib", "/skill", "/init", "/metier-work"),
)
"""Folders of the system, and those that a sandbox has at this place. Nothing in them or above them is shown."""
_SHARED: Final = ("/home", "/root", "/tmp", "/var", "/Users")  # noqa: S108 - folders of other people and programs
_NETWORK: Final = (
    "it ran in an empty folder, because it has the network; --folder or a rule that allows run_project shows yours"
)
_WAY_TO_WRITE: Final = (
    "a run with --write PATH, or a rule of the user that allows run_project_write with that path, brings changes back"
)


@dataclass(frozen=True, kw_only=True)
class FolderGrant(RunGrant):
    """The folder that a script is shown. Empty paths: it runs in an empty folder."""

    kind: ClassVar[str] = "folder"

    path: str = ""
    """The whole folder that it can read."""
    cwd: str = ""
    """The current folder, which is that folder or lies in it."""
    named: tuple[str, ...] = ()
    """What the script may change there besides adding data: globs, relative to that folder."""
    note: str = field(default="", compare=False)
    """Why there is no folder, if that may surprise."""

    @property
    def writable(self) -> bool:
        return bool(self.path) and WRITES in self.tools

    @classmethod
    def check(cls, run: WantedRun) -> None:
        if not run.write:
            return
        request, policy = run.request(WRITES), run.policy
        decision = policy.decide(request)
        if decision.verdict == "deny" and decision.rule is not None:
            raise policy.denied(request, decision)
        if decision.verdict == "deny" and policy.name == "read-only":
            raise PolicyDenied(WRITES, request.skill_name, "the policy 'read-only' lets nothing be written")

    @classmethod
    def plan(cls, run: WantedRun) -> Self:
        chosen, tools = cls.chosen(run.settings, run.policy, run.request(READS), run.folder), run.allowed(cls.kind)
        if not chosen.path or not (run.write or WRITES in tools):
            return replace(chosen, tools=tools)
        ruled = run.policy.written(run.request(WRITES)) if WRITES in tools else ()
        named = tuple(dict.fromkeys((*ruled, *map(chosen.inside, run.write_paths))))
        asked = WRITES not in tools or named != ruled
        return replace(chosen, tools=tuple(dict.fromkeys((*tools, WRITES))), named=named, asked=asked)

    def inside(self, name: str) -> str:
        """A glob relative to the current folder as one relative to the whole folder."""
        below = os.path.relpath(self.cwd, self.path)
        return name if below == "." else f"{glob.escape(storable_text(below))}/{name}"

    @classmethod
    def chosen(cls, settings: Settings, policy: Policy, about: Request, named: str | None = None) -> Self:
        """The folder for a script that `about` is about, which a person may have named."""
        place = settings.place
        reading, writing = (policy.decide(replace(about, tool=tool)) for tool in (READS, WRITES))
        by_rule = "allow" in (reading.verdict, writing.verdict)
        if reading.verdict == "deny" and reading.rule is not None:
            return cls(note="it ran in an empty folder, because a rule denies run_project")
        if named is None and not by_rule:
            if settings.profile.run.folder == "none":
                return cls()
            if policy.decide(replace(about, tool="run_network")).verdict == "allow":  # it could send the folder away
                return cls(note=_NETWORK)
        cwd = os.path.realpath(named if named is not None else place.cwd)
        path = os.path.realpath(place.project) if by_rule and named is None else cwd
        if not is_within(cwd, path):
            path = cwd
        flaw, how = _flaw(path) or _private(path, settings), "work in another folder, or name one with --folder"
        if not flaw and not by_rule and named is None and any(is_within(shared, path) for shared in _SHARED):
            flaw = "holds the folders of users, which scripts are not shown by default"
            how = "--folder or a rule that allows run_project shows it"
        if flaw:
            return cls(note=f"it ran in an empty folder: {storable_text(path)} {flaw}; {how}")
        return cls(path=path, cwd=cwd)

    def facts(self) -> Iterator[tuple[str, str]]:
        sees = "It sees only its own files and an empty work folder."
        if self.writable:
            changes = (
                f"New data files come back{', and every change to ' if self.named else ''}{', '.join(self.named)}."
            )
            sees = f"It sees its own files, reads the folder {self.path} and writes to it. {changes}"
        elif self.path:
            kept = "What it changes there is dropped, and new files are kept aside."
            sees = f"It sees its own files and reads the folder {self.path}. {kept}"
        yield "Files", sees

    def covers(self) -> Mapping[str, Entry]:
        named = {"changes": self.named} if self.named else {}
        return {"writes" if self.writable else "reads": storable_text(self.path), **named} if self.path else {}

    def lasts(self) -> tuple[str, str]:
        doing = "writes to" if self.writable else "reads"
        return f"where it {doing} the folder {self.path}" if self.path else "", ""

    def shown(self) -> JsonObject:
        return {"project": storable_text(self.path), "changes": self.named}

    def data(self) -> JsonObject:
        paths = {"path": storable_text(self.path), "cwd": storable_text(self.cwd)}
        return {**super().data(), **paths} if self.path else super().data()

    def into(self, job: Job, run: WantedRun) -> Job:
        if not self.path:
            return job
        return replace(job, project=self.path, project_writable=self.writable, project_named=self.named, cwd=self.cwd)

    def notes(self, run: WantedRun, outcome: Outcome) -> Iterator[str]:
        if self.note:
            yield self.note
        if outcome.refused and self.cwd:
            yield _WAY_TO_WRITE


def _flaw(folder: str) -> str:
    """Why a folder can never be shown at its own path, as the end of a sentence."""
    if not os.path.isdir(folder):
        return "is not a folder"
    if any(is_within(folder, place) or is_within(place, folder) for place in _SYSTEM):
        return "belongs to the system"
    return ""


def _private(folder: str, settings: Settings) -> str:
    """Why a real path is never shown, as the end of a sentence: it has what programs of the user keep or obey.

    The home folder that the caller gives, as --home does, does not make that of the user another folder.
    """
    homes = {os.path.realpath(settings.place.home), os.path.realpath(os.path.expanduser("~"))}
    if any(is_within(home, folder) for home in homes):
        return "is or contains the home folder, which scripts are never shown"
    own = filter(None, (settings.config_folder, settings.data_folder, settings.cache_folder))
    if any(_meets(folder, os.path.realpath(place)) for place in own):
        return "is, contains or belongs to a folder of Metier, which scripts are never shown"
    for home in homes:
        below = is_within(folder, home) and os.path.relpath(folder, home).startswith(".")
        if below or any(_meets(folder, place) for place in _linked(home)):
            return "is, contains or belongs to a hidden folder of the home folder, which scripts are never shown"
    return ""


def _meets(folder: str, other: str) -> bool:
    return is_within(folder, other) or is_within(other, folder)


def _linked(home: str) -> Iterator[str]:
    """The real paths of hidden folders of the home folder that are links."""
    with suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.is_symlink() and entry.is_dir():
                yield os.path.realpath(entry.path)
