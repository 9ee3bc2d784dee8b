"""The secrets of a script: which ones rules give it, their values for one run, and what it is told about the others.

Every stored secret is masked in every run, whether the script was given it or not: a value can also come from an
argument or a file. Nothing here asks a keyring for a value before a script is about to run or its arguments are shown.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from metier.errors import ConfigError
from metier.files.text import from_utf8
from metier.running.grants import RunGrant
from metier.running.sandbox import Job, Outcome
from metier.running.scripts import WantedRun
from metier.running.secrets.storage import SecretStorage, StoredSecrets
from metier.running.variables import declared_in, secrets_read
from metier.values.skill import JsonObject

TOOL: Final = "run_secret"
"""The tool of a rule that gives a secret to a skill."""


@dataclass(frozen=True, kw_only=True)
class SecretsGrant(RunGrant):
    """The names of the secrets that a script gets as variables. Their values are nowhere in a record."""

    kind: ClassVar[str] = "secrets"

    names: tuple[str, ...] = ()

    @classmethod
    def plan(cls, run: WantedRun) -> Self:
        if not run.policy.has_rules_about(TOOL):
            return cls()
        try:
            names = SecretStorage(run.settings.config_folder).names()
        except ConfigError:
            return cls()
        asked = replace(run.request(TOOL), command="", arguments=())
        given = (name for name in names if run.policy.decide(replace(asked, name=name)).verdict == "allow")
        return cls(names=tuple(given))

    def facts(self) -> Iterator[tuple[str, str]]:
        if self.names:
            masked = "Their values are masked in what it prints and writes."
            yield "Secrets", f"It is given {', '.join(self.names)} as variables. {masked}"

    def covers(self) -> Mapping[str, tuple[str, ...]]:
        return {"secrets": self.names} if self.names else {}

    def shown(self) -> JsonObject:
        return {"secrets": self.names}

    def into(self, job: Job, run: WantedRun) -> Job:
        values = run.script.stored.values
        return replace(job, env={**job.env, **{name: values[name] for name in self.names if name in values}})

    def notes(self, run: WantedRun, outcome: Outcome) -> Iterator[str]:
        """What is said about secrets that could not be given, and about others that a failed script asks for."""
        script = run.script
        if script.files.tree is None:
            return  # a replay has these notes from the record
        wanted: tuple[str, ...] = ()
        file = script.files.tree.file(script.path)
        if file is not None and (outcome.ended != "exit" or outcome.exit_code):
            read = secrets_read(script.path, from_utf8(file.data))
            wanted = (*declared_in(script.skill.frontmatter, "env"), *read)
        variables, values = run.settings.place.env, script.stored.values
        known = {name for name in self.names if name in values}
        known |= {name for name in run.settings.profile.run.env if name in variables}
        for name in dict.fromkeys((*self.names, *wanted)):
            if name not in known:
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
