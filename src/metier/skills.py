"""The main entry point of the library: the skills of one place, under one profile.

    skills = Skills.discover()
    for skill in skills: ...

A `Skills` holds an immutable catalog and replaces it on `refresh`. All other methods read that catalog.
"""

import os
import threading
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from metier.catalog import discover, scan_cache, snapshot
from metier.catalog.build import Catalog, Findings, build_catalog, hide_switched_off, log_left_out
from metier.catalog.garbage import no_collection
from metier.catalog.modes import Level, Modes
from metier.files.text import utf8
from metier.hosts import context_files, roots, settings
from metier.hosts.profiles import Profile
from metier.hosts.settings import Settings
from metier.hosts.trust import mark_foreign
from metier.record import telemetry
from metier.running.async_twins import async_twin
from metier.values.skill import SKILL_FILE, Changes, Counts, Diagnostic, Mode, Root, Shadowed, Skill, Skipped
from metier.values.value import replace

if TYPE_CHECKING:
    from metier.files.source import Files
    from metier.policy.asking import Approve
    from metier.policy.decide import Policy
    from metier.record.state import OpenedState
    from metier.record.store import Store
    from metier.running.sandbox import Runner
    from metier.search import Ranker, Reranker
    from metier.search.finder import Finder
    from metier.session.session import Session
    from metier.values.results import Prompt, SearchResult

PathLike = str | os.PathLike[str]

_REWRITTEN: Final = 100
"""The number of changed files for which a process that scans again writes the cache. The next one reads fewer anew."""


class SkillSource(Protocol):
    """A source of skills other than local folders, such as other servers. Its skills are added to those of a scan."""

    @property
    def roots(self) -> tuple[Root, ...]:
        """The origins of the skills, as roots to list next to the folders."""
        ...

    def extend(self, found: discover.Found, profile: Profile) -> None:
        """Add the source's skills to what a scan found."""
        ...

    def files(self) -> "Files":
        """The files of all skills, including those on disk, for one session."""
        ...


class Skills:
    """An ordered collection of skills: iterate over it, look up a name, search it, open a session on it."""

    _snapshot: tuple[Catalog, bytes] | None = None
    _latest: Catalog | None = None

    def __init__(
        self,
        config: Settings,
        extra: Sequence[PathLike] = (),
        progress: Callable[[int], None] | None = None,
        only: Sequence[Root] | None = None,
        rankers: "Sequence[tuple[float, Ranker]]" = (),
        reranker: "Reranker | None" = None,
        source: SkillSource | None = None,
    ) -> None:
        self.settings = config
        self._source = source
        self._extra = tuple(os.fspath(path) for path in extra)
        self._only = tuple(only) if only is not None else None
        self._memory: scan_cache.Memory | None = None
        self._progress = progress
        self._rankers, self._reranker = tuple(rankers), reranker
        self._finder: Finder | None = None
        self._indexed: Catalog | None = None
        self._looking = threading.Lock()
        self._logged: Findings = {}
        self.visited: tuple[str, ...] = ()
        self.catalog = self._scan(progress)

    @classmethod
    def discover(
        cls,
        cwd: PathLike | None = None,
        *,
        profile: PathLike | None = None,
        roots: Sequence[PathLike] = (),
        home: PathLike | None = None,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        progress: Callable[[int], None] | None = None,
        rankers: "Sequence[tuple[float, Ranker]]" = (),
        reranker: "Reranker | None" = None,
        source: SkillSource | None = None,
    ) -> "Skills":
        """Find the skills that the profile sees from `cwd`.

        `roots` are searched before the profile's own, in any profile. A missing one is an error. `settings` override
        values of the profile, with the keys of a configuration file. `progress` is called with the number found so far.
        `rankers` are your own ranking models to combine with word search, each with its weight (words have 1.0), and
        `reranker` puts the best 20 results into order.
        """
        config = resolve_settings(cwd, home=home, profile=profile, overrides=settings, env=env)
        return cls(config, roots, progress, rankers=rankers, reranker=reranker, source=source)

    @classmethod
    def scan(
        cls,
        folder: PathLike,
        *,
        source: str = "custom",
        profile: PathLike | None = None,
        home: PathLike | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> "Skills":
        """Find the skills of a single folder, as if it were one of the profile's custom directories."""
        config = resolve_settings(None, home=home, profile=profile, overrides=settings)
        path = roots.normalise(os.fspath(folder), config.place.cwd, config.place.home)
        root = Root(path, config.profile.custom_scope, source, depth=config.profile.discovery.depth, explicit=True)
        return cls(config, only=[root])

    def _scan(self, progress: Callable[[int], None] | None = None) -> Catalog:
        with no_collection():
            watched = telemetry.active
            catalog = self._look(progress) if watched is None else watched.discovery(self._look, progress)
            self._latest = catalog
            self._logged = log_left_out(catalog, self._logged)
            return catalog

    def _look(self, progress: Callable[[int], None] | None = None) -> Catalog:
        config = self.settings
        profile, place = config.profile, config.place
        state = Modes(config.config_folder, place.project)
        notes: tuple[Diagnostic, ...] = (
            *config.diagnostics,
            *context_files.diagnostics(profile, place, state.trusted),
            *_dropped_rules(config),
        )
        if not profile.enabled:
            file = os.path.join(place.project, ".metier", "config.toml")
            message = f"skills are switched off in the profile {profile.name}"
            notes += (Diagnostic("switched-off", "warning", message, file, hint=profile.off_hint),)
            return build_catalog(profile, place, (), discover.Found(), state, notes)
        if self._only is not None:
            found_roots = self._only
        else:
            found_roots, more = roots.resolve(profile, place, self._extra)
            notes += more
        found_roots = mark_foreign(found_roots, place, config.config_folder)
        file = scan_cache.location(config.cache_folder, profile, found_roots) if config.cache_folder else ""
        memory = self._memory or (scan_cache.read(file) if file else None)
        found, self._memory = discover.scan(profile, place, found_roots, memory, progress, state.trusted)
        first = not hasattr(self, "catalog")
        if first or found.parsed > _REWRITTEN:
            kept = bool(file) and (not found.changed or scan_cache.write(file, self._memory))
            if kept and first:
                self._memory = None  # a process that never scans again saves the memory
        self.parsed, self.visited = found.parsed, tuple(found.visited)
        if self._only is None and profile.collisions.switched_off == "count":
            hide_switched_off(found, profile, place, state.trusted)
        if self._source is not None:
            self._source.extend(found, profile)
            found_roots = (*found_roots, *self._source.roots)
        return build_catalog(profile, place, found_roots, found, state, notes)

    def refresh(self) -> Changes:
        """Rescan the disk, and return what was added, removed or changed since the last scan.

        For hosts that scan only at startup, this does nothing: only a new `discover` sees changes.
        """
        if self.profile.catalog.refresh == "start":
            return Changes()
        return self._rescan()

    arefresh = async_twin(refresh)
    """`refresh` for asyncio."""

    def look(self) -> Catalog:
        """The catalog that `refresh` would produce, without replacing the current one."""
        if self.profile.catalog.refresh == "start":
            return self.catalog
        with self._looking:
            return self._scan()

    def adopt(self, found: "Mapping[Skills, Catalog]") -> Changes:
        """`refresh` with what `look` just found, for a `Watcher`. It is not scanned again if it is still the latest."""
        return Changes() if self.profile.catalog.refresh == "start" else self._rescan(found.get(self))

    def _rescan(self, found: Catalog | None = None) -> Changes:
        with self._looking:  # one scan at a time, so that an older result never replaces a newer one
            new = found if found is not None and found is self._latest else self._scan()
            self._indexed = None  # references are not part of a catalog, and may have changed
            changes = snapshot.compare(self.catalog, new)
            # A catalog is replaced only by a different one, so callers can detect a change by identity.
            if changes or not snapshot.same(self.catalog, new):
                self.catalog = new
        return changes

    # --- the collection ---

    def __iter__(self) -> Iterator[Skill]:
        return iter(self.catalog.skills)

    def __len__(self) -> int:
        return len(self.catalog.skills)

    def __contains__(self, name: object) -> bool:
        return name in self.catalog.by_name

    def __getitem__(self, name: str) -> Skill:
        """The skill with this name. Raises `SkillNotFound`, `AmbiguousSkill` or `InvalidSkill`."""
        return self.catalog.find(name)

    def get(self, name: str) -> Skill | None:
        """The first skill with this name, or `None`."""
        return next(iter(self.catalog.by_name.get(name, ())), None)

    def at(self, path: PathLike) -> Skill:
        """The skill whose SKILL.md or folder is at this path. Shadowed skills are included."""
        return self.catalog.find_path(os.fspath(path))

    @property
    def catalogs(self) -> "tuple[Skills, ...]":
        """This object alone, for a `Watcher` of a single catalog."""
        return (self,)

    @property
    def profile(self) -> Profile:
        return self.catalog.profile

    @property
    def roots(self) -> tuple[Root, ...]:
        return self.catalog.roots

    @property
    def shadowed(self) -> tuple[Shadowed, ...]:
        return self.catalog.shadowed

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        return self.catalog.skipped

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self.catalog.diagnostics

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that are about no skill, but about settings, rules and folders. Hints are left out."""
        found = self.catalog.diagnostics
        return tuple(d for d in found if d.severity != "info" and not d.path.endswith(SKILL_FILE))

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """Why files are not skills: the first error of each file."""
        first: dict[str, Diagnostic] = {}
        failed = set(self.catalog.failed)
        for diagnostic in self.catalog.diagnostics:
            if diagnostic.severity == "error" and diagnostic.path in failed:
                first.setdefault(diagnostic.path, diagnostic)
        return tuple(first.values())

    @property
    def counts(self) -> Counts:
        return self.catalog.counts

    def snapshot(self) -> bytes:
        """The whole catalog as data, from which a replay restores an equal one."""
        if self._snapshot is None or self._snapshot[0] is not self.catalog:
            self._snapshot = (self.catalog, utf8(snapshot.dump(self.catalog)))
        return self._snapshot[1]

    # --- search, prompts and sessions ---

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        scope: str | None = None,
        among: Container[str] | None = None,
        context: str | None = None,
    ) -> "SearchResult":
        """The skills that match a query, best first. `among` limits the search to these paths.

        Skills in mode `off` are never found. A query that matches nothing returns no results. `context` is what else is
        known, such as names of files or the messages before: it can change the order of what the query finds.

        The index of a large catalog is built in the background. Until then only names and descriptions are searched,
        and `indexing` of the result says so; `wait_for_index` waits.
        """
        from metier import search  # with the values of results, a quarter of the import

        rules = self.profile.search
        wanted = min(max(rules.default_limit if limit is None else limit, 1), rules.max_limit)
        text, cwd = query.strip(), self.settings.place.cwd

        def allowed(skill: Skill) -> bool:
            return skill.enabled and scope in (None, skill.scope) and (among is None or skill.path in among)

        if not text:
            return search.cut(query, (), wanted)
        indexing = None
        if rules.scoring == "overlap":
            hits = search.overlap((skill for skill in self.catalog.skills if allowed(skill)), text, cwd)
        else:
            finder = self._find()
            indexing = finder.progress()
            hits = finder.search(text, wanted + 1, allowed, cwd, context or "")
            finder.build_soon()
        return search.cut(query, hits, wanted, indexing)

    asearch = async_twin(search)
    """`search` for asyncio."""

    def wait_for_index(self, timeout: float | None = None) -> bool:
        """Wait until the text of all skills can be searched. Returns false if that takes more than so many seconds."""
        return self.profile.search.scoring == "overlap" or self._find().wait(timeout)

    def explain(self, result: "SearchResult") -> "SearchResult":
        """The same result, with the query words that occur in each skill, including its body."""
        text = result.query.strip()
        if self.profile.search.scoring == "overlap" or not result.results:
            return result  # its hits already have their words
        return replace(result, results=tuple(self._find().explain(text, result.results)))

    def _find(self) -> "Finder":
        """The search index, updated if the catalog is a new one."""
        from metier.search.finder import Finder
        from metier.search.words import aliases

        if self._finder is None:
            cache_folder = self.settings.cache_folder
            folder = scan_cache.location(cache_folder, self.profile, self.roots, "index") if cache_folder else ""
            rules = self.profile.search
            self._finder = Finder(folder, self._rankers, aliases(rules.expand, rules.synonyms), self._reranker)
        current = self.catalog  # a watcher may replace it meanwhile
        if self._indexed is not current:
            self._finder.sync(current.skills, self._progress, current.shadowed)
            self._indexed = current
        return self._finder

    def ranked(self, skills: Sequence[Skill], message: str | None, used: Sequence[str] = ()) -> list[Skill]:
        """The skills in the order for a prompt: pinned, relevant to the message, used before, others.

        `used` are names, latest first. Without a message, the rest keeps the catalog's order, so a prompt is stable.
        """
        pinned = [skill for skill in skills if skill.mode == "pinned"]
        rest = [skill for skill in skills if skill.mode != "pinned"]
        if message and message.strip():
            paths = {skill.path for skill in rest}
            finder = self._find()
            fitting = finder.rank(message, lambda skill: skill.path in paths, len(rest))
            finder.build_soon()
            found = {skill.path for skill in fitting}
            last = {name: -position for position, name in enumerate(reversed(used))}
            others = sorted(
                (skill for skill in rest if skill.path not in found), key=lambda skill: last.get(skill.name, 1)
            )
            rest = [*fitting, *others]
        return [*pinned, *rest]

    def fitting(self, message: str, among: Container[str], limit: int, least: float) -> list[Skill]:
        """The skills, of those at the paths `among`, that fit a message best; none if the best scores below `least`."""
        return self._find().rank(message, lambda skill: skill.path in among, limit, least)

    def prompt(self, message: str | None = None, budget: int | None = None) -> "Prompt":
        """The part of a system prompt that shows the catalog. See `Session.prompt`."""
        return self.session().prompt(message, budget)

    def session(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the public name of the argument
        policy: "Policy | Mapping[str, object] | None" = None,
        store: "str | Store | None" = None,
        approve: "Approve | None" = None,
        tools: bool | None = None,
        preload: Sequence[str] = (),
        only: Sequence[str] | None = None,
        has_read_tool: bool | None = None,
        state: "Mapping[str, object] | OpenedState | None" = None,
        files: "Files | None" = None,
        runner: "Runner | None" = None,
        surface: str = "python",
        cwd: str | None = None,
        store_required: bool = True,
        applies: Collection[str] | None = None,
        clock: Callable[[], int] | None = None,
        ids: Callable[[], str] | None = None,
    ) -> "Session":
        """Open a session with these skills.

        Args:
            id: The session's id. A new one by default. A session that the store has goes on as its events say, with its
                `tools`, `only`, `has_read_tool` and `cwd` unless new ones are given here.
            policy: A `Policy`, or its settings. By default, the permissions of the configuration apply.
            store: A `Store` or its URL. With a store, everything needed to replay the session is kept, unless policy
                redacts it. Without one, events live as long as the session.
            approve: Called with a `Request` when policy requires a person's approval. It returns `True`, `"once"` or
                `"always"` for yes, `False`, `None` or `"no"` for no; anything else raises `TypeError`. It may be a
                coroutine function if you call the asynchronous methods. The session's lock is not held meanwhile.
            tools: Whether the model can call tools. It can by default.
            preload: Names of skills that are in the system prompt from the first request of a new session on. With
                `only`, each must be one of those.
            only: Limit the session to skills with these names.
            has_read_tool: Whether the host gives its model a tool that reads files. It does by default.
            state: A dict from an earlier `session.state()`, for a session that goes on without its store.
            files: The source of the skills' files. The disk by default.
            runner: The runner for scripts. The machine's own sandbox by default.
            surface: The surface that uses the session, for the record.
            cwd: The session's own working directory, for the record.
            store_required: Raise store errors: what was not stored did not happen. Otherwise they are logged, and
                events are written later.
            applies: The kinds of overrides (`"model"`, `"tools"`, ...) that your host applies if a skill proposes them
                and policy grants them. All others are refused. By default, your host looks at `session.overrides`.
            clock: Returns milliseconds since 1970, for a deterministic run.
            ids: Returns ids for events, for a deterministic run.
        """
        import dataclasses

        from metier.files.source import DiskFiles
        from metier.policy.decide import Policy
        from metier.record.events import check_session_id
        from metier.record.state import OpenedState, SessionState, reopened
        from metier.record.store import open_store
        from metier.record.writer import random_ids, system_clock
        from metier.running.world import LiveWorld
        from metier.session.session import Session

        rules = Policy.of(policy, self.settings)
        if files is None and self._source is not None:
            files = self._source.files()
        if applies is not None:
            rules = dataclasses.replace(rules, applies=frozenset(applies))
        if isinstance(store, str):
            store = open_store(store)
        if state is None and id and store is not None:
            state = reopened(store, check_session_id(id), required=store_required)
        opened = state if isinstance(state, OpenedState) else OpenedState(SessionState())
        known = opened.options
        return Session(
            self,
            id=check_session_id(id) if id else None,
            policy=rules,
            store=store,
            approve=approve,
            tools=tools if tools is not None else known.get("tools", True),
            preload=preload if opened.state.seq < 0 else (),
            only=only if only is not None else known.get("only"),
            has_read_tool=has_read_tool if has_read_tool is not None else known.get("has_read_tool", True),
            state=state,
            world=LiveWorld(
                files=files or DiskFiles(), runner=runner, clock=clock or system_clock, ids=ids or random_ids
            ),
            surface=surface,
            cwd=os.path.abspath(cwd) if cwd is not None else known.get("cwd"),
            store_required=store_required,
        )

    # --- persistent modes ---

    def set_mode(self, name: str, mode: Mode, *, level: Level = "user") -> Skill:
        """Pin a skill, hide it from the model or switch it off, for this user or for everyone in the project.

        `name` may be a path. Returns the skill in the mode that holds then: what a project sets only hides more. The
        catalog is updated before this returns.
        """
        skill = self.at(name) if os.sep in name else self._switchable(name, mode)
        Modes(self.settings.config_folder, self.settings.place.project).set(skill, mode, level)
        self._rescan()
        return self.at(skill.path)

    def _switchable(self, name: str, mode: Mode) -> Skill:
        """The skill to switch by name. To switch one on, this prefers the only skill of that name that is off."""
        if mode != "off":
            everything = (*self.catalog.skills, *(entry.skill for entry in self.shadowed))
            off = [skill for skill in everything if skill.name == name and not skill.enabled]
            if len(off) == 1:
                return off[0]
        return self.catalog.find(name)

    def enable(self, name: str, *, level: Level = "user") -> Skill:
        return self.set_mode(name, "auto", level=level)

    def disable(self, name: str, *, level: Level = "user") -> Skill:
        return self.set_mode(name, "off", level=level)


resolve_settings = settings.resolve


def _dropped_rules(config: Settings) -> tuple[Diagnostic, ...]:
    if not config.permissions and not os.path.exists(config.answers_file):
        return ()
    from metier.policy.remembered import dropped_rules  # most catalogs have no rules to read

    return dropped_rules(config)
