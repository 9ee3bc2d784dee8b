"""Rules of a policy: what one matches, and how lists of them are read from a configuration file or from data.

A rule that could never match is an error: its tool must be one that policy is asked about, and its scope one that
skills have. A rule from a file, from data and from Python is read by the same function.
"""

import glob
import hashlib
import itertools
import json
import os
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, cast

from metier.catalog.validate import name_flaw
from metier.errors import ConfigError
from metier.files.digests import is_digest
from metier.files.globs import is_inside
from metier.files.text import storable_text
from metier.hosts.profiles import Profile, locate, nearest
from metier.hosts.removed import removed
from metier.values.grants import WRITES, Covered, Grant, covered, grant_tools
from metier.values.network import HostPattern
from metier.values.results import Request
from metier.values.skill import REMOTE, ROLES, SCOPE_ORDER, SCOPES, JsonObject, Skill

Verdict = Literal["allow", "ask", "deny"]

LISTS: Final[tuple[Verdict, ...]] = ("deny", "allow", "ask")
"""The lists of a policy, in the order in which they are applied."""

REMOTE_LOAD: Final = "mcp_load"
"""The tool name of a request to load a skill from an MCP server. Its digest covers all files of the skill."""

CATALOG_FIELD: Final = "catalog_field"
"""The tool name of a request to show a field of a skill in the prompt. Its path is the key of the field."""

DEFAULTS: Final[Mapping[str, Mapping[str, Verdict]]] = {
    "read-only": {
        "skill_run": "deny",
        "install": "deny",
        "override": "deny",
        REMOTE_LOAD: "ask",
        CATALOG_FIELD: "deny",
    },
    "default": {"skill_run": "ask", "install": "deny", "override": "deny", REMOTE_LOAD: "ask", CATALOG_FIELD: "deny"},
    "full-auto": {"override": "allow", REMOTE_LOAD: "ask", CATALOG_FIELD: "deny"},
}
"""Verdicts when no rule matches. Tools not listed are allowed. Only `profile = "full-auto"` selects `full-auto`."""


def own_tools() -> tuple[str, ...]:
    """Metier's own tools. A host has further ones."""
    asked = (tool for by in DEFAULTS.values() for tool in by)
    return tuple(dict.fromkeys((*(f"skill_{role}" for role in ROLES), *asked, *grant_tools())))


_FIELDS: Final = (
    *("tool", "name", "skill_name", "path", "command", "folder", "scope", "source", "digest", "given", "host"),
)

HOST_HINT: Final = "write api.example.org, *.example.org or 192.0.2.7, with :8443 for another port"


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on requests. What is omitted matches everything. The name of the skill, `path`, `command` and
    `folder` are globs."""

    tool: str
    skill_name: str | None = None
    path: str | None = None
    """The file that a request is about. In rules about `run_project_write`: files of the working folder that the script
    may change; see `metier.files.globs`."""
    command: str | None = None
    digest: str | None = None
    folder: str | None = None
    """The real path of the skill's folder."""
    scope: str | None = None
    source: str | None = None
    given: Covered | None = None
    """What a run is given besides its own files, as in `Request.given`. Without it, a rule covers what other rules give
    and what every script may read, but nothing that a caller asks for in addition."""
    host: str | None = None
    """The host that a rule about `run_network` is for; see `metier.values.network`."""
    name: str | None = None
    """The name of a secret, in rules about `run_secret`."""

    def matches(self, request: Request) -> bool:
        """Whether the rule is about a request. A rule for one host is also about the network as a whole."""
        return (
            self.tool == request.tool
            and self.names(request.skill_name)
            and (self.path is None or self.tool == WRITES or fnmatchcase(request.path, self.path))
            and (self.command is None or fnmatchcase(request.command, self.command))
            and self.digest in (None, request.digest)
            and (self.folder is None or fnmatchcase(request.folder, self.folder))
            and self.scope in (None, request.scope)
            and self.source in (None, request.source)
            and (self.given is None or self.given == request.given)
            and self.name in (None, request.name)
        )

    def names(self, skill_name: str) -> bool:
        """Whether the rule is about skills of a name. Letters that look equal and are encoded in two ways are equal."""
        if self.skill_name in (None, skill_name):
            return True
        return fnmatchcase(_composed(skill_name), str(self.skill_name))

    def allows(self, request: Request) -> bool:
        """Whether the rule, as an allow rule, covers a request.

        A skill that a foreign project brings is another one than the skill of that name that the user knows, so a rule
        covers it only if it says where the skill is or what it contains, or names no skill at all. Such a skill is
        never the user's own, whatever scope its project claims. A rule for this content covers what the run was given
        when the rule was made, and no more. A rule for one host does not allow the network as a whole.
        """
        if self.host is not None or (request.wants and self.given is None):
            return False
        return self._reaches(request)

    def allows_host(self, request: Request) -> bool:
        """Whether the rule, as an allow rule, gives its host to the script of a request for the network."""
        return self.host is not None and self._reaches(request)

    def _reaches(self, request: Request) -> bool:
        return self.matches(request) and not (request.foreign and (self._by_name_only or self.scope == "user"))

    @property
    def _by_name_only(self) -> bool:
        places = (self.folder, self.scope, self.source, self.digest)
        return self.skill_name is not None and all(place is None for place in places)

    @classmethod
    def covering(cls, request: Request) -> "Rule":
        """The rule that an answer for good adds: this tool, this skill at this place, and this content if there is one.

        For a script, the digest is that of all files of the skill, of which the person saw one, so the rule is for that
        script alone. The files of a server's skill are in a cache, which says nothing, so the rule names the server.
        """
        rule = cls(
            request.tool,
            glob.escape(_composed(request.skill_name)) or None,
            digest=request.digest or None,
            name=request.name or None,
            given=request.given or None,
        )
        if not request.folder:
            return rule
        path = glob.escape(request.path) if request.tool == "skill_run" else None
        if request.scope == REMOTE:
            return replace(rule, path=path, scope=request.scope, source=request.source)
        return replace(rule, path=path, folder=glob.escape(request.folder))

    def as_dict(self) -> JsonObject:
        values: JsonObject = {key: value for key in _FIELDS if (value := getattr(self, key)) is not None}
        return values if self.given is None else values | {"given": dict(self.given)}

    def as_toml(self) -> str:
        """The rule as an inline table, to show how to write it."""
        return _in_toml(self.as_dict())

    @property
    def id(self) -> str:
        """Names a remembered rule. Equal rules have equal ids."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        return ", ".join(f"{key} = {value!r}" for key, value in self.as_dict().items())


def skill_request(
    tool: str,
    skill: Skill,
    path: str = "",
    *,
    command: str = "",
    digest: str = "",
    detail: str = "",
    arguments: tuple[str, ...] = (),
    grants: tuple[Grant, ...] = (),
    name: str = "",
) -> Request:
    """The one way to make a request about a skill, so that every request says which skill of that name it is."""
    return Request(
        tool=tool,
        skill_name=skill.name,
        path=path,
        command=command,
        digest=digest,
        detail=detail,
        arguments=arguments,
        grants=grants,
        name=name,
        folder=storable_text(skill.folder),
        scope=skill.scope,
        source=skill.source,
        foreign=skill.foreign,
    )


def as_answer(rule: Rule) -> Rule:
    """A remembered answer as a rule. Without `given`, it was about a run that was given nothing: it covers no other."""
    return replace(rule, given=()) if rule.tool == "skill_run" and rule.given is None else rule


def _composed(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _in_toml(value: object) -> str:
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return f"{{ {', '.join(f'{key} = {_in_toml(item)}' for key, item in table.items())} }}"
    # JSON leaves one character unescaped that TOML rejects.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml_lines(rule: Rule) -> str:
    """The rule as the lines of a table."""
    return "".join(f"{key} = {_in_toml(value)}\n" for key, value in rule.as_dict().items())


@dataclass(frozen=True, slots=True)
class RuleLists:
    """The three lists of one source."""

    deny: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    """Why rules were dropped, each with the file that the rule is in, if that is known."""

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(why for why, _ in self.dropped)


def read_lists(
    given: Mapping[str, object],
    profile: Profile,
    *,
    origins: Mapping[str, Sequence[str]] | None = None,
    names_for: Callable[[str], Profile] | None = None,
    recorded: bool = False,
) -> RuleLists:
    """The lists of a `[permissions]` table. Raises `ConfigError` if one is not a list of rules that can match.

    `origins` has the file of each rule, for errors, and `names_for` the profile whose names the rules of an origin use
    for tools; otherwise, that is `profile`. With `recorded`, the rules are those of a record, which keeps what was in
    force then: they are not checked.
    """
    dropped: list[tuple[str, str]] = []

    def named(origin: str) -> Profile:
        return names_for(origin) if names_for is not None else profile

    deny, allow, ask = (
        tuple(_read_list(given, key, profile, named, dropped, (origins or {}).get(key, ()), recorded)) for key in LISTS
    )
    return RuleLists(deny, allow, ask, tuple(dropped))


def canonical(tool: str, profile: Profile) -> str:
    """Metier's name for a tool, given the name that the profile's host uses."""
    roles = (role for role in ROLES if getattr(profile.tools, role) == tool)
    return next((f"skill_{role}" for role in roles), tool)


def tool_named(word: str, profile: Profile, further: Sequence[str] = ()) -> str:
    """Metier's name for a tool that policy is asked about. Raises `ConfigError` if there is no such tool.

    `further` are tools of the host besides those of its profile.
    """
    known = tuple(dict.fromkeys((*own_tools(), *profile.tools.by_role().values(), *profile.tools.host, *further)))
    if word not in known:
        by_last_word = {name.rpartition("_")[2]: name for name in reversed(own_tools())}
        raise unknown_word("tool", word, known, by_last_word.get(word, ""), "; tools.host names those of your host")
    return canonical(word, profile)


def _matching(rule: Rule, profile: Profile, names: Profile, tools: Sequence[str]) -> Rule:
    """A rule in the words of requests. Raises `ConfigError` if no request can have them."""
    tool = tool_named(rule.tool, names, tools)
    if rule.name is not None and tool != "run_secret":
        raise ConfigError("name is the name of a secret, so its rule needs the tool run_secret", key="name")
    if rule.path is not None:
        _check_path(tool, rule.path)
    of_scripts = ("skill_run", *grant_tools())
    if rule.command is not None and tool in own_tools() and tool not in of_scripts:
        raise ConfigError(f"a request for {tool} has no command", key="command", hint="leave it out")
    if rule.digest is not None and tool not in (*of_scripts, REMOTE_LOAD, "install"):
        raise ConfigError(f"a request for {tool} has no digest", key="digest", hint="leave it out")
    if rule.digest is not None and not is_digest(rule.digest):
        hint = "a digest is sha256: and 64 hexadecimal digits, as `metier policy list` shows them"
        raise ConfigError(f"digest cannot be {rule.digest!r}", key="digest", hint=hint)
    found = replace(rule, tool=tool, scope=_scope_named(rule.scope, profile) if rule.scope is not None else None)
    if tool == "skill_search" and not found.matches(Request(tool)):
        hint = "leave out what limits the rule to some skills; to hide a skill from the model, deny skill_load"
        raise ConfigError("a request for skill_search is about no skill", key="skill_name", hint=hint)
    return found


_OTHER_PATHS: Final = ("install", "override", CATALOG_FIELD, REMOTE_LOAD)
"""The tools whose requests have a path that is no file of a skill: an address, a field."""


def _check_path(tool: str, path: str) -> None:
    """Raise `ConfigError` for a path that no request for a tool has."""
    if tool == "skill_load":
        possible, hint = (
            path.startswith(("/", "*", "?", "[")),
            "write the path of SKILL.md, or a glob such as */SKILL.md",
        )
    elif tool in _OTHER_PATHS:
        possible, hint = bool(path), "leave it out"
    elif tool == WRITES:
        possible, hint = is_inside(path), "write it relative to the working folder and without .., such as docs/*.md"
    elif tool in ("skill_read", "skill_run", *grant_tools()):
        parts = path.split("/")
        possible = not {"", ".", ".."}.intersection(parts) and parts[0] != "~"
        possible = possible and "\\" not in path and path == path.strip()
        hint = "write it relative to the skill's folder, such as scripts/a.sh or references/*"
    else:
        raise ConfigError(f"a request for {tool} has no path", key="path", hint="leave it out")
    if not possible:
        raise ConfigError(f"no request for {tool} has the path {path!r}", key="path", hint=hint)


def _scope_named(word: str, profile: Profile) -> str:
    """The profile's word for a scope. Raises `ConfigError` if no skill can have it."""
    own = {*(root.scope for root in profile.roots), profile.extra_scope, profile.custom_scope}
    if profile.directories:
        own |= {"user", "repo"}
    if word in own:
        return word
    if word not in SCOPES:
        known = tuple(dict.fromkeys((*SCOPES, *sorted(own))))
        same = (scope for scope in known if SCOPE_ORDER.get(scope) == SCOPE_ORDER.get(word, -1))
        raise unknown_word("scope", word, known, next(same, ""))
    return "project" if word == "repo" and "project" in own else word


def unknown_word(
    kind: str, word: str, known: Sequence[str], meant: str = "", more: str = "", *, key: str = ""
) -> ConfigError:
    """The error for a word that means nothing, with the nearest word and all that mean something."""
    return ConfigError(f"there is no {kind} {word!r}", key=key or kind, hint=_meant(word, known, meant) + more)


def _meant(word: str, known: Sequence[str], meant: str = "") -> str:
    close = [meant] if meant else nearest(word, known)
    return f"{f'did you mean {close[0]}? ' if close else ''}known: {', '.join(known)}"


def read_rule(given: object, where: str) -> Rule:
    """One rule as it is written, with the host's own name for its tool."""
    given = given.as_dict() if isinstance(given, Rule) else given
    table = {} if not isinstance(given, Mapping) else dict(cast("Mapping[str, object]", given))
    if not isinstance(table.get("tool"), str):
        raise ConfigError(f"a rule in permissions.{where} must be a table with a tool", key=where)
    unknown = next((key for key in table if key not in _FIELDS), None)
    if unknown is not None:
        message = f"unknown key {unknown} in a rule of permissions.{where}"
        raise ConfigError(message, key=unknown, hint=_meant(unknown, _FIELDS))
    values: JsonObject = {key: value for key, value in table.items() if value is not None}
    given = _given(values.pop("given"), where) if "given" in values else None
    wrong = next((key for key, value in values.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise ConfigError(f"{wrong} must be text in a rule of permissions.{where}", key=wrong)
    folder = values.get("folder", "*")
    if not str(folder).startswith(("/", "*")) or str(folder).endswith("/"):
        hint = "write the real path of the skill's folder, or a glob such as /home/me/.agents/skills/*"
        message = f"folder cannot be {folder!r} in a rule of permissions.{where}: it is no absolute path of a folder"
        raise ConfigError(message, key="folder", hint=hint)
    if "host" in values:
        values["host"] = _host(values, where)
    if "skill_name" in values:
        values["skill_name"] = _composed(str(values["skill_name"]))
    rule = Rule(**values, given=given)
    if rule.tool == "run_secret" and where == "allow":
        _check_secret(rule)
    return rule


def _given(value: object, where: str) -> Covered:
    """What a rule says that a run is given, as a value to compare."""
    message = f"given must be a table of what a run is given in a rule of permissions.{where}"
    hint = 'write it as the question or `metier policy list` does, such as given = { reads = "/home/me/data" }'
    if not isinstance(value, Mapping):
        raise ConfigError(message, key="given", hint=hint)
    try:
        return covered(cast("Mapping[str, object]", value))
    except ValueError as error:
        raise ConfigError(f"{message}: {error}", key="given", hint=hint) from error


def _check_secret(rule: Rule) -> None:
    """A rule that gives every secret, or gives one to every skill, is a mistake."""
    hint = "`metier secret allow NAME SKILL` adds a whole rule"
    if not rule.name:
        raise ConfigError("a rule about run_secret in permissions.allow names the secret", key="name", hint=hint)
    if not (rule.skill_name or rule.folder or rule.digest):
        message = "a rule about run_secret in permissions.allow says which skill is given the secret"
        raise ConfigError(message, key="skill_name", hint=hint)


def _host(values: Mapping[str, object], where: str) -> str:
    """The host of a rule in its canonical form."""
    text = str(values["host"])
    if values["tool"] != "run_network":
        raise ConfigError(f"host in a rule of permissions.{where} needs the tool run_network", key="host")
    try:
        return str(HostPattern.parse(text))
    except ValueError as error:
        message = f"host cannot be {text!r} in a rule of permissions.{where}: it {error}"
        raise ConfigError(message, key="host", hint=HOST_HINT) from error


def _read_list(
    given: Mapping[str, object],
    where: str,
    profile: Profile,
    names_for: Callable[[str], Profile],
    dropped: list[tuple[str, str]],
    origins: Sequence[str],
    recorded: bool,
) -> Iterator[Rule]:
    listed, tools = given.get(where, ()), cast("Sequence[str]", given.get("tools") or ())
    if not isinstance(listed, (list, tuple)):
        raise ConfigError(f"permissions.{where} must be a list of rules", key=where)
    places = itertools.chain(origins, itertools.repeat(""))
    for item, origin in zip(cast("Sequence[object]", listed), places, strict=False):
        file = origin if os.path.isabs(origin) else ""
        try:
            rule = read_rule(item, where)
            if rule.tool in removed("tools") and not recorded:
                why = f"a rule in permissions.{where} was dropped: there is no {rule.tool} any more"
                dropped.append((f"{why}; {removed('tools')[rule.tool]}", file))
            elif rule.skill_name is not None and (flaw := _flaw(rule.skill_name, names_for(origin))):
                why = f"a rule in permissions.{where} was dropped: skill_name {rule.skill_name!r} {flaw}"
                dropped.append((why, file))
            elif recorded:
                yield rule
            else:
                yield _matching(rule, profile, names_for(origin), tools)
        except ConfigError as error:
            raise error.at(file, locate(file, f"permissions.{where}")) from None


def _flaw(name: str, profile: Profile) -> str:
    """Why no skill of this host can have a name. Names that the host only warns about are valid in rules."""
    checks, exact = profile.validation, profile.policy.exact_names
    if not name and not exact:
        raise ConfigError("skill_name is empty", key="skill_name", hint="leave it out for every skill")
    if not name:
        return "is not a name"
    if not exact and glob.has_magic(name):
        return ""
    return name_flaw(name, checks.name_pattern) if checks.name_breach == "error" else ""


def unknown_names(rules: "RuleLists", known: Collection[str]) -> Iterator[str]:
    """The rules whose `skill_name` matches none of these names, each as a sentence with the nearest name."""
    for verdict in LISTS:
        for rule in dict.fromkeys(getattr(rules, verdict)):
            if rule.skill_name is not None and not any(map(rule.names, known)):
                close = nearest(rule.skill_name, tuple(known))
                meant = f"; did you mean {close[0]}?" if close else ""
                yield f"no skill here has the name of the {verdict} rule for {rule.tool}, {rule.skill_name!r}{meant}"
