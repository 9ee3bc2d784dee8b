"""Skills of other MCP servers, as roots of the catalog: listed without a body, fetched and verified when loaded.

Each skill has a folder in the cache whose path names its server and the digest of its whole set of files. A file is
written there when it is first needed and verified against the entry on every use. The cache is never searched for
skills. A local skill wins over a server's skill of the same name, and the collision is reported.
"""

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal

from metier.catalog import skill_file, validate
from metier.catalog.discover import Found
from metier.catalog.frontmatter import Parsed
from metier.errors import ConfigError, ResourceError
from metier.files.beneath import Content, Listing, read_file, within_limits
from metier.files.replace import beside
from metier.files.shapes import as_table, is_object
from metier.files.source import DiskFiles
from metier.hosts.profiles import Profile
from metier.policy.rules import REMOTE_LOAD, skill_request
from metier.sources import remote_skill
from metier.sources.mcp_client import McpClient, ServerConfig
from metier.sources.remote_skill import RemoteSkill, RemoteSkillRefused
from metier.values.results import Request
from metier.values.skill import REMOTE, SKILL_FILE, Diagnostic, Root, Skill, Skipped

SHORTEST_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 3600.0
"""The bounds for how long a listing stays current; between them, the server decides."""
RETRY_SECONDS: Final = 30.0
"""The delay before a server that could not be reached is asked again."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEYS: Final = ServerConfig.__struct_fields__[1:]


class _CachedListing(NamedTuple):
    """What a server listed, and the problem if it could not be asked again."""

    valid_until: float = -1.0
    entries: Sequence[object] = ()
    problem: str = ""


def servers(given: Mapping[str, object]) -> tuple[ServerConfig, ...]:
    """The servers in `[mcp.servers]` of the user's own configuration. A project cannot add any: they start programs."""
    return tuple(_server(name, value) for name, value in given.items())


def _server(name: str, given: object) -> ServerConfig:
    where = f"mcp.servers.{name}"

    def wrong(message: str, key: str = "") -> ConfigError:
        return ConfigError(f"{where}{f'.{key}' if key else ''} {message}", key=where)

    if not _NAME.fullmatch(name):
        raise wrong("is not a valid name: use up to 64 letters, digits, - and _")
    if not is_object(given):
        raise wrong("must be a table")
    unknown = next((key for key in given if key not in _KEYS), None)
    if unknown is not None:
        raise wrong(f"is not a known key; use {', '.join(_KEYS)}", unknown)
    try:
        config = msgspec.convert({**given, "name": name}, ServerConfig)
    except msgspec.ValidationError as error:
        raise wrong(f"is not valid: {error}") from error
    if bool(config.command) == bool(config.url):
        raise wrong("needs either a command (a list of strings) or a url")
    if config.url and not config.url.startswith(("https://", "http://")):
        raise wrong("must start with https:// or http://", "url")
    if not all(value.isascii() and value.isprintable() for value in config.headers.values()):
        raise wrong("must be a table of strings of printable ASCII characters", "headers")
    if config.headers and not config.url:
        raise wrong("needs a url", "headers")
    return config


class McpSource:
    """The skills of some servers. Thread-safe; `close` ends the connections."""

    def __init__(
        self, configs: Sequence[ServerConfig], folder: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.configs = tuple(configs)
        self.folder = os.path.join(os.path.realpath(folder), "mcp")
        self._clock = clock
        self._lock = threading.RLock()
        self._thread: AbstractContextManager[BlockingPortal] | None = None
        self._clients: dict[str, McpClient] = {}
        self._listings: dict[str, _CachedListing] = {}
        self._known: dict[str, RemoteSkill] = {}

    # --- the catalog ---

    @property
    def roots(self) -> tuple[Root, ...]:
        return tuple(Root(os.path.join(self.folder, one.name), REMOTE, one.name) for one in self.configs)

    def extend(self, found: Found, profile: Profile) -> None:
        """Add the skills of the servers to the result of a scan. Invalid entries are added to the skipped files."""
        with self._lock:
            known: dict[str, RemoteSkill] = {}
            local = {skill.name for skill in found.skills}
            for config, root in zip(self.configs, self.roots, strict=True):
                listing = self._list(config)
                if listing.problem:
                    hint = f"see mcp.servers.{config.name} in the configuration"
                    found.diagnostics.append(Diagnostic("unreadable", "warning", listing.problem, root.path, hint=hint))
                skills: list[Skill] = []
                for remote, skill in self._skills(listing.entries, config, root, profile, found):
                    known[skill.path] = remote
                    skills.append(skill)
                found.per_root[root.path] = len(skills)
                if profile.collisions.rule == "last" and not config.prefer:
                    skills = _without_local_names(skills, local, found)
                found.skills[:] = [*skills, *found.skills] if config.prefer else [*found.skills, *skills]
            self._known = known

    def _skills(
        self, entries: Sequence[object], config: ServerConfig, root: Root, profile: Profile, found: Found
    ) -> Iterator[tuple[RemoteSkill, Skill]]:
        for entry in entries:
            try:
                yield self._skill(entry, config, root, profile)
            except RemoteSkillRefused as refusal:
                address = str(as_table(entry).get("uri", ""))
                found.skipped.append(Skipped(f"{config.name}: {address}", "mcp", str(refusal)))

    def _skill(self, entry: object, config: ServerConfig, root: Root, profile: Profile) -> tuple[RemoteSkill, Skill]:
        """Check an entry and make a skill of it. Raises `RemoteSkillRefused` if it is invalid."""
        remote = remote_skill.parse(config.name, entry)
        verdict = validate.check(Parsed(dict(remote.frontmatter)), remote.name, profile.validation, remote.uri)
        if not verdict.valid:
            raise RemoteSkillRefused("; ".join(d.message for d in verdict.diagnostics if d.severity == "error"))
        fields = dict(verdict.fields)
        if verdict.name not in config.allowed_tools:
            fields.pop("allowed-tools", None)
        path = os.path.join(self._folder_of(remote), SKILL_FILE)
        skill = Skill(
            name=verdict.name,
            description=f"[from the MCP server {config.name}] {verdict.description}",
            path=path,
            real_path=path,
            root=root,
            mtime_ns=0,
            size=remote.files[SKILL_FILE].size,
            frontmatter=fields,
        )
        return remote, skill_file.with_flags(skill, skill_file.frontmatter_flags(fields, profile.catalog))

    def _list(self, config: ServerConfig) -> _CachedListing:
        """The listing of a server. While the server cannot be reached, its last listing stays in use."""
        known = self._listings.get(config.name, _CachedListing())
        now = self._clock()
        if now < known.valid_until:
            return known
        try:
            entries, ttl_ms = self._client(config.name).skills()
            seconds = min(max(ttl_ms / 1000, SHORTEST_SECONDS), LONGEST_SECONDS)
            listing = _CachedListing(now + seconds, entries)
        except ResourceError as error:
            listing = _CachedListing(now + RETRY_SECONDS, known.entries, str(error))
        self._listings[config.name] = listing
        return listing

    def files(self) -> "RemoteFiles":
        """The files of a session: those of the servers, and those of the disk."""
        return RemoteFiles(self)

    # --- files ---

    def find(self, skill: Skill) -> RemoteSkill | None:
        """The entry of a server's skill; `None` for a local skill. Raises if the entry has changed since."""
        remote = self._known.get(skill.path)
        if remote is None and skill.path.startswith(self.folder + os.sep):
            message = f"{skill.name} has changed on its server {skill.source}; load it again"
            raise ResourceError(message, path=SKILL_FILE, reason="changed")
        return remote

    def fetch(self, remote: RemoteSkill, path: str) -> bytes:
        """The verified bytes of a listed file, from the cache if they still match, otherwise from the server."""
        listed = remote.file(path)
        folder = self._folder_of(remote)
        with self._lock:
            try:
                data = read_file(folder, path, listed.size + 1).data
                remote.check(path, data)
            except ResourceError:
                data = self._client(remote.server).read(listed.uri)
                remote.check(path, data)
                _store(folder, path, data)
        return data

    def _folder_of(self, remote: RemoteSkill) -> str:
        return os.path.join(self.folder, remote.server, remote.digest.removeprefix("sha256:")[:32], remote.name)

    def _client(self, name: str) -> McpClient:
        with self._lock:
            if self._thread is None:
                self._thread = start_blocking_portal(name="metier-mcp")
                portal = self._thread.__enter__()
                self._clients = {one.name: McpClient(one, portal) for one in self.configs}
            return self._clients[name]

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            try:
                for client in self._clients.values():
                    client.close()
            finally:
                self._clients = {}
                thread.__exit__(*sys.exc_info())  # what a failure leaves running is cancelled


class RemoteFiles(DiskFiles):
    """The `Files` of a session: those of a server's skill once its set is approved, all others from the disk."""

    def __init__(self, source: McpSource) -> None:
        self._source = source

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        remote = self._source.find(skill)
        if remote is None:
            return ()
        remote.file(path)
        detail = f"from the server {remote.server}"
        return (skill_request(REMOTE_LOAD, skill, remote.uri, digest=remote.digest, detail=detail),)

    def skill_file(self, skill: Skill, limit: int) -> Content:
        return self.resource(skill, SKILL_FILE, limit) if self._source.find(skill) else super().skill_file(skill, limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        remote = self._source.find(skill)
        if remote is None:
            return super().resource(skill, path, limit)
        data = self._source.fetch(remote, path)
        return Content(data[:limit], len(data), 0)

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        remote = self._source.find(skill)
        if remote is None:
            return super().listing(skill, max_files, max_bytes)
        sizes = {path: file.size for path, file in remote.files.items() if path != SKILL_FILE}
        return within_limits(sizes, max_files, max_bytes)

    def folder(self, skill: Skill) -> str:
        remote = self._source.find(skill)
        if remote is not None:
            for path in remote.files:  # a script may need any of them
                self._source.fetch(remote, path)
        return super().folder(skill)


def _without_local_names(skills: list[Skill], local: set[str], found: Found) -> list[Skill]:
    """The skills whose names no local skill has; the others are reported.

    If the last path wins, a server's skill would otherwise win because of where its cache is.
    """
    for skill in skills:
        if skill.name in local:
            message = f"a local skill wins over {skill.name!r} of the MCP server {skill.source}"
            hint = f"set mcp.servers.{skill.source}.prefer to use the server's skill"
            found.diagnostics.append(Diagnostic("collision", "warning", message, skill.path, hint=hint))
            found.skipped.append(Skipped(skill.path, "mcp", "a local skill has the same name", skill.name))
    return [skill for skill in skills if skill.name not in local]


def _store(folder: str, path: str, data: bytes) -> None:
    """Write a verified file to the cache, completely or not at all. Only this user can read it."""
    file = os.path.join(folder, path)
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with beside(file) as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), 0o500 if path.startswith("scripts/") else 0o400)
    except OSError as error:
        raise ResourceError(f"cannot write {path} to the cache: {error.strerror}", path=path, reason="io") from error


def connect(configs: Sequence[ServerConfig], cache_folder: str = "") -> McpSource:
    """A source of the skills of these servers. Connects when a catalog first asks for skills."""
    return McpSource(configs, cache_folder or tempfile.mkdtemp(prefix="metier-"))
