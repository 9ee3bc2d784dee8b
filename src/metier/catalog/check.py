"""How each host would treat a skill: found or not and why, under which name, shown to whom, cut where, what is ignored.

A verdict is made by the code that runs the hosts: one scan looks into the folders that a profile searches, as the host
would, and one judges the file by the profile's rules wherever it lies. Nothing is written, and no setting, switch or
variable of this user counts: the verdict on a repository is the same for everybody who works in it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from metier import limits
from metier.catalog import discover, frontmatter
from metier.catalog.build import build_catalog
from metier.catalog.modes import Modes
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.hosts import profiles, roots
from metier.hosts.profiles import Profile
from metier.model import SKILL_FILE, STANDARD_KEYS, Diagnostic, Root, Severity, Shadowed, Skill, as_text
from metier.session import listing

PathLike = str | os.PathLike[str]

Status = Literal["offered", "later", "shadowed", "left-out", "elsewhere", "invalid"]
"""In the catalog; there once files beside it are used; there under another's name; left out by a rule; not in a folder
that is searched; not a skill to this host."""

FINDINGS: Final[Mapping[str, str]] = {
    "host-elsewhere": "The skill is in no folder that the host searches; the message says where it would have to be.",
    "host-later": "The host finds the skill only once it works on files beside it.",
    "host-shadowed": "Another skill of the same name counts in this host.",
    "host-left-out": "A rule of the host leaves the skill out; the message says which.",
    "host-hidden": "The host does not show the skill to the model, or not to the user.",
    "host-cut": "The host cuts the description, the listing or the body; the message says where.",
    "host-ignores": "The host gives these fields of the frontmatter no meaning.",
    "host-note": "What else is to be known about the skill in this host.",
}
"""What is found about a skill in a host, beside the diagnostics of its file."""

_NOT_SEARCHED: Final = (".git", "node_modules", "__pycache__")


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """What one host does with one skill. Where it is not found, the rest says how it would be if it were."""

    profile: str
    path: str
    """The SKILL.md, as it was named."""
    status: Status
    why: str = ""
    """A sentence where it is not simply offered."""
    put: tuple[str, ...] = ()
    """The folders that it would have to be, for a host that does not look where it lies; `~` is the home."""
    name: str = ""
    description: str = ""
    """As the host shows it."""
    root: str = ""
    """The folder in which the host finds it."""
    model: bool = False
    user: bool = False
    called: str = ""
    """What a user types to call it; empty where the host has no such way."""
    cuts: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    lines: Mapping[str, int] | None = None
    """Where the fields stand in the file."""

    @property
    def found(self) -> bool:
        return self.status == "offered"

    @property
    def valid(self) -> bool:
        return self.status != "invalid"

    def findings(self) -> Iterator[tuple[str, Severity, str, int]]:
        """Code (see `FINDINGS`), severity, message and line of everything but the diagnostics of the file."""
        if self.status not in ("offered", "invalid"):
            serious: Severity = "warning" if self.status in ("shadowed", "left-out") else "info"
            yield f"host-{self.status}", serious, self.why, 1
        hidden = [who for who, may in (("model", self.model), ("user", self.user or not self.called)) if not may]
        if hidden and self.status in ("offered", "later", "elsewhere"):
            yield "host-hidden", "info", f"it is not shown to the {' or the '.join(hidden)}", 1
        for cut in self.cuts:
            yield "host-cut", "warning", cut, (self.lines or {}).get("description", 1)
        for key in self.ignored:
            yield "host-ignores", "info", f"`{key}` has no meaning here", (self.lines or {}).get(key, 1)
        for note in self.notes:
            yield "host-note", "info", note, 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "path": self.path,
            "status": self.status,
            "found": self.found,
            "why": self.why or None,
            "put": list(self.put),
            "name": self.name,
            "description": self.description,
            "root": self.root or None,
            "model": self.model,
            "user": self.user,
            "called": self.called or None,
            "cuts": list(self.cuts),
            "ignored": list(self.ignored),
            "notes": list(self.notes),
            "diagnostics": [diagnostic.as_dict() for diagnostic in self.diagnostics],
        }


def verdicts(
    skill: PathLike | Skill,
    profiles: Sequence[str | Profile] | None = None,
    cwd: PathLike | None = None,
    home: PathLike | None = None,
    extra: Sequence[PathLike] = (),
) -> list[HostVerdict]:
    """One verdict for each profile (all built-in ones by default) on one skill: its folder, its SKILL.md or a `Skill`.

    `extra` are folders that each host is told to search besides. Raises `ConfigError` where there is no SKILL.md.
    """
    folder = skill.dir if isinstance(skill, Skill) else folder_of(os.fspath(skill), _absolute(cwd, "."))
    file = os.path.join(folder, SKILL_FILE)
    found = [verdict for verdict in examine([folder], profiles, cwd, home, extra) if verdict.path == file]
    if not found:
        raise ConfigError(f"there is no {SKILL_FILE} in {folder}", key="PATH", hint="name the folder of a skill")
    return found


def examine(
    paths: Iterable[PathLike],
    profiles: Sequence[str | Profile] | None = None,
    cwd: PathLike | None = None,
    home: PathLike | None = None,
    extra: Sequence[PathLike] = (),
) -> list[HostVerdict]:
    """The verdicts on every skill in or below these folders, by path and then in the order of the profiles."""
    where, own_home = _absolute(cwd, "."), _absolute(home, "~")
    folders = list(dict.fromkeys(folder_of(os.fspath(path), where) for path in paths))
    facts: dict[str, _Facts] = {}
    result: list[HostVerdict] = []
    for profile in _built(profiles):
        host = _Host(profile, where, own_home, [os.fspath(path) for path in extra], facts)
        for folder in folders:
            result += host.judge(folder)
    order = {profile: number for number, profile in enumerate(dict.fromkeys(v.profile for v in result))}
    unique = {(verdict.path, verdict.profile): verdict for verdict in result}
    return sorted(unique.values(), key=lambda verdict: (verdict.path, order[verdict.profile]))


def _built(given: Sequence[str | Profile] | None) -> Iterator[Profile]:
    for one in given if given is not None else profiles.BUILT_IN:
        yield one if isinstance(one, Profile) else profiles.build(profiles.load(one))


def _absolute(path: PathLike | None, default: str) -> str:
    return os.path.abspath(os.path.expanduser(os.fspath(path) if path is not None else default))


def folder_of(path: str, cwd: str) -> str:
    """The folder that somebody means by a path: itself, or that of the SKILL.md. Raises `ConfigError` for others."""
    folder = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    if os.path.basename(folder) == SKILL_FILE and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        what = "is not a skill's folder" if os.path.lexists(folder) else "does not exist"
        raise ConfigError(f"{folder} {what}", key="PATH", hint="name a skill's folder, its SKILL.md, or a folder above")
    return folder


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a file says whoever reads it: its keys with their lines, its size, and whether it has a body."""

    lines: dict[str, int]
    size: int = 0
    label: str = ""
    has_text: bool = False


def _read(file: str) -> _Facts:
    try:
        data = read_regular(os.path.realpath(file), limits.SKILL_FILE_BYTES)
    except (OSError, ValueError):
        return _Facts({})
    parsed = frontmatter.parse(data)
    if parsed is None or parsed.fields is None:
        return _Facts({}, len(data))
    lines = {key: parsed.locate(key)[0] for key in parsed.fields}
    body = data[parsed.body_offset :].strip()
    return _Facts(lines, len(data), as_text(parsed.fields.get("name")) or "", bool(body))


class _Host:
    """One profile at one place: what it finds there, and how it judges any file."""

    def __init__(self, profile: Profile, cwd: str, home: str, extra: list[str], facts: dict[str, _Facts]) -> None:
        self.profile, self.facts = profile, facts
        self.place, _ = roots.locate(profile, cwd, home, {})
        self.roots, _ = roots.resolve(profile, self.place, extra)
        found, _ = discover.scan(profile, self.place, self.roots)
        nobody = Modes(os.devnull, os.devnull)  # no file lies below it, so that no skill is switched
        self.catalog = build_catalog(profile, self.place, self.roots, found, nobody)
        self.offered = {skill.real_path: skill for skill in self.catalog.skills}
        self.shadowed = {entry.skill.real_path: entry for entry in self.catalog.shadowed}
        self.left_out = {os.path.realpath(s.path): s.detail or s.reason for s in self.catalog.skipped}
        self.broken = {os.path.realpath(file): file for file in self.catalog.failed}
        self.prompt = self._prompt() if self.offered else listing.NOTHING
        # Wherever a file lies, it can be judged as if it lay in the right place.
        self.anywhere = replace(
            profile,
            discovery=replace(
                profile.discovery, nested=True, depth=0, root_is_skill=True, hidden=True, ignore=_NOT_SEARCHED,
                folder_links="never",
            ),
        )  # fmt: skip

    def _prompt(self) -> listing.Prompt:
        tools = self.profile.tools
        named = {"load": tools.load, "search": tools.search, "read": tools.read}
        return listing.render(
            list(self.catalog.visible), self.profile, {role: name for role, name in named.items() if name}
        )

    def judge(self, folder: str) -> Iterator[HostVerdict]:
        """The verdicts on all that lies in or below a folder."""
        found, _ = discover.scan(self.anywhere, self.place, (Root(folder, "extra", "argument", explicit=True),))
        said: dict[str, list[Diagnostic]] = {}
        for diagnostic in (*found.diagnostics, *self.catalog.diagnostics):
            if diagnostic not in said.setdefault(diagnostic.path, []):
                said[diagnostic.path].append(diagnostic)
        for skill in found.skills:
            yield self.of_skill(skill, said)
        for file in found.failed:
            yield self.of_file(file, os.path.realpath(file), said)
        for entry in found.skipped:
            if entry.reason in ("link", "outside") and os.path.islink(entry.path):
                yield HostVerdict(self.profile.name, entry.path, "left-out", entry.detail, name=entry.name)

    def of_skill(self, skill: Skill, said: dict[str, list[Diagnostic]]) -> HostVerdict:
        """A file that is a skill by the rules of the host, if the host finds it."""
        entry = self.offered.get(skill.real_path)
        loser = self.shadowed.get(skill.real_path)
        met = entry or (loser.skill if loser else None)
        status, why, put = self.whereabouts(skill, entry, loser)
        notes = said.get(met.path if met else skill.path, [])
        verdict = self.described(skill.path, met or skill, status, why)
        return replace(verdict, put=put, diagnostics=tuple(d for d in notes if d.code != "collision"))

    def of_file(self, file: str, real: str, said: dict[str, list[Diagnostic]]) -> HostVerdict:
        """A file that is no skill by these rules; where it lies, the host may be more forgiving."""
        loser = self.shadowed.get(real)
        met = self.offered.get(real) or (loser.skill if loser else None)
        if met is not None:
            return self.of_skill(replace(met, path=file), said)
        errors = [d for d in said.get(file, ()) if d.severity == "error"]
        why = errors[0].message if errors else "it is not a skill to this host"
        name = os.path.basename(os.path.dirname(file))
        return HostVerdict(
            self.profile.name, file, "invalid", why, name=name, diagnostics=tuple(said.get(file, ())),
            lines=self.fact(file).lines,
        )  # fmt: skip

    def fact(self, file: str) -> _Facts:
        if file not in self.facts:
            self.facts[file] = _read(file)
        return self.facts[file]

    def described(self, path: str, skill: Skill, status: Status, why: str) -> HostVerdict:
        facts, rules = self.fact(path), self.profile
        forms = rules.invocation.forms
        on = skill.enabled and status not in ("left-out", "shadowed", "invalid")
        return HostVerdict(
            rules.name, path, status, why,
            name=skill.name,
            description=listing.description_of(skill, rules),
            root=skill.root.path if status in ("offered", "shadowed") else "",
            model=on and skill.visible,
            user=on and skill.user_invocable and bool(forms),
            called=forms[0].replace("name", skill.name) if forms else "",
            cuts=tuple(self.cuts(skill, facts, status)),
            ignored=tuple(key for key in facts.lines if key not in self.known()),
            notes=tuple(self.notes(skill, facts, status)),
            lines=facts.lines,
        )  # fmt: skip

    def known(self) -> tuple[str, ...]:
        """The keys that mean something to the host."""
        rules = self.profile
        if rules.catalog.reads:
            return rules.catalog.reads
        arguments = ("arguments", "argument-hint") if rules.load.arguments == "indexed" else ()
        extensions = rules.catalog.honours if rules.validation.unknown_keys not in ("ignore", "warn") else ()
        return (*STANDARD_KEYS, *extensions, *arguments)

    def cuts(self, skill: Skill, facts: _Facts, status: Status) -> Iterator[str]:
        rules, most = self.profile, self.profile.prompt.description_chars
        uncut = replace(rules, prompt=replace(rules.prompt, description_chars=0)) if most else rules
        length = len(listing.description_of(skill, uncut))
        if most and length > most:
            more = "".join(f", with `{key}`," for key in rules.prompt.description_fields if key in skill.frontmatter)
            yield f"the description{more} is cut at {most:,} of {length:,} characters"
        if rules.load.max_bytes and facts.size > rules.load.max_bytes:
            yield f"SKILL.md is cut at {rules.load.max_bytes:,} of {facts.size:,} bytes when it is loaded"
        if status == "offered" and skill.visible:
            yield from self.budget(skill)

    def budget(self, skill: Skill) -> Iterator[str]:
        """What the listing as a whole leaves of this skill."""
        rules, prompt = self.profile.prompt, self.prompt
        bounds = ((rules.max_chars, "characters"), (rules.max_bytes, "bytes"), (rules.max_entries, "entries"))
        limit = " or ".join(f"{number:,} {what}" for number, what in bounds if number)
        if skill.name in prompt.more:
            yield f"the listing of {prompt.total:,} skills has room for {limit}: this one is there by name only"
        elif skill.name not in prompt.names:
            yield f"the listing of {prompt.total:,} skills has room for {limit}: this one is not in it"
        elif prompt.shortened:
            yield f"the listing of {prompt.total:,} skills has room for {limit}: descriptions are shortened"

    def notes(self, skill: Skill, facts: _Facts, status: Status) -> Iterator[str]:
        rules = self.profile
        if not rules.enabled:
            yield "skills are off in this host until they are switched on"
        if rules.validation.name_source == "folder" and facts.label and facts.label != skill.name:
            yield "`name` is only a label: the skill is called by its folder"
        if not skill.description and rules.validation.description_missing == "body" and facts.has_text:
            yield "there is no description: the first paragraph of the body stands for it"
        bound = [key for key in ("paths", "globs") if key in rules.catalog.honours and key in skill.frontmatter]
        if bound:
            yield f"the model sees it only while files that fit `{bound[0]}` are worked on"
        others = self.catalog.by_name.get(skill.name, ())
        if status == "offered" and len(others) > 1:
            twin = next(other.path for other in others if other.real_path != skill.real_path)
            yield f"another skill bears the name, and both are offered: {self.shown(twin)}"

    # --- where it lies ---

    def whereabouts(
        self, skill: Skill, entry: Skill | None, loser: Shadowed | None
    ) -> tuple[Status, str, tuple[str, ...]]:
        if entry is not None:
            return "offered", "", ()
        if loser is not None:
            return "shadowed", f"{self.shown(loser.winner.path)} bears the same name and counts", ()
        if skill.real_path in self.left_out:
            return "left-out", self.left_out[skill.real_path], ()
        if skill.real_path in self.broken:
            return "invalid", "it is not a skill in the folder where the host finds it", ()
        inside = next((root for root in self.roots if _below(skill.dir, root.path) is not None), None)
        put = tuple(f"{place}/{skill.name}" for place in roots.usual(self.profile) if place)
        if inside is not None:
            return "left-out", self.overlooked(skill.dir, inside), put
        late = self.on_demand(skill.dir)
        if late:
            return "later", f"it is found once a file in {self.shown(late)} is used", ()
        return "elsewhere", f"not in a folder that it searches from here: put it into {' or '.join(put)}", put

    def overlooked(self, folder: str, root: Root) -> str:
        """Why a skill in a root is not met there."""
        parts = _below(folder, root.path) or []
        if not parts:
            return f"it lies in {self.shown(root.path)} itself, which holds one folder for each skill"
        hidden = next((part for part in parts if part.startswith(".")), "")
        if hidden and not self.profile.discovery.hidden:
            return f"the folder {hidden} begins with a dot"
        if root.depth and len(parts) > root.depth:
            levels = "one level" if root.depth == 1 else f"{root.depth} levels"
            return f"it lies {len(parts)} levels below {self.shown(root.path)}, and only {levels} are searched"
        for number in range(1, len(parts)):
            above = os.path.join(root.path, *parts[:number])
            if os.path.isfile(os.path.join(above, SKILL_FILE)):
                return f"it lies inside the skill {self.shown(above)}"
        return f"the search of {self.shown(root.path)} does not reach it"

    def on_demand(self, folder: str) -> str:
        """The folder below the working directory whose use brings the skill in, if there is one."""
        if _below(folder, self.place.cwd) is None:
            return ""
        holder, depth = os.path.dirname(folder), self.profile.discovery.depth
        for rules in self.profile.roots:
            if rules.on_demand and depth == 1 and holder.endswith(f"/{rules.path}"):
                return holder.removesuffix(f"/{rules.path}")
        return ""

    def shown(self, path: str) -> str:
        """A path as people say it: from the working directory, or from the home."""
        for base, prefix in ((self.place.cwd, ""), (self.place.home, "~/")):
            parts = _below(path, base)
            if parts:
                return prefix + "/".join(parts)
        return path


def _below(path: str, folder: str) -> list[str] | None:
    """The parts of a path below a folder; none for the folder itself, `None` where it lies elsewhere."""
    if path == folder:
        return []
    prefix = folder.rstrip("/") + "/"
    return path[len(prefix) :].split("/") if path.startswith(prefix) else None
