"""Records which skills a model was shown, so that the record can say which of them were never used.

A list that is shown is no operation: nothing follows from it, and a replay does not need it. It therefore has a stream
of its own, beside that of the session, and no prompt waits for an operation to record it. Each list is recorded once in
a session: the id of its event is derived from what it says, and a store writes an id only once.
"""

import json
import logging
from collections.abc import Sequence
from typing import Final, Literal, get_args

from metier.errors import StoreError
from metier.files.digests import digest_of, digits
from metier.files.json_text import parse_json
from metier.files.shapes import is_items
from metier.files.text import from_utf8, storable_text
from metier.record.events import OFFERS, SkillsOffered, offers_stream
from metier.record.store import Draft, Store
from metier.values.results import Prompt, WholePrompt
from metier.values.value import Value

_LOG: Final = logging.getLogger("metier")
_UNKNOWN: Final = -1
"""The number of characters in the record where it is not known."""

Place = Literal["prompt", "instructions", "tools"]
"""Where a list of skills stands: in a system prompt, or in the instructions or the tools of an MCP server."""

How = Literal["described", "named", "whole"]
"""What a list has of a skill: its description, only its name, or its whole text."""


class OfferedSkill(Value):
    """A skill in a list: the number of its characters there is `None` if the host's formats do not say it."""

    name: str
    characters: int | None
    how: How = "described"


class SkillOffer(Value):
    """A list of skills as a model was shown it. `total` is the number of skills that there were to show."""

    place: Place
    characters: int
    total: int
    skills: tuple[OfferedSkill, ...]


def of_prompt(shown: Prompt | WholePrompt) -> SkillOffer:
    """The skills in a prompt."""
    listed = shown if isinstance(shown, Prompt) else shown.listed or Prompt("", 0, 0, False)
    applied = () if isinstance(shown, Prompt) else shown.applied
    known = len(listed.sizes) == len(listed.names)
    sizes: Sequence[int | None] = listed.sizes if known else [None] * len(listed.names)
    skills = [OfferedSkill(name, size) for name, size in zip(listed.names, sizes, strict=True)]
    skills += (OfferedSkill(name, len(name), "named") for name in listed.more)
    skills += (OfferedSkill(name, size, "whole") for name, size in applied)
    whole = len(listed.text) + sum(size for _, size in applied)
    return SkillOffer("prompt", whole, max(listed.total, len(skills)), tuple(skills))


class OfferWriter:
    """Writes the offers of one session. A store in trouble is logged: a prompt does not depend on it."""

    def __init__(self, store: Store, session_id: str, *, keeps_artifacts: bool) -> None:
        self._store, self._session_id, self._keeps_artifacts = store, session_id, keeps_artifacts
        self._written: set[str] = set()

    def write(self, offer: SkillOffer, now_ms: int) -> None:
        """Record an offer, unless the session has it already. An empty list is no offer."""
        if not offer.skills:
            return
        content = _content(offer.skills)
        event = SkillsOffered(offer.place, len(offer.skills), offer.total, offer.characters, digest_of(content))
        id_ = digits(digest_of(f"{self._session_id}\n{event}".encode()))
        if id_ in self._written:
            return
        draft = Draft(id_, now_ms, event.type, event.data())
        artifacts = [content] if self._keeps_artifacts else []
        try:
            self._store.append(self._session_id, OFFERS, offers_stream(self._session_id), [draft], artifacts)
        except StoreError as error:
            _LOG.warning("what the model was offered is not recorded: %s", error)
        else:
            self._written.add(id_)


def _content(skills: Sequence[OfferedSkill]) -> bytes:
    """The skills of a list as data. Their order is not part of it, since a host may change it with every message."""
    sizes = (_UNKNOWN if one.characters is None else one.characters for one in skills)
    rows = sorted((storable_text(one.name), one.how, size) for one, size in zip(skills, sizes, strict=True))
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()


def read_offer(content: bytes) -> list[OfferedSkill]:
    """The skills of a list that was recorded. Raises `ValueError` where it is not one."""
    rows = parse_json(from_utf8(content))
    if not is_items(rows):
        raise ValueError("it is no list of skills")
    return [_skill(row) for row in rows]


def _skill(row: object) -> OfferedSkill:
    name, how, size = row if is_items(row) and len(row) == 3 else ("", "", None)
    known = next((one for one in get_args(How) if one == how), None)
    if not isinstance(name, str) or known is None or not isinstance(size, int):
        raise ValueError("it is no list of skills")
    return OfferedSkill(name, size if size != _UNKNOWN else None, known)
