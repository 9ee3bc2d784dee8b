"""What the latest loads of this process gave, so that a text that many sessions load is made once.

A text depends on nothing but the bytes, the list of files, the profile and what was asked for. All of these are
compared before a kept text is used again, so nothing is ever out of date.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metier.hosts.formats import Offered
from metier.hosts.schema import Profile
from metier.results import Loaded
from metier.session.activation import SkillFile

KEPT: Final = 256
KEPT_BYTES: Final = 64 * 1024
"""How many texts are kept, and of how large files. Together they take a few megabytes."""

_Key = tuple[str, str, bool, int]


@dataclass(frozen=True, slots=True)
class _Kept:
    file: SkillFile
    profile: Profile
    offered: Offered
    loaded: Loaded


class PresentedSkills:
    """See the module. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self,
        file: SkillFile,
        profile: Profile,
        offered: Offered,
        arguments: str,
        command: bool,
        version: int,
        present: Callable[[], Loaded],
    ) -> Loaded:
        """What `present` gave for the same skill, or gives now."""
        if len(file.content.data) > KEPT_BYTES or len(arguments) > KEPT_BYTES:
            return present()
        key = (file.skill.path, arguments, command, version)
        known = self._kept.get(key)
        if (
            known is not None
            and known.profile is profile
            and known.file.skill is file.skill
            and known.file.content == file.content
            and known.file.listing == file.listing
            and known.offered == offered
        ):
            return known.loaded
        loaded = present()
        with self._lock:
            self._kept[key] = _Kept(file, profile, dict(offered), loaded)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return loaded


PRESENTED: Final = PresentedSkills()
