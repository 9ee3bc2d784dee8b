"""The rules of a configuration that are dropped, as diagnostics, so that whoever reads rules can say so.

A rule whose `skill_name` no skill of the host can have matches nothing. A deny rule with a misspelled name is no
protection, so it is said on every surface and not only where rules are shown.
"""

import contextlib
import os
from collections.abc import Iterator

from metier.errors import ConfigError
from metier.hosts.settings import Settings
from metier.model import Diagnostic
from metier.session.remembered import RememberedRules
from metier.session.rules import LISTS, read_lists


def dropped_rules(config: Settings) -> tuple[Diagnostic, ...]:
    """The dropped rules of the settings and of the remembered answers.

    What cannot be read at all is an error of the session that needs it, and not said here.
    """
    found: list[Diagnostic] = []
    with contextlib.suppress(ConfigError):
        found += _configured(config)
    if config.answers_file:
        with contextlib.suppress(ConfigError):
            answers = RememberedRules(config.answers_file, config.profile).current()
            found += (_diagnostic(warning, config.answers_file) for warning in answers.warnings)
    return tuple(found)


def _configured(config: Settings) -> Iterator[Diagnostic]:
    if not read_lists(config.permissions, config.profile).warnings:  # raises where a list is no list
        return
    for verdict in LISTS:
        rules, origins = config.permissions.get(verdict, ()), config.rule_origins.get(verdict, ())
        for rule, origin in zip(rules, origins, strict=False):
            for warning in read_lists({verdict: [rule]}, config.profile).warnings:
                yield _diagnostic(warning, origin)


def _diagnostic(warning: str, origin: str) -> Diagnostic:
    file = origin if os.path.isabs(origin) else ""
    hint = "write the name of the skill exactly as the skill has it"
    return Diagnostic("rule-dropped", "warning", warning, file, hint=hint)
