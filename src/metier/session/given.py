"""What a run is given besides its sandbox: what rules grant, a folder, files, hosts, secrets and packages.

All of it is known before the question, so that the question names it, and an answer for good covers exactly that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from metier.session import dependencies
from metier.session.dependencies import GRANT as PACKAGES
from metier.session.dependencies import NO_PACKAGES, Plan
from metier.session.policy import GRANTS, By
from metier.session.skill_request import script_request
from metier.session.working_folder import NO_FOLDER, WRITES, RunOptions, WorkingFolder, working_folder

if TYPE_CHECKING:
    from metier.session.context import SessionContext
    from metier.session.scripts import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a run is given besides its sandbox, by rules, by its caller, and by default."""

    grants: tuple[str, ...] = ()
    folder: WorkingFolder = NO_FOLDER
    files: tuple[str, ...] = ()
    """The names of the files that are put into the current folder."""
    hosts: tuple[str, ...] = ()
    """The only hosts that it may connect to. One behind a `!` is refused, even if another covers it."""

    secrets: tuple[str, ...] = ()
    """The names of the secrets that it gets as variables."""

    packages: Plan = NO_PACKAGES
    """What it gets to import."""

    @property
    def wants(self) -> tuple[str, ...]:
        """What no rule gives, and only an answer does."""
        return (*self.folder.wants, *self.asked_packages)

    @property
    def asked_packages(self) -> tuple[str, ...]:
        """The packages that no rule gives, in words."""
        return self.packages.given if PACKAGES not in self.grants else ()

    @property
    def words(self) -> tuple[str, ...]:
        """What the run is given, in words that an answer for good is remembered with."""
        named = (("connects to", self.hosts), ("gets the secrets", self.secrets))
        listed = (f"{what} {', '.join(names)}" for what, names in named if names)
        return (*self.folder.given, *listed, *self.asked_packages)


def given_to(context: "SessionContext", script: "Script", options: RunOptions, by: By) -> Given:
    """What a run is given. Raises `PolicyDenied` where a rule denies what the caller asks for."""
    granted = tuple(grant for grant in GRANTS if _granted(context, script, grant))
    folder = working_folder(context, script, granted, options, by)
    if folder.writable and WRITES not in granted:
        granted = tuple(grant for grant in GRANTS if grant in (*granted, WRITES))
    files = tuple(dict.fromkeys((*context.uploads, *(options.files or ()))))
    hosts = () if "run_network" in granted else context.policy.hosts(script_request(context, script, "run_network"))
    return Given(
        grants=granted,
        folder=folder,
        files=files,
        hosts=hosts,
        secrets=script.secrets,
        packages=dependencies.plan(context, script),
    )


def _granted(context: "SessionContext", script: "Script", grant: str) -> bool:
    return context.policy.decide(script_request(context, script, grant)).verdict == "allow"
