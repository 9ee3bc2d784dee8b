"""Reads the files of a skill for a session: SKILL.md as a `Loaded`, any other file as a `Resource`.

Every read is recorded with the digest of its bytes, and every refusal with its reason. Where a text is cut, the text
says so, and so do the log and the record, once.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from metier import limits
from metier.errors import BinaryResource, InvalidSkill, ResourceError, ResourceNotFound
from metier.files import beneath
from metier.files.beneath import Content
from metier.files.digests import digest_of
from metier.files.source import Files
from metier.hosts.formats import Offered
from metier.hosts.schema import Profile
from metier.policy.decide import Policy
from metier.policy.rules import skill_request
from metier.record.events import ResourceRead, ResourceRefused, SkillWarning
from metier.record.recorder import Recorder
from metier.session import activation
from metier.values.results import Loaded, Resource
from metier.values.skill import SKILL_FILE, Skill

_LOG: Final = logging.getLogger("metier")
_LOGGED: Final[set[tuple[str, str]]] = set()
"""What this process has logged: a skill and a note about it, once."""


class Reader:
    """See the module."""

    def __init__(self, files: Files, profile: Profile, recorder: Recorder, policy: Policy) -> None:
        self._files, self._profile, self._recorder, self._policy = files, profile, recorder, policy

    def on(self, recorder: Recorder) -> "Reader":
        """The same with another recorder."""
        return Reader(self._files, self._profile, recorder, self._policy)

    def skill(self, skill: Skill, offered: Offered, arguments: str = "", command: bool = False) -> Loaded:
        """SKILL.md as the profile's host presents it."""
        return self.presented(skill, self.skill_content(skill), offered, arguments, command)

    def skill_content(self, skill: Skill) -> Content:
        """The bytes of SKILL.md to load it. A refusal is recorded."""
        try:
            return self.skill_bytes(skill, limits.SKILL_FILE_BYTES)
        except ResourceError as error:
            self._recorder.note(ResourceRefused(skill.name, SKILL_FILE, error.reason, str(error)))
            raise

    def skill_bytes(self, skill: Skill, limit: int) -> Content:
        """The bytes of SKILL.md, kept for a replay."""
        content = self._files.skill_file(skill, limit)
        if self._recorder.keeps_record:
            self._recorder.note(artifacts={digest_of(content.data): content.data})
        return content

    def presented(
        self, skill: Skill, content: Content, offered: Offered, arguments: str = "", command: bool = False
    ) -> Loaded:
        """The bytes of SKILL.md as the profile's host presents them. Bytes that are no skill any more are refused."""
        rules = self._profile.load
        listing = self._files.listing(skill, rules.max_files, rules.max_file_bytes)
        file = activation.SkillFile(skill=skill, content=content, listing=listing)
        try:
            return _presented(file, self._profile, offered, arguments, command)
        except InvalidSkill as broken:
            digest = digest_of(content.data)
            self._recorder.note(ResourceRefused(skill.name, SKILL_FILE, "invalid", str(broken), digest))
            raise

    def text(self, skill: Skill, path: str, relative: str) -> Resource:
        """A file as text, within the limits of the profile. `path` is what was asked for, `relative` what it means."""
        try:
            content = self._content(skill, relative, self.limit(raw=False))
        except ResourceNotFound as error:
            listing = self._files.listing(skill, limits.LISTED_FILES, limits.RESOURCE_BYTES)
            raise ResourceNotFound(path, listing.files) from error
        return self.as_text(skill, path, relative, content)

    def limit(self, raw: bool) -> int:
        """How many bytes of a file are read, as it is or as text."""
        if raw:
            return limits.WHOLE_FILE_BYTES
        return min(self._profile.resources.max_bytes or limits.RESOURCE_BYTES, limits.RESOURCE_BYTES)

    def as_text(self, skill: Skill, path: str, relative: str, content: Content) -> Resource:
        """Bytes of a file as text, with a notice where they are cut."""
        truncated = content.size > len(content.data)
        text = beneath.decode(content.data, path, partial=truncated)
        digest = digest_of(content.data)
        read = ResourceRead(skill.name, relative, digest, content.size, truncated)
        self._recorder.note(read, artifacts={digest: content.data})
        if truncated:
            left_out = content.size - len(text.encode())
            way = activation.raise_limit("resources.max_bytes")
            text += activation.cut_notice(relative, left_out, content.size, way)
            note = f"{relative} has {content.size} bytes, {left_out} were left out"
            self._recorder.note(*self.warnings(skill, (note,)))
        return Resource(
            skill=skill,
            path=relative,
            text=activation.origin(skill) + text,
            mime=beneath.mime_type(relative),
            size=content.size,
            truncated=truncated,
            digest=digest,
        )

    def whole(self, skill: Skill, relative: str) -> Resource:
        """A file as its bytes, whatever they are. The text is empty where they are not text."""
        return self.as_bytes(skill, relative, self._content(skill, relative, limits.WHOLE_FILE_BYTES))

    def as_bytes(self, skill: Skill, relative: str, content: Content) -> Resource:
        """Bytes of a file as they are."""
        data, digest = content.data, digest_of(content.data)
        if content.size > len(data):
            message = f"{relative} has more than {limits.WHOLE_FILE_BYTES} bytes"
            raise ResourceError(message, path=relative, reason="too-large")
        self._recorder.note(ResourceRead(skill.name, relative, digest, content.size), artifacts={digest: data})
        try:
            text = beneath.decode(data, relative, partial=False)
        except BinaryResource:
            text = ""
        return Resource(
            skill=skill,
            path=relative,
            text=text,
            mime=beneath.mime_type(relative),
            size=content.size,
            truncated=False,
            digest=digest,
            data=data,
        )

    def _content(self, skill: Skill, relative: str, limit: int) -> Content:
        if relative == SKILL_FILE:
            return self._files.skill_file(skill, limit)
        content = self._files.resource(skill, relative, limit)
        if content.real and self._policy.decide(skill_request("skill_read", skill, content.real)).verdict != "allow":
            message = f"{relative} is a link to {content.real}, which a rule is about; read {content.real} itself"
            raise ResourceError(message, path=relative, reason="other-name")
        return content

    def warnings(self, skill: Skill, notes: Iterable[str]) -> list[SkillWarning]:
        """The warnings that the record does not have yet; each is logged once."""
        fresh: list[SkillWarning] = []
        for note in notes:
            key = (skill.path, note)
            if key not in _LOGGED:
                _LOGGED.add(key)
                _LOG.warning("%s: %s", skill.name, note)
            if (skill.name, note) not in self._recorder.state.warned:
                fresh.append(SkillWarning("truncated", note, skill.name))
        return fresh


# --- texts that many sessions load ---

_KEPT: Final = 256
_KEPT_BYTES: Final = 64 * 1024
"""How many texts this process keeps, and of how large files. Together they take a few megabytes."""


class _Kept(NamedTuple):
    file: activation.SkillFile
    profile: Profile
    offered: Offered
    loaded: Loaded


_kept: Final = OrderedDict[tuple[str, str, bool], _Kept]()
_keeping: Final = threading.Lock()


def _presented(file: activation.SkillFile, profile: Profile, offered: Offered, arguments: str, command: bool) -> Loaded:
    """What `activation.present` gives, made once where many sessions load the same.

    A text depends on nothing but the bytes, the list of files, the profile and what was asked for. All of these are
    compared before a kept text is used again, so nothing is ever out of date.
    """
    key = (file.skill.path, arguments, command)
    known = _kept.get(key)
    if (
        known is not None
        and known.profile is profile
        and known.file.skill is file.skill
        and known.file.content == file.content
        and known.file.listing == file.listing
        and known.offered == offered
    ):
        return known.loaded
    loaded = activation.present(file, profile, offered, arguments, command)
    if len(file.content.data) <= _KEPT_BYTES and len(arguments) <= _KEPT_BYTES:
        with _keeping:
            _kept[key] = _Kept(file, profile, dict(offered), loaded)
            _kept.move_to_end(key)
            while len(_kept) > _KEPT:
                _kept.popitem(last=False)
    return loaded
