"""What the rules in force say, for people: all of them with their origin, and the request that a question is about.

`metier policy` and the page of rules both show it.
"""

import os
from collections.abc import Iterator

from metier.errors import ResourceError
from metier.files.source import take_folder
from metier.hosts.settings import Settings
from metier.policy.decide import Policy, Request
from metier.policy.remembered import RememberedRules
from metier.policy.rules import LISTS, Rule, Verdict, read_lists, skill_request, tool_named
from metier.running.grants.folder import FolderGrant
from metier.values.grants import grant_tools
from metier.values.skill import REMOTE, Skill
from metier.values.value import Value, replace


class ListedRule(Value):
    """A rule in force and where it comes from. Only remembered answers have an id."""

    verdict: Verdict
    rule: Rule
    origin: str
    id: str = ""


def listed_rules(config: Settings, given: Policy | None = None) -> list[ListedRule]:
    """Every rule in force, in the order in which rules are applied: deny, allow, ask.

    `given` is the policy that a program uses instead of that of the configuration.
    """
    answers = answers_of(config)
    return [one for verdict in LISTS for one in _listed(config, answers, verdict, given)]


def answers_of(config: Settings) -> RememberedRules:
    """The remembered answers of the user."""
    return RememberedRules(config.answers_file, config.own_profile)


def _listed(
    config: Settings, answers: RememberedRules, verdict: Verdict, policy: Policy | None
) -> Iterator[ListedRule]:
    tools = config.permissions.get("tools")
    given, origins = config.permissions.get(verdict, ()), config.rule_origins.get(verdict, ())
    for one, origin in zip(given, origins, strict=False) if policy is None else ():
        lists = read_lists(
            {verdict: [one], "tools": tools}, config.profile, origins={verdict: [origin]}, names_for=config.names_for
        )
        for rule in getattr(lists, verdict):
            yield ListedRule(verdict, rule, origin)
    for rule in getattr(policy, verdict, ()):
        yield ListedRule(verdict, rule, "program")
    for written in dict.fromkeys(answers.written()[verdict]):
        for rule in getattr(read_lists({verdict: [written]}, config.own_profile), verdict):
            yield ListedRule(verdict, rule, config.answers_file, written.id if verdict == "allow" else "")


def origin_word(origin: str, config: Settings) -> str:
    """A word for the origin of a rule."""
    if origin == config.answers_file:
        return "answers"
    if os.path.dirname(origin) == config.config_folder:
        return "user"
    return "project" if os.path.isabs(origin) else origin


def asked_about(
    config: Settings,
    policy: Policy,
    tool: str,
    skill: Skill | str,
    *,
    path: str = "",
    command: str = "",
    secret: str = "",
) -> Request:
    """The request that would be made to use a tool. `skill` is a skill, or a name that no skill has."""
    name = tool_named(tool, config.profile, config.permissions.get("tools") or ())
    if isinstance(skill, str):
        return Request(name, skill, path, command, name=secret)
    file = path or (skill.path if name == "skill_load" else "")
    request = skill_request(name, skill, file, command=command, digest=_digest(name, skill), name=secret)
    if name == "skill_run":
        request = replace(request, grants=(FolderGrant.chosen(config, policy, request),))
    return request


def _digest(tool: str, skill: Skill) -> str:
    """The digest that rules about running scripts can be bound to: that of all files of the skill."""
    if tool not in ("skill_run", *grant_tools()) or skill.scope == REMOTE:
        return ""
    try:
        return take_folder(skill.folder, skill.inner).digest
    except ResourceError:
        return ""  # no script of it runs, either
