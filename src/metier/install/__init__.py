"""A skill from elsewhere becomes a folder among the user's own, or nothing changes at all.

Policy speaks before anything is fetched: a source on the network needs a rule that opens it, and by default no
connection is tried. What came is checked in memory, written beside its place, read again by the discovery that will
find it, shown to whoever decides, and only then renamed into place; lock file and event are part of the same step.
"""

import contextlib
import fcntl
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from metier import limits
from metier.catalog import discover, frontmatter, validate
from metier.errors import ConfigError, InstallError, InvalidSkill, MetierError, PolicyDenied
from metier.files.beneath import read_regular
from metier.files.digests import digest_of, is_digest
from metier.files.text import storable_table
from metier.hosts import roots
from metier.hosts.settings import Settings
from metier.install import archive, fetch, lock
from metier.install.archive import Entry
from metier.model import SKILL_FILE, Diagnostic, Root
from metier.record.events import INSTALLS, Event, InstallRefused, SkillInstalled
from metier.record.recorder import random_ids, system_clock
from metier.record.store import Draft, Store
from metier.session.policy import Policy, Request

TOOL: Final = "install"
"""The name under which rules of the policy speak of installs; their `path` is the URL."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What someone wants to have installed: from where, and what they know of it."""

    source: str
    """A folder, an archive, the URL of an archive, a site, or its index.json."""
    name: str = ""
    """The name it must bear; needed for a site that offers several."""
    digest: str = ""
    """The SHA-256 that the archive must have, as `sha256:...`; of a folder, the one that the lock file would have."""
    project: bool = False
    replace: bool = False
    lenient: bool = False
    """Breaches of the standard that the profile forgives are no reason to refuse."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be installed, for whoever decides; everything in it but the target comes from the source."""

    name: str
    description: str
    source: str
    target: str
    tree: str
    artifact: str
    files: tuple[tuple[str, int, bool], ...]
    """Path, size, executable."""
    replaces: bool
    diagnostics: tuple[Diagnostic, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "path": self.target,
            "digest": self.tree,
            "artifact": self.artifact,
            "files": [{"path": path, "size": size, "executable": runs} for path, size, runs in self.files],
            "replaced": self.replaces,
            "diagnostics": [diagnostic.as_dict() for diagnostic in self.diagnostics],
        }


@dataclass(frozen=True, slots=True)
class _Fetched:
    entries: Sequence[Entry]
    source: str
    artifact: str = ""


class Installer:
    """Installs for one place. `approve` answers the policy's questions; without it they are refused."""

    def __init__(
        self,
        config: Settings,
        sink: Store,
        *,
        policy: Policy | None = None,
        approve: Callable[[Request], bool] | None = None,
    ) -> None:
        self._config, self._sink, self._approve = config, sink, approve
        self._policy = policy or Policy.from_settings(config.permissions, config.profile)

    def root(self, *, project: bool = False) -> str:
        """The folder into which skills go: the first one that the profile has for a user, or for a project."""
        config = self._config
        base = config.place.project if project else config.place.home
        scopes = ("repo", "project") if project else ("user",)
        found, _ = roots.resolve(config.profile, replace(config.place, cwd=config.place.project))
        for root in found:
            if root.scope in scopes and _below(root.path, base):
                real = os.path.realpath(root.path)
                if project and not _below(real, os.path.realpath(base)):
                    raise ConfigError(
                        f"{root.path} is a link that leads out of the project", hint="leave out --project"
                    )
                return real
        where, other = ("project", "leave out --project") if project else ("user", "try --project")
        raise ConfigError(f"the profile {config.profile.name} has no folder for a {where}'s skills", hint=other)

    def verify(self, *, project: bool = False) -> list[lock.Finding]:
        """Every skill of the lock file against what is there now."""
        return lock.verify(self.root(project=project))

    def install(self, wish: Wish, confirm: Callable[[Offer], bool]) -> Offer:
        """Install a skill, if policy and `confirm` say yes. A refusal is recorded too, and raised."""
        source = fetch.without_secrets(wish.source) if fetch.is_remote(wish.source) else self._local(wish.source)
        try:
            root = self.root(project=wish.project)
            if wish.digest and not is_digest(wish.digest):
                raise ConfigError("a digest is sha256: and 64 digits in lower case", key="digest")
            fetched = self._fetch(wish, source)
            return self._stand(wish, fetched, root, confirm)
        except MetierError as error:
            reason = getattr(error, "reason", "") or type(error).__name__
            self._record(InstallRefused(source, reason, str(error), _whoami(), wish.name))
            raise

    # --- getting it ---

    def _local(self, source: str) -> str:
        return roots.normalise(source, self._config.place.cwd, self._config.place.home)

    def _fetch(self, wish: Wish, source: str) -> _Fetched:
        if fetch.is_remote(wish.source):
            return self._download(wish)
        if os.path.isdir(source):
            entries = archive.unwrap(archive.read_folder(source))
            _compare(lock.tree_digest(lock.rows(entries)), wish.digest, source)
            return _Fetched(entries, source)
        try:
            data = read_regular(source, limits.ARTIFACT_BYTES)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise InstallError(f"{source} cannot be read: {why}", reason="unreadable") from error
        return _Fetched(archive.unpack(data), source, _compare(digest_of(data), wish.digest, source))

    def _download(self, wish: Wish) -> _Fetched:
        asked: set[str] = set()

        def permit(url: str) -> None:
            self._enforce(Request(TOOL, wish.name, fetch.shown(url), digest=wish.digest), fetch.origin(url) in asked)
            asked.add(fetch.origin(url))

        client = fetch.Client(wish.source, permit)
        index = fetch.index_of(wish.source)
        url, digest, kind = wish.source, wish.digest, "archive"
        if index:
            place, data = client.get(index, limits.INDEX_BYTES)
            listed = fetch.find(data, place, wish.name)
            if digest and digest != listed.digest:
                raise InstallError(f"the index says {listed.digest}, not {digest}", reason="digest")
            url, digest, kind = listed.url, listed.digest, listed.kind
        url, data = client.get(url, limits.ARTIFACT_BYTES)
        artifact = _compare(digest_of(data), digest, fetch.shown(url))
        entries = [Entry(SKILL_FILE, data)] if kind == "skill-md" else archive.unpack(data)
        return _Fetched(entries, fetch.shown(url), artifact)

    def _enforce(self, request: Request, answered: bool) -> None:
        """Ask the policy. A yes is for this install: one that lasts is a rule, which a person writes."""

        def approve(asked: Request) -> bool:
            return answered or (self._approve is not None and self._approve(asked) is True)

        decision = self._policy.decide(request)
        if decision.verdict == "deny" and decision.rule is None:
            opening = (
                '[permissions] has no rule for it, such as allow = [{ tool = "install", path = "https://host/*" }]'
            )
            raise PolicyDenied(TOOL, request.skill_name, opening)
        self._policy.enforce(request, approve if answered or self._approve is not None else None)

    def _allow(self, wish: Wish, offer: Offer) -> None:
        """Policy again, now that the name is known. A local source needs no rule, but must not be refused by one."""
        remote = fetch.is_remote(wish.source)
        request = Request(TOOL, offer.name, offer.source, digest=offer.artifact or offer.tree)
        if remote or self._policy.name == "read-only" or self._policy.decide(request).rule is not None:
            self._enforce(request, answered=remote)

    # --- putting it into place ---

    def _stand(self, wish: Wish, fetched: _Fetched, root: str, confirm: Callable[[Offer], bool]) -> Offer:
        name = _name(fetched.entries)
        if wish.name and name != wish.name:
            raise InstallError(f"the skill in it is called {name!r}, not {wish.name!r}", reason="other-name")
        target = os.path.join(root, name)
        rows = lock.rows(fetched.entries)
        replaces = os.path.lexists(target)
        if replaces and not wish.replace:
            raise InstallError(f"{target} is there already", reason="exists", hint="--replace replaces it")
        with _workshop(root) as workshop:
            folder = os.path.join(workshop, name)
            try:
                archive.write(fetched.entries, folder)
            except OSError as error:
                raise InstallError(f"{folder} cannot be written: {error.strerror}", reason="unwritable") from error
            description, diagnostics = self._examine(folder, wish.lenient)
            offer = Offer(
                name, description, fetched.source, target, lock.tree_digest(rows), fetched.artifact,
                tuple((entry.path, len(entry.data), entry.executable) for entry in fetched.entries),
                replaces, diagnostics,
            )  # fmt: skip
            self._allow(wish, offer)
            if not confirm(offer):
                raise PolicyDenied(TOOL, name, "the answer was no")
            locked = lock.Locked(self._named_in_lock(offer, wish), offer.tree, offer.artifact, rows)
            self._exchange(workshop, folder, root, offer, locked)
        return offer

    def _examine(self, folder: str, lenient: bool) -> tuple[str, tuple[Diagnostic, ...]]:
        """What discovery makes of the folder, as strictly as `metier validate --strict` unless asked otherwise."""
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

    def _named_in_lock(self, offer: Offer, wish: Wish) -> str:
        """A project's lock file is shared: it names no folder of the person who installed."""
        project = self._config.place.project
        if fetch.is_remote(wish.source) or not wish.project:
            return offer.source
        inside = _below(offer.source, project)
        return os.path.relpath(offer.source, project) if inside else os.path.basename(offer.source)

    def _exchange(self, workshop: str, folder: str, root: str, offer: Offer, locked: lock.Locked) -> None:
        """Rename into place, write the lock file and the event; what fails half way is undone."""
        old = os.path.join(workshop, ".before")
        with _alone(os.path.dirname(root)), contextlib.ExitStack() as undo:
            before = lock.read(root)
            try:
                if offer.replaces:
                    os.rename(offer.target, old)
                    undo.callback(os.rename, old, offer.target)
                os.rename(folder, offer.target)
                undo.callback(os.rename, offer.target, folder)
            except OSError as error:
                message = f"{offer.target} cannot be put into place: {error.strerror}"
                raise InstallError(message, reason="unwritable") from error
            undo.callback(lock.write, root, before)
            lock.write(root, {**before, offer.name: locked})
            was = before.get(offer.name)
            self._record(
                SkillInstalled(
                    offer.name, offer.source, offer.target, offer.tree, _whoami(), len(offer.files), offer.artifact,
                    was.digest if was and offer.replaces else "",
                )
            )  # fmt: skip
            undo.pop_all()

    def _record(self, event: Event) -> None:
        # The name of a local folder may hold bytes that are no UTF-8, which no store takes.
        data = storable_table(event.data())
        self._sink.append(INSTALLS, "install", INSTALLS, [Draft(random_ids(), system_clock(), event.type, data)])


def _compare(digest: str, wanted: str, source: str) -> str:
    """The digest of what came, which must be the one that was announced."""
    if wanted and digest != wanted:
        raise InstallError(f"{source} has the digest {digest}, not {wanted}", reason="digest")
    return digest


def _name(entries: Sequence[Entry]) -> str:
    """The name in the SKILL.md, which becomes the name of a folder."""
    data = next(entry.data for entry in entries if entry.path == SKILL_FILE)
    parsed = frontmatter.parse(data[: limits.FRONTMATTER_BYTES + limits.HEAD_BYTES])
    name = (parsed.fields or {}).get("name") if parsed is not None else None
    if not isinstance(name, str) or len(name) > limits.NAME_LENGTH or validate.name_flaw(name, "unicode"):
        raise InstallError(f"its {SKILL_FILE} has no frontmatter with a valid name", reason="invalid")
    return name


@contextlib.contextmanager
def _workshop(root: str) -> Generator[str, None, None]:
    """A folder beside the folder of skills, on its disk and unseen by discovery; it leaves nothing behind."""
    missing = [root]
    while not os.path.lexists(missing[-1]):
        missing.append(os.path.dirname(missing[-1]))
    made = ""
    try:
        os.makedirs(root, exist_ok=True)
        made = tempfile.mkdtemp(prefix=".installing-", dir=os.path.dirname(root))
        yield made
    except OSError as error:
        raise InstallError(f"{root} cannot be written: {error.strerror}", reason="unwritable") from error
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)
        for folder in missing[:-1]:
            with contextlib.suppress(OSError):  # it has something in it by now, and stays
                os.rmdir(folder)


@contextlib.contextmanager
def _alone(folder: str) -> Generator[None, None, None]:
    """Of several installs, one at a time puts something into place and writes the lock file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _whoami() -> str:
    """The login name of whoever runs this, by the system's word and not the environment's."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
