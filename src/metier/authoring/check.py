"""Says how each host would treat a skill: whether it finds it, under which name, who sees it, and what it ignores.

A verdict comes from the code that runs sessions. One scan searches the folders of a profile as the host would. Another
checks the file against the profile's rules, wherever the file is. Nothing is written, and the user's settings, modes
and environment are ignored, so a repository gets the same verdict for everyone.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from metier.authoring.checked_files import CheckedFiles, FileFacts, anywhere, asked_root, has_body
from metier.authoring.verdict import (
    Basis,
    HostVerdict,
    Status,
    rules_of_cuts,
    rules_of_errors,
    rules_of_showing,
    weigh,
)
from metier.catalog import discover
from metier.catalog.build import Catalog, build_catalog
from metier.catalog.garbage import no_collection
from metier.catalog.modes import Modes
from metier.catalog.scan_cache import Memory
from metier.catalog.validate import keys_of
from metier.errors import ConfigError
from metier.hosts import documentation, formats, profiles, roots
from metier.hosts.documentation import Documentation
from metier.hosts.formats import CatalogView
from metier.hosts.formats.standard import description_of
from metier.hosts.profiles import Profile
from metier.values.results import Prompt
from metier.values.skill import SKILL_FILE, Diagnostic, Root, Shadowed, Skill
from metier.values.value import replace

PathLike = str | os.PathLike[str]
Reports = dict[str, list[Diagnostic]]
"""The diagnostics of each file, by its path."""

_UNBOUNDED: Final = ("xml", "list", "json")
"""The formats that list every skill where the profile sets no limit."""
_SKIPPED_BY: Final[Mapping[str, str]] = {
    "link": "discovery.file_links",
    "outside": "discovery.file_links",
    "ignored-folder": "discovery.ignore",
    "too-many": "catalog.max_skills",
    "ignored": "filters.ignore",
    "not-included": "filters.include",
}
"""The rule that leaves a skill out, by the reason for which a scan skips it."""


def verdicts(
    skill: PathLike | Skill,
    profiles: Sequence[str | Profile] | None = None,
    cwd: PathLike | None = None,
    home: PathLike | None = None,
    extra: Sequence[PathLike] = (),
) -> list[HostVerdict]:
    """Return the verdict of each profile on one skill, given as its folder, its SKILL.md or a `Skill`.

    `profiles` defaults to all built-in ones. `extra` are folders that each host searches as well. Raises `ConfigError`
    if there is no SKILL.md.
    """
    folder = skill.dir if isinstance(skill, Skill) else folder_of(os.fspath(skill), _absolute(cwd, "."))
    file = os.path.join(folder, SKILL_FILE)
    found = [verdict for verdict in examine([folder], profiles, cwd, home, extra) if verdict.path == file]
    if not found:
        raise ConfigError(f"there is no {SKILL_FILE} in {folder}", key="PATH", hint="use the folder of a skill")
    return found


def examine(
    paths: Iterable[PathLike],
    profiles: Sequence[str | Profile] | None = None,
    cwd: PathLike | None = None,
    home: PathLike | None = None,
    extra: Sequence[PathLike] = (),
) -> list[HostVerdict]:
    """Return the verdicts on every skill in or below these folders, sorted by path, then in the order of `profiles`."""
    held = list(by_host(paths, profiles, cwd, home, extra))
    found = {(verdict.path, number): verdict for number, each in enumerate(held) for verdict in each}
    return [found[key] for key in sorted(found)]


def by_host(
    paths: Iterable[PathLike],
    profiles: Sequence[str | Profile] | None = None,
    cwd: PathLike | None = None,
    home: PathLike | None = None,
    extra: Sequence[PathLike] = (),
) -> Iterator[list[HostVerdict]]:
    """Yield the verdicts of one profile after the other, sorted by path. Files are read once for all of them."""
    where, own_home = _absolute(cwd, "."), _absolute(home, "~")
    folders = list(dict.fromkeys(folder_of(os.fspath(path), where) for path in paths))
    known = CheckedFiles()
    known.look_for(folders, where, own_home)

    def judged(profile: Profile, sources: Documentation | None) -> list[HostVerdict]:
        with no_collection():
            host = _Host(profile, sources, where, own_home, [os.fspath(path) for path in extra], known)
            found = {verdict.path: verdict for folder in folders for verdict in host.judge(folder)}
        return [found[path] for path in sorted(found)]

    built = {profile.name: (profile, sources) for profile, sources in _built(profiles)}  # each once
    for profile, sources in built.values():
        yield judged(profile, sources)  # the host's catalog is gone before the next one is built


def _built(given: Sequence[str | Profile] | None) -> Iterator[tuple[Profile, Documentation | None]]:
    for one in given if given is not None else profiles.BUILT_IN:
        if isinstance(one, Profile):
            yield one, None
        else:
            yield profiles.build(profiles.load(one)), documentation.load(one)


def _absolute(path: PathLike | None, default: str) -> str:
    return os.path.abspath(os.path.expanduser(os.fspath(path) if path is not None else default))


def folder_of(path: str, cwd: str) -> str:
    """Return the folder that a path means: itself, or the one of a SKILL.md. Raises `ConfigError` for other paths."""
    folder = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
    if os.path.basename(folder) == SKILL_FILE and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        what = "is not a folder" if os.path.lexists(folder) else "does not exist"
        hint = f"use a skill's folder, its {SKILL_FILE}, or a folder with skills in it"
        raise ConfigError(f"{folder} {what}", key="PATH", hint=hint)
    return folder


class _Standing(NamedTuple):
    """The status of a skill, why it has that status, where the host would find it, and the rules that decided."""

    status: Status
    why: str = ""
    put: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


_OFFERED: Final = _Standing("offered")
_Grounds = tuple[tuple[str, ...], Basis | None]


class _Host:
    """One profile at one place: what it finds there, and how it treats any file."""

    def __init__(
        self,
        profile: Profile,
        sources: Documentation | None,
        cwd: str,
        home: str,
        extra: list[str],
        known: CheckedFiles,
    ) -> None:
        self.needs_trust = profile.policy.trust == "required"
        profile = replace(profile, policy=replace(profile.policy, trust="ignore"))  # the verdict is for a trusted one
        self.profile, self.sources, self.known = profile, sources, known
        self.place, _ = roots.locate(profile, cwd, home, {})
        self.roots, _ = roots.resolve(profile, self.place, extra)
        limits = profile.prompt
        self.bounded = (  # whether the listing may leave a skill out
            limits.format not in _UNBOUNDED
            or limits.char_limit is not None
            or bool(limits.max_bytes or limits.max_entries)
        )
        self.rows = Memory()
        self.reports: Reports = {}
        names = known.names
        self.catalog = self.search(names)
        # Those of other names only matter to what the listing or the catalog leaves out, and so to an offered skill.
        limited = self.bounded or profile.catalog.max_skills
        if names is not None and limited and any(skill.name in names for skill in self.catalog.skills):
            self.catalog = self.search(None)
        self.offered = {skill.real_path: skill for skill in self.catalog.skills}
        self.shadowed = {entry.skill.real_path: entry for entry in self.catalog.shadowed}
        # Of those beyond the most that a host takes, there may be thousands.
        skipped = (s for s in self.catalog.skipped if names is None or s.reason != "too-many" or s.name in names)
        self.left_out = {os.path.realpath(one.path): one for one in skipped}
        self.broken = {os.path.realpath(file): file for file in self.catalog.failed}
        self.prompt = self._prompt() if self.offered and self.bounded else formats.NOTHING
        self.described_names, self.other_names = frozenset(self.prompt.names), frozenset(self.prompt.more)
        self.keys = frozenset(keys_of(profile))
        rules = profile.prompt
        self.uncut = (
            replace(profile, prompt=replace(rules, description_chars=0)) if rules.description_chars else profile
        )
        self.bases: dict[tuple[str, ...], Basis] = {}
        self.grounds: dict[tuple[Status, tuple[str, ...], tuple[str, ...], bool, tuple[str, ...]], _Grounds] = {}
        self.may_cut = bool(self.bounded or rules.description_chars or profile.load.max_bytes)
        fields = (*profile.validation.list_fields, *profile.validation.flag_fields)
        self.noted = frozenset(("paths", "globs", *fields))
        self.usual = tuple(filter(None, roots.usual(profile)))
        self.anywhere = anywhere(profile)

    def search(self, names: frozenset[str] | None) -> Catalog:
        """What the host finds: everything, or, if there are names, only what can have one of them."""
        profile, known = self.profile, self.known
        memory = Memory(folders=known.listings(profile, pruned=names is not None), current=True)
        found, memory = discover.scan(profile, self.place, self.roots, memory, heads=known.heads, names=names)
        known.keep_listings(profile, memory.folders, pruned=names is not None)
        # By the rules of their folders, which may be laxer than those of the host.
        self.rows = replace(memory, skills=())
        no_modes = Modes(os.devnull, os.devnull)  # there is no file below it, so no skill has a mode of its own
        of_files = tuple(found.diagnostics)  # in the order in which a file was read
        catalog = build_catalog(profile, self.place, self.roots, found, no_modes)
        self.reports = _by_path((*of_files, *catalog.diagnostics))
        return catalog

    def _prompt(self) -> Prompt:
        profile, rules = self.profile, self.profile.prompt
        # Formats that count characters take a bound in bytes for one in characters, as in a session.
        budget = rules.max_bytes or None if rules.char_limit is None else None
        view = CatalogView(
            skills=list(self.catalog.visible), profile=profile, offered=profile.tools.by_role(), budget=budget
        )
        return formats.listing(view)

    def judge(self, folder: str) -> Iterator[HostVerdict]:
        """Yield the verdicts on every SKILL.md in or below a folder."""
        others: list[tuple[str, str]] = []
        reports = self.reports
        for path, real in self.known.asked[folder]:
            skill = self.in_catalog(f"{real}/{SKILL_FILE}") if folder not in self.known.linked else None
            if skill is not None:
                yield self.of_skill(f"{path}/{SKILL_FILE}", skill, reports)
            else:
                others.append((path, real))
        # What the host did not find.
        found = discover.reread(self.anywhere, self.place, asked_root(folder), others, self.rows, self.known.heads)
        reports = _by_path((*found.diagnostics, *self.catalog.diagnostics))
        for skill in found.skills:
            yield self.of_skill(skill.path, skill, reports)
        for file in found.failed:
            yield self.of_file(file, os.path.realpath(file), reports)
        for entry in found.skipped:
            if entry.reason in ("link", "outside") and os.path.islink(entry.path):
                verdict = HostVerdict(
                    profile=self.profile.name,
                    path=entry.path,
                    status="left-out",
                    why=entry.detail,
                    name=entry.name,
                )
                yield self.sure(verdict, (_SKIPPED_BY[entry.reason],))

    def in_catalog(self, real: str) -> Skill | None:
        """The skill of a file that the host finds and accepts, even if another one is used instead."""
        loser = self.shadowed.get(real)
        return self.offered.get(real) or (loser.skill if loser else None)

    def of_skill(self, path: str, skill: Skill, reports: Reports) -> HostVerdict:
        """The verdict on a file that is a skill by the host's rules, wherever the file is."""
        known = self.in_catalog(skill.real_path) or skill
        standing = self.status_of(skill, self.offered.get(skill.real_path), self.shadowed.get(skill.real_path))
        found = reports.get(known.path)
        told = tuple(d for d in found if d.code != "collision") if found else ()
        return self.described(path, known, standing, told)

    def of_file(self, file: str, real: str, reports: Reports) -> HostVerdict:
        """The verdict on a file that is not a skill by the host's general rules. Its folder's rules may be laxer."""
        known = self.in_catalog(real)
        if known is not None:
            return self.of_skill(file, known, reports)
        errors = [d for d in reports.get(file, ()) if d.severity == "error"]
        verdict = HostVerdict(
            profile=self.profile.name,
            path=file,
            status="invalid",
            why=errors[0].message if errors else "the host does not accept it as a skill",
            name=os.path.basename(os.path.dirname(file)),
            diagnostics=tuple(reports.get(file, ())),
            lines=self.known.fact(file).lines,
        )
        return self.sure(verdict)

    def sure(self, verdict: HostVerdict, decided: tuple[str, ...] = ()) -> HostVerdict:
        """The verdict on a file that is no skill here with how sure it is. `decided` are the rules that decided."""
        if self.sources is None:
            return verdict
        rules = () if verdict.valid else tuple(rules_of_errors(verdict.diagnostics))
        basis = self.basis(rules or (self.place_rule, *decided), self.sources)
        return replace(verdict, certainty=basis.certainty, assumed=basis.assumed)

    @property
    def place_rule(self) -> str:
        """The rule that says where the host looks for skills."""
        return "directories" if self.profile.directories else "roots"

    def basis(self, rules: tuple[str, ...], sources: Documentation) -> Basis:
        """How sure a verdict is that rests on these rules."""
        known = self.bases.get(rules)
        if known is None:
            known = self.bases[rules] = weigh(rules, sources)
        return known

    def described(
        self, path: str, skill: Skill, standing: _Standing, diagnostics: tuple[Diagnostic, ...]
    ) -> HostVerdict:
        """The verdict with everything that the host would do with the skill."""
        facts, rules, status = self.known.fact(path), self.profile, standing.status
        forms = rules.invocation.forms
        on = skill.enabled and status not in ("left-out", "shadowed", "invalid")
        cuts = tuple(self.cuts(skill, facts, status)) if self.may_cut else ()
        errors = tuple(rules_of_errors(diagnostics)) if status == "invalid" else ()
        grounds = (status, standing.rules, tuple(facts.lines), bool(cuts), errors)
        known = self.grounds.get(grounds)  # most skills of a catalog have the same
        if known is None:
            known = self.grounds[grounds] = self.weighed(*grounds)
        ignored, basis = known
        return HostVerdict(
            profile=rules.name,
            path=path,
            status=status,
            why=standing.why,
            put=standing.put,
            name=skill.name,
            description=description_of(skill, rules),
            root=skill.root.path if status in ("offered", "shadowed") else "",
            model=on and skill.visible,
            user=on and skill.user_invocable and bool(forms),
            called=forms[0].replace("name", skill.name) if forms else "",
            listed=status != "offered"
            or not (rules.enabled and self.bounded)
            or skill.name in self.described_names
            or skill.name in self.other_names,
            cuts=cuts,
            ignored=ignored,
            notes=tuple(self.notes(skill, facts, status)),
            diagnostics=diagnostics,
            lines=facts.lines,
            certainty=basis.certainty if basis is not None else None,
            assumed=basis.assumed if basis is not None else (),
        )

    def weighed(
        self, status: Status, decided: tuple[str, ...], keys: tuple[str, ...], cut: bool, errors: tuple[str, ...]
    ) -> _Grounds:
        """The keys that the host ignores, and what a verdict rests on."""
        ignored = tuple(key for key in keys if key not in self.keys)
        if self.sources is None:
            return ignored, None
        behind = [*errors] or [self.place_rule, *decided]
        if status not in ("invalid", "shadowed", "left-out"):
            behind += rules_of_showing(keys)
        behind += ["catalog.reads"] if ignored else []
        behind += rules_of_cuts(self.profile) if cut else ()
        return ignored, self.basis(tuple(behind), self.sources)

    def cuts(self, skill: Skill, facts: FileFacts, status: Status) -> Iterator[str]:
        rules, most = self.profile, self.profile.prompt.description_chars
        length = len(description_of(skill, self.uncut)) if most else 0
        if most and length > most:
            more = "".join(f", with `{key}`," for key in rules.prompt.description_fields if key in skill.frontmatter)
            yield f"the description{more} is cut at {most:,} of {length:,} characters"
        if rules.load.max_bytes and facts.size > rules.load.max_bytes:
            yield f"{SKILL_FILE} is cut at {rules.load.max_bytes:,} of {facts.size:,} bytes when it is loaded"
        if status == "offered" and skill.visible:
            yield from self.budget(skill)

    def budget(self, skill: Skill) -> Iterator[str]:
        """What the limits of the whole listing leave of this skill."""
        rules, prompt = self.profile.prompt, self.prompt
        if not self.bounded or (not prompt.shortened and skill.name in self.described_names):
            return
        chars = rules.char_limit
        bounds = ((rules.max_bytes, "bytes"), (rules.max_entries, "entries"))
        others = [f"{number:,} {what}" for number, what in bounds if number]
        limit = " or ".join([f"{chars:,} characters", *others] if chars is not None else others)
        if skill.name in self.other_names:
            yield f"the listing of {prompt.total:,} skills is limited to {limit}: this one is listed by name only"
        elif skill.name not in self.described_names:
            yield f"the listing of {prompt.total:,} skills is limited to {limit}: this one is not listed"
        elif prompt.shortened:
            yield f"the listing of {prompt.total:,} skills is limited to {limit}: descriptions are shortened"

    def notes(self, skill: Skill, facts: FileFacts, status: Status) -> Iterator[str]:
        rules = self.profile
        if not rules.enabled:
            yield "skills are disabled in this host by default"
        if self.needs_trust and roots.in_project(skill.path, skill.root, self.place):
            yield "the host uses it only if the user trusts the project"
        if rules.validation.name_source == "folder" and facts.name and facts.name != skill.name:
            yield "`name` is only a label: the host uses the name of the folder"
        if not skill.description and rules.validation.description_missing == "body" and has_body(skill.path):
            yield "there is no description: the host shows the first paragraph of the body instead"
        if not self.noted.isdisjoint(skill.frontmatter):
            bound = [key for key in ("paths", "globs") if key in rules.catalog.honours and key in skill.frontmatter]
            if bound:
                yield f"the model sees it only while it works on files that match `{bound[0]}`"
            for key in (*rules.validation.list_fields, *rules.validation.flag_fields):
                if key in skill.frontmatter and key not in rules.catalog.honours:
                    yield f"`{key}` is a field of this host, kept with the skill; it does not change the prompt"
        others = self.catalog.by_name.get(skill.name, ())
        if status == "offered" and len(others) > 1:
            twin = next(other.path for other in others if other.real_path != skill.real_path)
            yield f"another skill has the same name, and the host offers both: {self.shown(twin)}"

    # --- where the skill is ---

    def status_of(self, skill: Skill, entry: Skill | None, loser: Shadowed | None) -> _Standing:
        """The status of a skill that the host accepts."""
        if entry is not None:
            return _OFFERED
        if loser is not None:
            why = f"{self.shown(loser.winner.path)} has the same name and is used instead"
            return _Standing("shadowed", why, rules=("collisions.rule",))
        skipped = self.left_out.get(skill.real_path)
        if skipped is not None:
            rules = (_SKIPPED_BY[skipped.reason],) if skipped.reason in _SKIPPED_BY else ()
            return _Standing("left-out", skipped.detail or skipped.reason, rules=rules)
        if skill.real_path in self.broken:
            return _Standing("invalid", "the host finds it in a folder whose rules do not accept it as a skill")
        inside = next((root for root in self.roots if _below(skill.dir, root.path) is not None), None)
        put = tuple([f"{place}/{skill.name}" for place in self.usual])
        if inside is not None:
            why, rule = self.why_not_found(skill.dir, inside)
            return _Standing("left-out", why, put, (rule,))
        late = self.on_demand(skill.dir)
        if late:
            return _Standing("later", f"the host finds it once it uses a file in {self.shown(late)}")
        return _Standing(
            "elsewhere", f"not in a folder that it searches from here: put it into {' or '.join(put)}", put
        )

    def why_not_found(self, folder: str, root: Root) -> tuple[str, str]:
        """Why the host does not find a skill that is in one of its roots, and the rule that says so."""
        parts = _below(folder, root.path) or []
        if not parts:
            why = f"it is directly in {self.shown(root.path)}, where each skill needs a folder of its own"
            return why, "discovery.root_is_skill"
        hidden = next((part for part in parts if part.startswith(".")), "")
        if hidden and not self.profile.discovery.hidden:
            return f"the name of the folder {hidden} starts with a dot", "discovery.hidden"
        if root.depth and len(parts) > root.depth:
            levels = "one level is" if root.depth == 1 else f"{root.depth} levels are"
            why = f"it is {len(parts)} levels below {self.shown(root.path)}, and only {levels} searched"
            return why, "discovery.depth"
        for number in range(1, len(parts)):
            above = os.path.join(root.path, *parts[:number])
            if os.path.isfile(os.path.join(above, SKILL_FILE)):
                return f"it is inside the skill {self.shown(above)}", "discovery.nested"
        return f"the search of {self.shown(root.path)} does not reach it", "discovery.depth"

    def on_demand(self, folder: str) -> str:
        """The folder below the working directory whose files make the host find the skill, if there is one."""
        parts, depth = _below(folder, self.place.cwd), self.profile.discovery.depth
        for rules in self.profile.roots if parts else ():
            holder, found, below = f"/{'/'.join(parts or ())}".rpartition(f"/{rules.path}/")
            if rules.on_demand and found and depth in (0, below.count("/") + 1):
                return self.place.cwd + holder
        return ""

    def shown(self, path: str) -> str:
        """A path relative to the working directory or to the home folder, if it is below one of them."""
        for base, prefix in ((self.place.cwd, ""), (self.place.home, "~/")):
            parts = _below(path, base)
            if parts:
                return prefix + "/".join(parts)
        return path


def _by_path(diagnostics: Iterable[Diagnostic]) -> Reports:
    """The diagnostics of each file, each once."""
    reports: Reports = {}
    for diagnostic in diagnostics:
        if diagnostic not in reports.setdefault(diagnostic.path, []):
            reports[diagnostic.path].append(diagnostic)
    return reports


def _below(path: str, folder: str) -> list[str] | None:
    """The parts of a path below a folder; empty for the folder itself, `None` for a path outside of it."""
    if path == folder:
        return []
    prefix = folder.rstrip("/") + "/"
    return path[len(prefix) :].split("/") if path.startswith(prefix) else None
