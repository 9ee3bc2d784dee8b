"""A script of a skill that somebody wants to run: what it is, whether it may, and the sandbox for it.

Only files in the folders that the profile names are scripts. The whole folder of the skill is taken once: an approval
covers these files, by the digest of all of them, and the script runs with this very copy. So a change of any file is
asked about again, and one that comes after the question has no effect. What a run is given besides its sandbox is in
`grants`, and the run itself in `execution`.
"""

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from metier import limits
from metier.catalog.build import Catalog
from metier.errors import PolicyDenied, ResourceError, SandboxUnavailable, StoreError
from metier.files.digests import digest_of
from metier.files.source import Files, ScriptFiles, take_folder
from metier.files.text import from_utf8, storable_text
from metier.files.tree import digest_in, tree_text
from metier.hosts.schema import RunRules
from metier.hosts.settings import Settings
from metier.policy import windows
from metier.policy.decide import By, Policy
from metier.policy.rules import Rule, skill_request
from metier.record.state import Window
from metier.running.sandbox import Runner
from metier.running.sandbox.runners import choose
from metier.running.secrets.storage import StoredSecrets, stored_secrets
from metier.values.grants import KINDS, Grant
from metier.values.results import Request
from metier.values.skill import Skill

ScriptKey = tuple[str, str, str]
"""The path and the folder of a skill, and the path of a script in it."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script that is about to run, known by its content and by all files of its skill."""

    skill: Skill
    path: str
    arguments: tuple[str, ...]
    files: ScriptFiles
    config_folder: str = ""
    """Where the user's secrets are."""

    @property
    def key(self) -> ScriptKey:
        return self.skill.path, self.skill.folder, self.path

    @functools.cached_property
    def stored(self) -> StoredSecrets:
        """The secrets of the user, read when a value is needed first."""
        return stored_secrets(self.config_folder)

    @functools.cached_property
    def shown_arguments(self) -> tuple[str, ...]:
        """The arguments without the values of secrets. Only the script itself gets them as they are."""
        return tuple(self.stored.mask.text(argument) for argument in self.arguments)

    @functools.cached_property
    def digest(self) -> str:
        """The digest of the script itself."""
        return digest_of(self.files.content)

    @functools.cached_property
    def tree(self) -> str:
        """The digest of all files of the skill."""
        return digest_of(self.files.listing)

    @property
    def artifacts(self) -> dict[str, bytes]:
        """What the record keeps: the script, and the list of the files that it ran with."""
        return {self.digest: self.files.content, self.tree: self.files.listing}

    @property
    def command(self) -> str:
        return " ".join((self.path, *self.shown_arguments))


@dataclass(frozen=True, kw_only=True)
class WantedRun:
    """A script that somebody wants to run, with everything that its grants are planned from."""

    script: Script
    by: By
    policy: Policy
    settings: Settings
    files: Mapping[str, str | bytes] = field(default_factory=dict[str, "str | bytes"], repr=False)
    """The files that the caller gives it; see `Run`."""
    write: bool = False
    """Whether the caller wants new data in the working folder back."""
    write_paths: Sequence[str] = ()
    """Globs of what else the caller wants back, relative to the current folder."""
    folder: str | None = None
    """The folder in which it runs instead of the working folder, where a person named one."""
    uploads: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of the files that every script of the session finds in its current folder, by name."""
    artifact: Callable[[str], bytes]
    """Gives what the record keeps under a digest."""
    looked_up: dict[ScriptKey, Grant] = field(default_factory=dict[ScriptKey, Grant], repr=False)
    """What was looked up elsewhere for the question, so that the run gets what the question showed."""

    def about_skill(self, tool: str) -> Request:
        """A request about the skill of the script, for what holds for all its scripts."""
        return skill_request(tool, self.script.skill)

    def request(self, tool: str, *, detail: str = "", grants: tuple[Grant, ...] = ()) -> Request:
        """A request about the script: to run it, or to give it something."""
        script = self.script
        return skill_request(
            tool,
            script.skill,
            script.path,
            command=script.command,
            digest=script.tree,
            detail=detail,
            arguments=script.shown_arguments,
            grants=grants,
        )

    def run_request(self, grants: tuple[Grant, ...]) -> Request:
        """The request to run the script, with what it is given besides its sandbox."""
        return self.request("skill_run", detail=from_utf8(self.script.files.content), grants=grants)

    def allowed(self, kind: str) -> tuple[str, ...]:
        """The tools of a kind of grant that rules allow the script."""
        return tuple(tool for tool in KINDS[kind] if self.policy.decide(self.request(tool)).verdict == "allow")


def take_script(files: Files, skill: Skill, path: str) -> ScriptFiles:
    """Read the whole folder of a skill, once. Raises `ResourceError` where it has no such script."""
    folder = files.folder(skill)
    # The real path of a skill on disk is known from the scan, and must not have become a link since.
    tree = take_folder(folder if folder == skill.folder else os.path.realpath(folder), skill.inner)
    file = tree.file(path)
    if file is None:
        files.resource(skill, path, limits.SCRIPT_BYTES)  # raises, with the reason
        message = f"{path} does not run: scripts are given neither compiled Python nor repositories"
        raise ResourceError(message, path=path, reason="not-a-script")
    if len(file.data) > limits.SCRIPT_BYTES:
        message = f"{path} has more than {limits.SCRIPT_BYTES // limits.MIB} MiB, which nobody can review"
        raise ResourceError(message, path=path, reason="too-large")
    return ScriptFiles(content=file.data, listing=tree_text(tree.rows), tree=tree, folder=folder)


def check(script: Script, policy: Policy, catalog: Catalog, active: Mapping[str, Window]) -> None:
    """Raise where the file is not a script to this host, or the `allowed-tools` of an active skill do not list running.

    The skill's own count even where it is not active any more.
    """
    profile = catalog.profile
    folders = profile.run.folders
    if script.path.split("/", 1)[0] not in folders or "/" not in script.path:
        where = " or ".join(f"{folder}/" for folder in folders)
        message = f"{script.path} is not a script: only files in {where} run"
        raise ResourceError(message, path=script.path, reason="not-a-script")
    if not profile.policy.enforce_hints:
        return
    own = active.get(storable_text(script.skill.path))
    hint = own.allowed_tools if own is not None else windows.of(script.skill)
    if not windows.lists_scripts(hint, profile, script.command):
        way_out = f"whoever maintains the skill can add {profile.tools.run} to allowed-tools in its SKILL.md"
        raise PolicyDenied("skill_run", script.skill.name, "its own allowed-tools does not list it", way_out)
    if refusing := windows.refusing(policy, catalog, active, "skill_run", script.command):
        way_out = "it can run after the user's next message, before that skill is loaded again"
        raise PolicyDenied("skill_run", script.skill.name, windows.reason(refusing), way_out)


def approved_before(policy: Policy, artifact: Callable[[str], bytes], request: Request) -> str:
    """The text of the script when a person last allowed it for good, if the record still has it.

    Remembered answers name the digest of all files of the skill, and under that digest the record keeps their list.
    """
    if request.tool != "skill_run" or not request.folder:
        return ""
    wanted = replace(Rule.covering(request), digest=None, given=None)
    answers = policy.remembered.current().allow
    digests = [rule.digest for rule in answers if rule.digest and replace(rule, digest=None, given=None) == wanted]
    if not digests or digests[-1] == request.digest:
        return ""
    try:
        rows = json.loads(artifact(digests[-1]))
        return from_utf8(artifact(digest_in(rows, request.path)))
    except (StoreError, ValueError, TypeError):
        return ""


# --- the sandbox ---


def default_runner(rules: RunRules) -> Runner | None:
    """The best sandbox of this machine that the settings name, looked for once; `None` where there is none."""
    return _sandbox(rules.sandbox, rules.image)


@functools.cache
def _sandbox(names: tuple[str, ...], image: str) -> Runner | None:
    try:
        return choose(names, image=image)
    except SandboxUnavailable:
        return None


def runner_for(request: Request, given: Runner | None, rules: RunRules) -> Runner:
    """The sandbox to use. Running without one needs a rule that says so, and the record says it, too."""
    runner = given or default_runner(rules)
    problem = runner.problem() if runner is not None else None
    if runner is not None and problem is None:
        return runner
    if any("run_unsandboxed" in grant.tools for grant in request.grants):
        return choose(["none"])
    if problem is not None:
        raise SandboxUnavailable(problem)
    return choose(rules.sandbox, image=rules.image)  # raises, with what was tried and the line that installs a sandbox
