"""Installs a skill from a folder, an archive or a site into the user's or a project's folder of skills.

Policy is asked before anything is fetched. A source on the network needs an allow or ask rule; without one, no
connection is made. The files are checked in memory, written to a temporary folder, read by the same discovery that will
find the skill later, and shown to the user. Only then are they renamed into place, together with the lock file and the
event. The invariant: an install succeeds completely or changes nothing. If the process is killed, the next install
finishes or removes what it left.
"""

import contextlib
import os
import pwd
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from metier import limits
from metier.catalog import discover, frontmatter, validate
from metier.catalog.skill_file import reason_of
from metier.errors import ConfigError, InstallError, InvalidSkill, MetierError, PolicyDenied, StoreError
from metier.files import plugins
from metier.files.beneath import read_regular
from metier.files.digests import FORM, digest_of, is_digest
from metier.files.text import storable_table
from metier.hosts import roots
from metier.hosts.settings import Settings
from metier.policy.asking import YES, Approve, ask, read_answer
from metier.policy.decide import Policy, Request
from metier.record.events import INSTALLS, InstallRefused, SkillInstalled
from metier.record.store import Draft, Store
from metier.record.writer import random_ids, system_clock
from metier.sources.install import archive, fetch, lock, placing
from metier.sources.install.archive import ArchiveEntry
from metier.values.skill import SKILL_FILE, Diagnostic, JsonObject, Root
from metier.values.value import Value, replace

TOOL: Final = "install"
"""The tool name of installs in policy rules. The `path` of such a rule is the URL."""

BringArchive = Callable[[str, str], bytes]
"""A source of an installed package: called with an address and the name of a skill, which may be empty, it returns a
zip or tar.gz archive of that skill. Raises `OSError` or `ValueError` if there is none."""


class InstallRequest(Value):
    """What to install, from where, and what the source must match."""

    source: str
    """A folder, an archive, the URL of an archive, a site or its index.json, or an address that a package knows."""
    name: str = ""
    """The name that the skill must have. A site needs it to select one of its skills."""
    digest: str = ""
    """The digest that the archive must have, as `sha256:...`. For a folder, the digest in the lock file."""
    project: bool = False
    """Install for the project instead of for the user."""
    replace: bool = False
    """Replace an installed skill of the same name."""
    lenient: bool = False
    """Accept violations of the standard that the profile accepts."""


class OfferedFile(NamedTuple):
    """A file of an offer."""

    path: str
    size: int
    executable: bool


class Offer(Value):
    """What would be installed, for the decision. Everything except `target` comes from the untrusted source."""

    json_keys = (
        "name", "description", "source", "path=target", "digest=tree", "artifact", "files", "replaced=replaces",
        "left_out", "diagnostics",
    )  # fmt: skip

    name: str
    description: str
    source: str
    target: str
    tree: str
    artifact: str
    files: tuple[OfferedFile, ...]
    replaces: bool
    diagnostics: tuple[Diagnostic, ...] = ()
    left_out: tuple[str, ...] = ()
    """Paths of a local folder that are not installed: version control, caches and compiled Python."""


class _Fetched(NamedTuple):
    entries: Sequence[ArchiveEntry]
    source: str
    artifact: str = ""
    left_out: tuple[str, ...] = ()


class Installer:
    """Installs skills with given settings. `approve` answers the policy's questions; without it, they are refused."""

    def __init__(
        self,
        config: Settings,
        sink: Store,
        *,
        policy: Policy | None = None,
        approve: Approve | None = None,
    ) -> None:
        self._config, self._sink, self._approve = config, sink, approve
        self._policy = policy or Policy.configured(config)

    def root(self, *, project: bool = False) -> str:
        """The folder in which skills are installed: the first one that the profile has for a user or a project."""
        found = self._root(project=project)
        if found is None:
            where, other = ("project", "omit --project") if project else ("user", "try --project")
            raise ConfigError(f"the profile {self._config.profile.name} has no folder for {where} skills", hint=other)
        return found

    def _root(self, *, project: bool) -> str | None:
        config = self._config
        base = config.place.project if project else config.place.home
        scopes = ("repo", "project") if project else ("user",)
        found, _ = roots.resolve(config.profile, replace(config.place, cwd=config.place.project))
        for root in found:
            if root.scope in scopes and _below(root.path, base):
                real = os.path.realpath(root.path)
                if project and not _below(real, os.path.realpath(base)):
                    raise ConfigError(f"{root.path} is a link that leaves the project", hint="omit --project")
                return real
        return None

    def verify(self, *, project: bool | None = None) -> list[lock.LockFinding]:
        """Compare every skill in a lock file with all files in its folder, and report an interrupted install.

        Without `project`, both the skills of the user and those of the project are compared.
        """
        if project is not None:
            return self._verify(self.root(project=project), "project" if project else "user")
        own, shared = self._root(project=False), self._root(project=True)
        findings = self._verify(own, "user") if own is not None else []
        if shared is not None and shared != own:
            findings += self._verify(shared, "project")
        return findings

    def _verify(self, root: str, scope: lock.Scope) -> list[lock.LockFinding]:
        if not os.path.isdir(os.path.dirname(root)):
            return []
        with placing.exclusive(root):
            unfinished = placing.read_journal(self._config.config_folder, root)
            findings = {finding.name: finding for finding in lock.verify(root, scope)}
        if unfinished is not None and unfinished.happened():
            problems = findings[unfinished.name].problems if unfinished.name in findings else ()
            told = "its install was interrupted before it was in the lock file; the next install completes it"
            findings[unfinished.name] = lock.LockFinding(scope, unfinished.name, (told, *problems))
        return [findings[name] for name in sorted(findings)]

    def install(self, request: InstallRequest, confirm: Callable[[Offer], bool]) -> Offer:
        """Install a skill if the policy and `confirm` allow it. A refusal is recorded and raised."""
        source = self._source(request)
        try:
            return self._install(request, source, confirm)
        except MetierError as error:
            reason = error.reason if isinstance(error, (InstallError, StoreError)) else type(error).__name__
            event = InstallRefused(source, reason, str(error), _user_name(), request.name)
            # The name of a local folder may contain bytes that are not UTF-8, which a store rejects.
            self._append(random_ids(), system_clock(), event.type, storable_table(event.data()))
            raise

    # --- fetching ---

    def _source(self, request: InstallRequest) -> str:
        if fetch.is_remote(request.source):
            return fetch.without_secrets(request.source)
        return roots.normalise(request.source, self._config.place.cwd, self._config.place.home)

    def _fetch(self, request: InstallRequest, source: str) -> _Fetched:
        if _is_remote(request):
            scheme = request.source.partition("://")[0].lower()
            bring = plugins.find("metier.sources", scheme) if scheme not in ("http", "https") else None
            return self._download(request) if bring is None else self._brought(request, bring)
        if os.path.isdir(source):
            found, left_out = archive.read_folder(source)
            entries = archive.unwrap(found)
            _compare(lock.tree_digest(lock.rows(entries)), request.digest, source)
            return _Fetched(entries, source, left_out=left_out)
        try:
            data = read_regular(source, limits.ARTIFACT_BYTES)
        except (OSError, ValueError) as error:
            raise InstallError(f"{source} cannot be read: {reason_of(error)}", reason="unreadable") from error
        return _Fetched(archive.unpack(data), source, _compare(digest_of(data), request.digest, source))

    def _download(self, request: InstallRequest) -> _Fetched:
        asked: set[str] = set()

        def permit(url: str) -> None:
            self._enforce(
                Request(TOOL, request.name, fetch.shown(url), digest=request.digest), fetch.origin(url) in asked
            )
            asked.add(fetch.origin(url))

        client = fetch.Client(request.source, permit)
        index = fetch.index_of(request.source)
        url, digest, kind = request.source, request.digest, "archive"
        if index:
            place, data = client.get(index, limits.INDEX_BYTES)
            listed = fetch.find(data, place, request.name)
            if digest and digest != listed.digest:
                raise InstallError(f"the index has the digest {listed.digest}, not {digest}", reason="digest")
            url, digest, kind = listed.url, listed.digest, listed.kind
        url, data = client.get(url, limits.ARTIFACT_BYTES)
        artifact = _compare(digest_of(data), digest, fetch.shown(url))
        entries = [ArchiveEntry(SKILL_FILE, data)] if kind == "skill-md" else archive.unpack(data)
        return _Fetched(entries, fetch.shown(url), artifact)

    def _brought(self, request: InstallRequest, bring: BringArchive) -> _Fetched:
        """What a source of an installed package brings. It is an archive like any other: untrusted, and checked."""
        source = fetch.without_secrets(request.source)
        self._enforce(Request(TOOL, request.name, source, digest=request.digest), answered=False)
        try:
            data = bring(request.source, request.name)
        except (OSError, ValueError) as error:
            raise InstallError(f"{source} cannot be read: {error}", reason="unreachable") from error
        if len(data) > limits.ARTIFACT_BYTES:
            raise InstallError(f"{source} has more than {limits.ARTIFACT_BYTES:,} bytes", reason="too-large")
        artifact = _compare(digest_of(data), request.digest, source)
        return _Fetched(archive.unpack(data), source, artifact)

    def _enforce(self, request: Request, answered: bool) -> None:
        """Ask the policy. An answer applies to this install only; a lasting permission is a rule in the settings."""

        def answer(asked: Request) -> str:
            said = "once" if answered or self._approve is None else ask(self._approve, asked)
            return "once" if said in YES else said

        decision = self._policy.decide(request)
        if decision.verdict == "deny" and decision.rule is None:
            missing = (
                '[permissions] has no rule for it, such as allow = [{ tool = "install", path = "https://host/*" }]'
            )
            raise PolicyDenied(TOOL, request.skill_name, missing)
        self._policy.enforce(request, answer if answered or self._approve is not None else None)

    def _allow(self, offer: Offer, *, remote: bool) -> None:
        """Ask the policy again, now that the name is known. A local source needs no rule, but a rule can deny it."""
        asked = Request(TOOL, offer.name, offer.source, digest=offer.artifact or offer.tree)
        if remote or self._policy.name == "read-only" or self._policy.decide(asked).rule is not None:
            self._enforce(asked, answered=remote)

    # --- installing ---

    def _install(self, request: InstallRequest, source: str, confirm: Callable[[Offer], bool]) -> Offer:
        root = self.root(project=request.project)
        if request.digest and not is_digest(request.digest):
            raise ConfigError(f"a digest must be {FORM}", key="digest")
        fetched = self._fetch(request, source)
        name = _name(fetched.entries)
        if request.name and name != request.name:
            raise InstallError(f"the skill is named {name!r}, not {request.name!r}", reason="other-name")
        target = os.path.join(root, name)
        rows = lock.rows(fetched.entries)
        with placing.staging_folder(root, self._finish) as staging:
            replaces = os.path.lexists(target)
            if replaces and not request.replace:
                raise InstallError(f"{target} already exists", reason="exists", hint="use --replace to replace it")
            folder = os.path.join(staging, name)
            try:
                archive.write(fetched.entries, folder)
            except OSError as error:
                error.filename = target  # and not the temporary folder
                raise InstallError(f"{target} cannot be written: {error.strerror}", reason="unwritable") from error
            description, diagnostics = self._examine(folder, request.lenient)
            offer = Offer(
                name=name,
                description=description,
                source=fetched.source,
                target=target,
                tree=lock.tree_digest(rows),
                artifact=fetched.artifact,
                files=tuple(OfferedFile(entry.path, len(entry.data), entry.executable) for entry in fetched.entries),
                replaces=replaces,
                diagnostics=diagnostics,
                left_out=fetched.left_out,
            )
            self._allow(offer, remote=_is_remote(request))
            if read_answer(confirm(offer)) not in YES:
                raise PolicyDenied(TOOL, name, "the answer was no")
            locked = lock.Locked(
                source=self._source_in_lock(offer, request), digest=offer.tree, artifact=offer.artifact, files=rows
            )
            self._place(staging, folder, root, offer, locked)
        return offer

    def _examine(self, folder: str, lenient: bool) -> tuple[str, tuple[Diagnostic, ...]]:
        """Return the description and the diagnostics of discovery, which is strict unless `lenient` is set."""
        profile = self._config.profile
        judged = replace(
            profile,
            validation=profile.validation if lenient else validate.STRICT,
            discovery=replace(profile.discovery, nested=False, depth=1, root_is_skill=True, hidden=True),
        )
        found, _ = discover.scan(judged, self._config.place, (Root(folder, "extra", "install", explicit=True),))
        file = os.path.join(folder, SKILL_FILE)
        notes = tuple(replace(note, path=SKILL_FILE) for note in found.diagnostics if note.path == file)
        skill = next((skill for skill in found.skills if skill.path == file), None)
        if skill is None:
            errors = [note for note in notes if note.severity == "error"]
            raise InvalidSkill(SKILL_FILE, errors or notes)
        return skill.description, notes

    def _source_in_lock(self, offer: Offer, request: InstallRequest) -> str:
        """The source as the lock file names it. A project's lock file is shared, so it has no private folder in it."""
        project = self._config.place.project
        if _is_remote(request) or not request.project:
            return offer.source
        inside = _below(offer.source, project)
        return os.path.relpath(offer.source, project) if inside else os.path.basename(offer.source)

    def _place(self, staging: str, folder: str, root: str, offer: Offer, locked: lock.Locked) -> None:
        """Put the folder into place, and write the lock file and the event. A failure undoes every step."""
        own, temporary = self._config.config_folder, os.path.join(staging, ".lock")
        with placing.exclusive(root), contextlib.ExitStack() as undo:
            self._finish(root)
            before = lock.read(root)
            was = before.get(offer.name)
            event = SkillInstalled(
                name=offer.name,
                source=offer.source,
                path=offer.target,
                tree=offer.tree,
                by=_user_name(),
                files=len(offer.files),
                artifact=offer.artifact,
                replaced=was.digest if was and offer.replaces else "",
            )
            change = placing.Placement(
                root, offer.name, staging, locked, random_ids(), system_clock(), storable_table(event.data())
            )
            placing.write_journal(own, change)
            undo.callback(placing.remove_journal, own, root)
            try:
                placing.put(folder, offer.target, replaces=offer.replaces)
                undo.callback(placing.take_back, folder, offer.target, replaces=offer.replaces)
            except OSError as error:
                message = f"{offer.target} cannot be written: {error.strerror}"
                raise InstallError(message, reason="unwritable") from error
            undo.callback(lock.write, root, before, temporary)
            lock.write(root, {**before, offer.name: locked}, temporary)
            self._append(change.event_id, change.timestamp_ms, event.type, change.event)
            undo.pop_all()
            placing.remove_journal(own, root)

    def _finish(self, root: str) -> None:
        """Finish the install of a process that was killed: the lock file and the event follow the files."""
        own = self._config.config_folder
        change = placing.read_journal(own, root)
        if change is None:
            return
        placing.put_back(change)
        if change.happened():
            lock.write(root, {**lock.read(root), change.name: change.locked}, f"{lock.location(root)}.new")
            self._append(change.event_id, change.timestamp_ms, SkillInstalled.type, change.event)
        placing.remove_journal(own, root)

    def _append(self, event_id: str, timestamp_ms: int, kind: str, data: JsonObject) -> None:
        self._sink.append(INSTALLS, "install", INSTALLS, [Draft(event_id, timestamp_ms, kind, data)])


def _is_remote(request: InstallRequest) -> bool:
    """Whether the skill comes over the network."""
    return fetch.is_remote(request.source)


def _compare(digest: str, wanted: str, source: str) -> str:
    """Return the digest if it is the expected one, or raise."""
    if wanted and digest != wanted:
        raise InstallError(f"{source} has the digest {digest}, not {wanted}", reason="digest")
    return digest


def _name(entries: Sequence[ArchiveEntry]) -> str:
    """The name in the SKILL.md, which becomes the name of the folder."""
    data = next(entry.data for entry in entries if entry.path == SKILL_FILE)
    parsed = frontmatter.parse(data[: limits.FRONTMATTER_BYTES + limits.HEAD_BYTES])
    name = (parsed.fields or {}).get("name") if parsed is not None else None
    if not isinstance(name, str) or len(name) > limits.NAME_LENGTH or validate.name_flaw(name, "unicode"):
        raise InstallError(f"{SKILL_FILE} has no frontmatter with a valid name", reason="invalid")
    return name


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _user_name() -> str:
    """The login name of the current user, from the system and not from the environment."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
