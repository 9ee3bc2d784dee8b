"""The secrets of a script: which ones rules give it, their values for one run, and what it is told about the others.

Every stored secret is masked in every run, whether the script was given it or not: a value can also come from an
argument or a file. Nothing here asks a keyring for a value before a script is about to run or its arguments are shown.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from metier.errors import ConfigError
from metier.model import Skill
from metier.secrets.masking import Mask
from metier.secrets.storage import SecretStorage
from metier.session.skill_request import skill_request

if TYPE_CHECKING:
    from metier.session.context import SessionContext
    from metier.session.scripts import Script

TOOL = "run_secret"
"""The tool of a rule that gives a secret to a skill."""


@dataclass(frozen=True)
class StoredSecrets:
    """The secrets of the user at one moment."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why the others could not be read."""

    @cached_property
    def mask(self) -> Mask:
        return Mask(self.values)


def storage(context: "SessionContext") -> SecretStorage:
    """Where the user's secrets are. A replay has none."""
    return SecretStorage(context.skills.settings.config_folder)


def stored(context: "SessionContext") -> StoredSecrets:
    """All secrets of the user, with their values."""
    kept = storage(context)
    values: dict[str, str] = {}
    problems: dict[str, str] = {}
    try:
        names = kept.names()
    except ConfigError:
        return StoredSecrets()
    for name in names:
        try:
            value = kept.value(name)
        except ConfigError as error:
            problems[name] = str(error)
            continue
        if value:
            values[name] = value
    return StoredSecrets(values, problems)


def granted(context: "SessionContext", skill: Skill, path: str, digest: str) -> tuple[str, ...]:
    """The names of the stored secrets that rules give to a script of a skill with this digest."""
    recorded = context.recorder.inputs.secrets
    if recorded is not None:
        return recorded(skill, path)
    if not context.policy.has_rules_about(TOOL):
        return ()
    try:
        names = storage(context).names()
    except ConfigError:
        return ()
    requests = {name: skill_request(TOOL, skill, path, digest=digest, name=name) for name in names}
    return tuple(name for name, request in requests.items() if context.policy.decide(request).verdict == "allow")


def notes(context: "SessionContext", script: "Script", given: Mapping[str, str]) -> Iterator[str]:
    """What is said about the secrets that a script asks for and was not given, or could not be given."""
    if script.files.tree is None:
        return  # a replay has these notes from the record
    from metier.capabilities.secrets import asked_for_by
    from metier.capabilities.sources import sources

    wanted = [one.name for one in asked_for_by(script.path, sources(script.files.tree), script.skill.frontmatter)]
    names, place = script.secrets, context.skills.settings.place
    known = {*given, *(name for name in context.profile.run.env if name in place.env)}
    for name in dict.fromkeys((*names, *wanted)):
        if name in known:
            continue
        yield _missing(name, script.skill.name, script.stored)


def _missing(name: str, skill_name: str, stored: StoredSecrets) -> str:
    """How the user gives a secret to a skill that asks for it."""
    if name in stored.problems:
        return f"the secret {name} cannot be read: {stored.problems[name]}"
    allow = f"`metier secret allow {name} {shlex.quote(skill_name)}`"
    if name in stored.values:
        return f"it asks for the secret {name}, which no rule gives it; the user can give it with {allow}"
    return (
        f"it asks for the secret {name}, which is not set; the user can set it with `metier secret set {name}` "
        f"and give it with {allow}"
    )
