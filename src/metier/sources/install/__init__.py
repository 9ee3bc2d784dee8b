"""Installs a skill from a folder, an archive or a site into the user's or a project's folder of skills.

Policy is asked before anything is fetched. A source on the network needs an allow or ask rule; without one, no
connection is made. The files are checked in memory, by the same rules as when the skill is found later, and are shown
to the user. Only then are they written next to the folder of skills and renamed into place, together with the lock file
and the event. The invariant: an install succeeds completely or changes nothing. If the process is killed, the old skill
or the new one is in place, the lock file names both, and the next install removes what else is left.
"""

import contextlib
import os
import pwd
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from metier import limits
from metier.catalog import validate
from metier.catalog.skill_file import reason_of
from metier.errors import ConfigError, InstallError, InvalidSkill, MetierError, PolicyDenied, StoreError
from metier.files import plugins
from metier.files.beneath import read_regular
from metier.files.digests import FORM, digest_of, is_digest
from metier.files.text import storable_table
from metier.files.tree import TreeFile
from metier.hosts import roots
from metier.hosts.settings import Settings
from metier.policy.asking import YES, Approve, ask, read_answer
from metier.policy.decide import Policy, Request
from metier.record.events import INSTALLS, InstallRefused, SkillInstalled
from metier.record.store import Draft, Store
from metier.record.writer import random_ids, system_clock
from metier.sources.install import archive, fetch, lock, placing
from metier.values.skill import SKILL_FILE, Diagnostic
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
    entries: Sequence[TreeFile]
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
            places = {self.root(project=project): project}
        else:  # one folder for both is the user's
            places = {self._root(project=True): True, self._root(project=False): False}
        findings: list[lock.LockFinding] = []
        for root, shared in sorted(places.items(), key=lambda place: place[1]):
            if root is not None and os.path.isdir(os.path.dirname(root)):
                with placing.exclusive(root):
                    findings += lock.verify(root, "project" if shared else "user")
        return findings

    def install(self, request: InstallRequest, confirm: Callable[[Offer], bool]) -> Offer:
        """Install a skill if the policy and `confirm` allow it. A refusal is recorded and raised."""
        source = self._source(request)
        try:
            return self._install(request, source, confirm)
        except MetierError as error:
            reason = error.reason if isinstance(error, (InstallError, StoreError)) else type(error).__name__
            self._append(InstallRefused(source, reason, str(error), _user_name(), request.name))
            raise

    # --- fetching ---

    def _source(self, request: InstallRequest) -> str:
        if fetch.is_remote(request.source):
            return fetch.without_secrets(request.source)
        return roots.normalise(request.source, self._config.place.cwd, self._config.place.home)

    def _fetch(self, request: InstallRequest, source: str) -> _Fetched:
        if not fetch.is_remote(request.source) and os.path.isdir(source):
            found, left_out = archive.read_folder(source)
            entries = archive.unwrap(found)
            _compare(lock.tree_digest(lock.rows(entries)), request.digest, source)
            return _Fetched(entries, source, left_out=left_out)
        wanted, kind, scheme = request.digest, "archive", request.source.partition("://")[0].lower()
        if not fetch.is_remote(request.source):
            try:
                data = read_regular(source, limits.ARTIFACT_BYTES)
            except (OSError, ValueError) as error:
                raise InstallError(f"{source} cannot be read: {reason_of(error)}", reason="unreadable") from error
        elif scheme not in ("http", "https") and (bring := plugins.find("metier.sources", scheme)) is not None:
            data = self._brought(request, source, bring)
        else:
            source, data, wanted, kind = self._download(request)
        artifact = _compare(digest_of(data), wanted, source)
        entries = [TreeFile(SKILL_FILE, data)] if kind == "skill-md" else archive.unpack(data)
        return _Fetched(entries, source, artifact)

    def _download(self, request: InstallRequest) -> tuple[str, bytes, str, str]:
        """The address, the bytes, the digest that they must have, and the kind of what a URL or an index names."""
        asked: set[str] = set()

        def permit(url: str) -> None:
            place = Request(TOOL, request.name, fetch.shown(url), digest=request.digest)
            self._enforce(place, answered=fetch.origin(url) in asked)
            asked.add(fetch.origin(url))

        client = fetch.Client(request.source, permit)
        index = fetch.index_of(request.source)
        url, digest, kind = request.source, request.digest, "archive"
        if index:
            place, data = client.get(index, limits.INDEX_BYTES)
            url, digest, kind = fetch.find(data, place, request.name)
            if request.digest and digest != request.digest:
                raise InstallError(f"the index has the digest {digest}, not {request.digest}", reason="digest")
        url, data = client.get(url, limits.ARTIFACT_BYTES)
        return fetch.shown(url), data, digest, kind

    def _brought(self, request: InstallRequest, source: str, bring: BringArchive) -> bytes:
        """What a source of an installed package brings. It is an archive like any other: untrusted, and checked."""
        self._enforce(Request(TOOL, request.name, source, digest=request.digest), answered=False)
        try:
            data = bring(request.source, request.name)
        except (OSError, ValueError) as error:
            raise InstallError(f"{source} cannot be read: {error}", reason="unreachable") from error
        if len(data) > limits.ARTIFACT_BYTES:
            raise InstallError(f"{source} has more than {limits.ARTIFACT_BYTES:,} bytes", reason="too-large")
        return data

    def _enforce(self, request: Request, *, answered: bool) -> None:
        """Ask the policy. An answer applies to this install only; a lasting permission is a rule in the settings."""

        def answer(asked: Request) -> str:
            said = "once" if answered or self._approve is None else ask(self._approve, asked)
            return "once" if said in YES else said

        decision = self._policy.decide(request)
        if decision.verdict == "deny" and decision.rule is None:
            example = 'allow = [{ tool = "install", path = "https://host/*" }]'
            raise PolicyDenied(TOOL, request.skill_name, f"[permissions] has no rule for it, such as {example}")
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
        skill = _examine(fetched.entries, self._config.profile.validation if request.lenient else validate.STRICT)
        if request.name and skill.name != request.name:
            raise InstallError(f"the skill is named {skill.name!r}, not {request.name!r}", reason="other-name")
        target = os.path.join(root, skill.name)
        replaces = os.path.lexists(target)
        if replaces and not request.replace:
            raise InstallError(f"{target} already exists", reason="exists", hint="use --replace to replace it")
        offer = Offer(
            name=skill.name,
            description=skill.description,
            source=fetched.source,
            target=target,
            tree=lock.tree_digest(lock.rows(fetched.entries)),
            artifact=fetched.artifact,
            files=tuple(OfferedFile(entry.path, len(entry.data), entry.executable) for entry in fetched.entries),
            replaces=replaces,
            diagnostics=skill.diagnostics,
            left_out=fetched.left_out,
        )
        self._allow(offer, remote=fetch.is_remote(request.source))
        if read_answer(confirm(offer)) not in YES:
            raise PolicyDenied(TOOL, offer.name, "the answer was no")
        try:
            self._place(root, offer, fetched.entries, self._source_in_lock(offer, request))
        except OSError as error:
            error.filename = target  # and not a file of the stage
            raise InstallError(f"{target} cannot be written: {error.strerror}", reason="unwritable") from error
        return offer

    def _source_in_lock(self, offer: Offer, request: InstallRequest) -> str:
        """The source as the lock file names it. A project's lock file is shared, so it has no private folder in it."""
        project = self._config.place.project
        if fetch.is_remote(request.source) or not request.project:
            return offer.source
        inside = _below(offer.source, project)
        return os.path.relpath(offer.source, project) if inside else os.path.basename(offer.source)

    def _place(self, root: str, offer: Offer, entries: Sequence[TreeFile], source: str) -> None:
        """Put the files into place, and write the lock file and the event. A failure undoes every step."""
        with placing.stage(root) as stage, contextlib.ExitStack() as undo:
            if os.path.lexists(offer.target) != offer.replaces:
                raise InstallError(f"{offer.target} has changed meanwhile", reason="exists", hint="try again")
            folder, temporary = os.path.join(stage, offer.name), os.path.join(stage, ".lock")
            archive.write(entries, folder)
            listed = lock.read(root)
            before = lock.present(root, offer.name, listed.get(offer.name)) if offer.replaces else lock.Before()
            locked = lock.Locked(source=source, digest=offer.tree, artifact=offer.artifact, files=lock.rows(entries))
            undo.callback(lock.write, root, listed, temporary)
            lock.write(root, {**listed, offer.name: replace(locked, before=before)}, temporary)
            placing.put(folder, offer.target, replaces=offer.replaces)
            undo.callback(placing.take_back, folder, offer.target)
            self._append(
                SkillInstalled(
                    name=offer.name,
                    source=offer.source,
                    path=offer.target,
                    tree=offer.tree,
                    by=_user_name(),
                    files=len(offer.files),
                    artifact=offer.artifact,
                    replaced=before.digest,
                )
            )
            lock.write(root, {**listed, offer.name: locked}, temporary)
            undo.pop_all()

    def _append(self, event: SkillInstalled | InstallRefused) -> None:
        # The name of a local folder may contain bytes that are not UTF-8, which a store rejects.
        draft = Draft(random_ids(), system_clock(), event.type, storable_table(event.data()))
        self._sink.append(INSTALLS, "install", INSTALLS, [draft])


def _compare(digest: str, wanted: str, source: str) -> str:
    """Return the digest if it is the expected one, or raise."""
    if wanted and digest != wanted:
        raise InstallError(f"{source} has the digest {digest}, not {wanted}", reason="digest")
    return digest


def _examine(entries: Sequence[TreeFile], rules: validate.Rules) -> validate.Validation:
    """Check the SKILL.md as discovery does. Its name becomes the name of the folder."""
    data = next(entry.data for entry in entries if entry.path == SKILL_FILE)
    parsed = validate.parse(data[: limits.FRONTMATTER_BYTES + limits.HEAD_BYTES], SKILL_FILE, rules)
    name = (parsed.fields or {}).get("name") if parsed is not None else None
    if (
        parsed is None
        or not isinstance(name, str)
        or len(name) > limits.NAME_LENGTH
        or validate.name_flaw(name, "unicode")
    ):
        raise InstallError(f"{SKILL_FILE} has no frontmatter with a valid name", reason="invalid")
    checked = validate.check(parsed, name, rules, SKILL_FILE)
    if not checked.valid:
        raise InvalidSkill(SKILL_FILE, [note for note in checked.diagnostics if note.severity == "error"])
    return checked


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _user_name() -> str:
    """The login name of the current user, from the system and not from the environment."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
