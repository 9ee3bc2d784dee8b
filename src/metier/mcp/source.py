"""Skills of other MCP servers become a root of the catalog: listed without a body, fetched and checked when loaded.

Each skill gets a place in the cache folder whose path names its server and the digest of its whole set of files.
Nothing lies there until it is needed; what lies there is checked against the entry each time it is used. No folder of
the cache is ever searched for skills. A local skill of the same name counts, and the collision is reported.
"""

import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from metier.catalog import validate
from metier.catalog.discover import Found
from metier.catalog.frontmatter import Parsed
from metier.errors import ConfigError, ResourceError
from metier.files.beneath import Content, Listing, read_file
from metier.files.source import DiskFiles
from metier.hosts.profiles import Profile
from metier.mcp import remote_skill as entries
from metier.mcp.client import Link, ServerConfig, Thread
from metier.mcp.remote_skill import Refused, Remote
from metier.model import REMOTE, SKILL_FILE, Diagnostic, Request, Root, Skill, Skipped
from metier.session.policy import REMOTE_LOAD

SHORTEST_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 3600.0
"""A listing is taken for current as long as its server says, within these bounds."""
RETRY_SECONDS: Final = 30.0
"""Before a server that could not be reached is asked again."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEYS: Final = ("command", "url", "env", "prefer", "allowed_tools")


def servers(given: Mapping[str, Any], file: str = "") -> tuple[ServerConfig, ...]:
    """The table `[mcp.servers]` of the user's own configuration. A project has no say in which programs start."""
    return tuple(_server(name, value, file) for name, value in given.items())


def _server(name: str, given: Any, file: str) -> ServerConfig:
    where = f"mcp.servers.{name}"

    def wrong(message: str, key: str = "") -> ConfigError:
        return ConfigError(f"{where}{f'.{key}' if key else ''} {message}", file=file, key=where)

    if not _NAME.fullmatch(name):
        raise wrong("is no name: letters, digits, - and _, at most 64")
    if not isinstance(given, Mapping):
        raise wrong("must be a table")
    table = cast("Mapping[str, Any]", given)
    unknown = next((key for key in table if key not in _KEYS), None)
    if unknown is not None:
        raise wrong(f"is not known; known: {', '.join(_KEYS)}", unknown)
    command, url = table.get("command", []), table.get("url", "")
    if not _texts(command) or not isinstance(url, str) or bool(command) == bool(url):
        raise wrong("needs either a command (a list of text) or a url")
    if url and not url.startswith(("https://", "http://")):
        raise wrong("must begin with https:// or http://", "url")
    env, allowed, prefer = table.get("env", {}), table.get("allowed_tools", []), table.get("prefer", False)
    if not isinstance(env, Mapping) or not _texts(list(cast("Mapping[str, Any]", env).values())):
        raise wrong("must be a table of text", "env")
    if not _texts(allowed):
        raise wrong("must be a list of names of skills", "allowed_tools")
    if not isinstance(prefer, bool):
        raise wrong("must be true or false", "prefer")
    return ServerConfig(name, tuple(command), url, dict(cast("Mapping[str, str]", env)), prefer, tuple(allowed))


def _texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in cast("Sequence[Any]", value))


class Source:
    """The skills of some servers. Thread-safe; `close` ends the connections."""

    def __init__(
        self, configs: Sequence[ServerConfig], folder: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.configs = tuple(configs)
        self.folder = os.path.join(os.path.realpath(folder), "mcp")
        self._clock = clock
        self._lock = threading.RLock()
        self._thread: Thread | None = None
        self._links: dict[str, Link] = {}
        self._listed: dict[str, tuple[float, list[Any], str]] = {}
        self._known: dict[str, Remote] = {}

    # --- the catalog ---

    @property
    def roots(self) -> tuple[Root, ...]:
        return tuple(Root(os.path.join(self.folder, one.name), REMOTE, one.name) for one in self.configs)

    def extend(self, found: Found, profile: Profile) -> None:
        """Add what the servers offer to what a scan found. Entries that break a rule are among the skipped."""
        with self._lock:
            known: dict[str, Remote] = {}
            local = {skill.name for skill in found.skills}
            for config, root in zip(self.configs, self.roots, strict=True):
                listed, trouble = self._list(config)
                if trouble:
                    hint = f"see mcp.servers.{config.name} in the configuration"
                    found.diagnostics.append(Diagnostic("unreadable", "warning", trouble, root.path, hint=hint))
                offered = [skill for one in listed if (skill := self._skill(one, config, root, profile, found, known))]
                found.per_root[root.path] = len(offered)
                if profile.collisions.rule == "last" and not config.prefer:
                    offered = _stand_back(offered, local, found)
                found.skills[:] = [*offered, *found.skills] if config.prefer else [*found.skills, *offered]
            self._known = known

    def _skill(
        self, given: Any, config: ServerConfig, root: Root, profile: Profile, found: Found, known: dict[str, Remote]
    ) -> Skill | None:
        address = str(entries.table(given).get("uri", ""))
        try:
            remote = entries.parse(config.name, given)
            verdict = validate.check(Parsed(dict(remote.frontmatter)), remote.name, profile.validation, remote.uri)
            if not verdict.valid:
                raise Refused("; ".join(d.message for d in verdict.diagnostics if d.severity == "error"))
        except Refused as refusal:
            found.skipped.append(Skipped(f"{config.name}: {address}", "mcp", str(refusal)))
            return None
        fields = dict(verdict.fields)
        if verdict.name not in config.allowed_tools:
            fields.pop("allowed-tools", None)
        says = {key: fields.get(key) for key in profile.catalog.honours}
        path = os.path.join(self._place(remote), SKILL_FILE)
        known[path] = remote
        return Skill(
            verdict.name, f"[from the MCP server {config.name}] {verdict.description}", path, path, root, 0,
            remote.files[SKILL_FILE].size, fields,
            not (says.get("disable-model-invocation") is True or says.get("hide") is True),
            says.get("user-invocable") is not False,
            "off" if says.get("enabled") is False else "auto",
        )  # fmt: skip

    def _list(self, config: ServerConfig) -> tuple[list[Any], str]:
        """The entries of a server as they came, and what is wrong. What it said last counts while it is away."""
        until, listed, trouble = self._listed.get(config.name, (-1.0, [], ""))
        now = self._clock()
        if now < until:
            return listed, trouble
        try:
            listed, ttl_ms = self._link(config.name).skills()
            until, trouble = now + min(max(ttl_ms / 1000, SHORTEST_SECONDS), LONGEST_SECONDS), ""
        except ResourceError as error:
            until, trouble = now + RETRY_SECONDS, str(error)
        self._listed[config.name] = (until, listed, trouble)
        return listed, trouble

    def forget(self) -> None:
        """Ask every server again at the next look, however fresh its list is."""
        with self._lock:
            self._listed = {name: (-1.0, listed, trouble) for name, (_, listed, trouble) in self._listed.items()}

    def files(self) -> "RemoteFiles":
        """The files of a session: those of the servers, and those of the disk."""
        return RemoteFiles(self)

    # --- files ---

    def find(self, skill: Skill) -> Remote | None:
        """The entry of a skill of ours; `None` for a skill of the disk. One whose set has changed since is refused."""
        remote = self._known.get(skill.path)
        if remote is None and skill.path.startswith(self.folder + os.sep):
            message = f"{skill.name} has changed on its server {skill.source}; load it again"
            raise ResourceError(message, path=SKILL_FILE, reason="changed")
        return remote

    def fetch(self, remote: Remote, path: str) -> bytes:
        """The verified bytes of a listed file: from the cache if they still are right, else from the server."""
        listed = remote.file(path)
        folder = self._place(remote)
        with self._lock:
            try:
                data = read_file(folder, path, listed.size + 1).data
                remote.check(path, data)
            except ResourceError:
                data = self._link(remote.server).read(listed.uri)
                remote.check(path, data)
                _keep(folder, path, data)
        return data

    def _place(self, remote: Remote) -> str:
        return os.path.join(self.folder, remote.server, remote.digest.removeprefix("sha256:")[:32], remote.name)

    def _link(self, name: str) -> Link:
        with self._lock:
            if self._thread is None:
                self._thread = Thread()
                self._links = {one.name: Link(one, self._thread) for one in self.configs}
            return self._links[name]

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            try:
                for link in self._links.values():
                    link.close()
            finally:
                self._links = {}
                thread.close()


class RemoteFiles:
    """`Files` of a session: those of servers once policy allows the whole set, all others from the disk."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._disk = DiskFiles()

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        remote = self._source.find(skill)
        if remote is None:
            return ()
        remote.file(path)
        detail = f"from the server {remote.server}"
        return (Request(REMOTE_LOAD, remote.name, remote.uri, digest=remote.digest, detail=detail),)

    def skill_file(self, skill: Skill, limit: int) -> Content:
        remote = self._source.find(skill)
        return self._disk.skill_file(skill, limit) if remote is None else self._read(remote, SKILL_FILE, limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        remote = self._source.find(skill)
        return self._disk.resource(skill, path, limit) if remote is None else self._read(remote, path, limit)

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        remote = self._source.find(skill)
        if remote is None:
            return self._disk.listing(skill, max_files, max_bytes)
        chosen: list[str] = []
        total = 0
        for path in sorted(path for path in remote.files if path != SKILL_FILE):
            total += remote.files[path].size
            if len(chosen) == max_files or total > max_bytes:
                return Listing(tuple(chosen), True)
            chosen.append(path)
        return Listing(tuple(chosen), False)

    def folder(self, skill: Skill) -> str:
        remote = self._source.find(skill)
        if remote is not None:
            for path in remote.files:  # a script may need any of them
                self._source.fetch(remote, path)
        return self._disk.folder(skill)

    def _read(self, remote: Remote, path: str, limit: int) -> Content:
        data = self._source.fetch(remote, path)
        return Content(data[:limit], len(data), 0)


def _stand_back(offered: list[Skill], local: set[str], found: Found) -> list[Skill]:
    """Under the rule that the last path wins, a server's skill must not win by where its cache happens to lie."""
    for skill in offered:
        if skill.name in local:
            message = f"{skill.name!r} of the MCP server {skill.source} is also the name of a local skill, which counts"
            hint = f"set mcp.servers.{skill.source}.prefer to take the server's"
            found.diagnostics.append(Diagnostic("collision", "warning", message, skill.path, hint=hint))
            found.skipped.append(Skipped(skill.path, "mcp", "a local skill has the name", skill.name))
    return [skill for skill in offered if skill.name not in local]


def _keep(folder: str, path: str, data: bytes) -> None:
    """Write a verified file whole or not at all; nobody but us reads or writes there."""
    file = os.path.join(folder, path)
    temporary = ""
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".file-", dir=folder)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, 0o500 if path.startswith("scripts/") else 0o400)
        os.replace(temporary, file)
    except OSError as error:
        if temporary:
            _remove(temporary)
        raise ResourceError(f"{path} cannot be kept: {error.strerror}", path=path, reason="io") from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def connect(configs: Sequence[ServerConfig], cache_folder: str = "") -> Source:
    """A source of the skills of these servers. Nothing is started or asked until a catalog looks."""
    return Source(configs, cache_folder or tempfile.mkdtemp(prefix="metier-"))
