"""The folder of the user in which a script runs, and the files that the run is given.

A run happens in the working folder, which the script can read; what it writes there stays in memory. The home folder,
what contains it, and folders of the system are not shown unless a rule or the person says so, because a script could
read everything there. The invariant: what a question names is what the script is shown, and nothing else of the user.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from metier import limits
from metier.errors import BadArguments, PolicyDenied, ResourceError, StoreError
from metier.files.digests import PATTERN, digest_of, is_digest
from metier.files.text import storable_text
from metier.hosts.settings import Settings
from metier.results import Request
from metier.sandbox import is_within
from metier.session.skill_request import script_request

if TYPE_CHECKING:
    from metier.session.context import SessionContext
    from metier.session.policy import By, Policy
    from metier.session.scripts import Script

READS: Final = "run_project"
WRITES: Final = "run_project_write"

_SYSTEM: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/proc", "/run", "/sbin", "/sys"),
    *("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share", "/usr/local/bin"),
    *("/usr/local/lib", "/skill", "/init", "/metier-work"),
)
"""Folders of the system, and those that a sandbox has at this place. Nothing in them or above them is shown."""
_SHARED: Final = ("/home", "/root", "/tmp", "/var", "/Users")  # noqa: S108 - folders of other people and programs


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the caller of a run asks for besides the script."""

    files: Mapping[str, str | bytes] | None = None
    """The files to put into the current folder; see `Run`."""
    write: bool = False
    """Whether changes to the working folder come back."""


@dataclass(frozen=True, slots=True)
class WorkingFolder:
    """The folder that a script is shown. Empty paths: it runs in an empty folder."""

    path: str = ""
    """The whole folder that it can read."""
    cwd: str = ""
    """The current folder, which is that folder or lies in it."""
    writable: bool = False
    note: str = ""
    """Why there is no folder, if that may surprise."""
    wants: tuple[str, ...] = ()
    """What no rule gives, and only an answer does."""

    @property
    def given(self) -> tuple[str, ...]:
        """What the run is given of the user's, in words that an answer for good is remembered with."""
        shown = [f"{'writes' if self.writable else 'reads'} {storable_text(self.path)}"] if self.path else []
        return tuple(dict.fromkeys((*shown, *self.wants)))


NO_FOLDER: Final = WorkingFolder()
_NETWORK: Final = (
    "it ran in an empty folder, because it has the network; --folder or a rule that allows run_project shows yours"
)


def working_folder(
    context: "SessionContext", script: "Script", granted: Sequence[str], options: RunOptions, by: "By"
) -> WorkingFolder:
    """The folder for a run. Raises `PolicyDenied` where a rule denies what the caller asks for."""
    place = context.skills.settings.place
    by_rule = READS in granted or WRITES in granted
    if context.version < 6:
        return WorkingFolder(place.project, "", WRITES in granted) if by_rule else NO_FOLDER
    if options.write:
        _refuse_denied(context, script)
    recorded = context.recorder.inputs.folder
    if recorded is not None:
        path, cwd = recorded()
        found = WorkingFolder(path, cwd) if path else NO_FOLDER
    else:
        about = script_request(context, script, READS)
        found = chosen_folder(context.skills.settings, context.policy, about, context.folder)
    wants = ["gets files"] if options.files and by == "model" else []
    if not found.path:
        return replace(found, wants=tuple(wants))
    if options.write and WRITES not in granted:
        wants.append(f"writes {storable_text(found.path)}")
    return replace(found, writable=options.write or WRITES in granted, wants=tuple(wants))


def chosen_folder(settings: Settings, policy: "Policy", about: Request, named: str | None = None) -> WorkingFolder:
    """The folder for a script that `about` is about, which a person may have named."""
    place = settings.place
    reading, writing = (policy.decide(replace(about, tool=grant)) for grant in (READS, WRITES))
    by_rule = "allow" in (reading.verdict, writing.verdict)
    if reading.verdict == "deny" and reading.rule is not None:
        return WorkingFolder(note="it ran in an empty folder, because a rule denies run_project")
    if named is None and not by_rule:
        if settings.profile.run.folder == "none":
            return NO_FOLDER
        if policy.decide(replace(about, tool="run_network")).verdict == "allow":  # it could send the folder away
            return WorkingFolder(note=_NETWORK)
    cwd = os.path.realpath(named if named is not None else place.cwd)
    path = os.path.realpath(place.project) if by_rule and named is None else cwd
    if not is_within(cwd, path):
        path = cwd
    why = _flaw(path) or ("" if by_rule or named is not None else _too_wide(path, place.home))
    if why:
        how = "" if _flaw(path) else "; --folder or a rule that allows run_project shows it"
        return WorkingFolder(note=f"it ran in an empty folder: {storable_text(path)} {why}{how}")
    return WorkingFolder(path, cwd)


def _refuse_denied(context: "SessionContext", script: "Script") -> None:
    request = script_request(context, script, WRITES)
    decision = context.policy.decide(request)
    if decision.verdict == "deny" and decision.rule is not None:
        raise context.policy.denied(request, decision)
    if decision.verdict == "deny" and context.policy.name == "read-only":
        raise PolicyDenied(WRITES, script.skill.name, "the policy 'read-only' lets nothing be written")


def _flaw(folder: str) -> str:
    """Why a folder can never be shown at its own path, as the end of a sentence."""
    if not os.path.isdir(folder):
        return "is not a folder"
    if any(is_within(folder, place) or is_within(place, folder) for place in _SYSTEM):
        return "belongs to the system"
    return ""


def _too_wide(folder: str, home: str) -> str:
    """Why a folder is not shown by default, as the end of a sentence."""
    real_home = os.path.realpath(home)
    if folder == real_home:
        return "is the home folder, which scripts are not shown by default"
    if is_within(real_home, folder) or any(is_within(place, folder) for place in _SHARED):
        return "holds the folders of users, which scripts are not shown by default"
    return ""


# --- given files ---

NAME_PATTERN: Final = r"^\w[\w .()+,=@-]*$"
FILE_PATTERN: Final = rf"^(?:{PATTERN}|(?:[A-Za-z0-9+/]{{4}})*(?:[A-Za-z0-9+/]{{2}}==|[A-Za-z0-9+/]{{3}}=)?)$"
"""What a client can always send as the name and the content of a file."""


def digests_of(files: Mapping[str, str | bytes]) -> dict[str, str]:
    """The digests of given files by name, as the record has them. Raises `BadArguments`."""
    if len(files) > limits.GIVEN_FILES:
        raise BadArguments(f"files must have at most {limits.GIVEN_FILES} entries", field="files")
    for name in files:
        check_name(name)
    return {
        name: content if is_digest(content) else digest_of(_bytes(name, content)) for name, content in files.items()
    }


def check_name(name: str) -> None:
    """Raise `BadArguments` unless a text can be the name of a file in every folder, and of nothing else."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if (
        not name.isprintable()
        or "/" in name
        or "\\" in name
        or name in ("", ".", "..")
        or size > limits.GIVEN_NAME_BYTES
    ):
        message = f"files: {name[:80]!r} is not the name of a file; leave out folders and control characters"
        raise BadArguments(message, field="files")


def contents(context: "SessionContext", options: RunOptions) -> dict[str, bytes]:
    """The files of a run by name: those of the session, and those of the call, which win. Raises `ResourceError`."""
    recorded = context.recorder.inputs.given_files
    if recorded is not None:
        return dict(recorded())
    found = {name: _stored(context, name, digest) for name, digest in context.uploads.items()}
    for name, content in (options.files or {}).items():
        found[name] = _stored(context, name, content) if _is_reference(content) else _bytes(name, content)
    total = sum(map(len, found.values()))
    if total > limits.GIVEN_BYTES:
        message = f"the files of the run have {total:,} bytes, and may have {limits.GIVEN_BYTES:,}"
        raise ResourceError(message, reason="too-large")
    return found


def _is_reference(content: str | bytes) -> bool:
    return isinstance(content, str) and is_digest(content)


def _stored(context: "SessionContext", name: str, digest: str | bytes) -> bytes:
    try:
        return context.recorder.store.get_artifact(str(digest))
    except StoreError as error:
        raise ResourceError(f"the file {name} is no longer kept", path=name, reason="not-found") from error


def _bytes(name: str, content: object) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return base64.b64decode(str(content), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadArguments(f"files: the content of {name} is not base64", field="files") from error
