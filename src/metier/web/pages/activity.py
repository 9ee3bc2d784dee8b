"""The pages of the trail: the latest sessions, the timeline of one, the artifact behind an event, a replay's verdict.

Pages read the store and change nothing in it. Each looks at a bounded part: the newest sessions, the latest events.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier import replay
from metier.errors import SkillNotFound, StoreError
from metier.hosts.profiles import BUILT_IN
from metier.record.events import TYPES
from metier.record.store import ENVELOPE, Frame
from metier.skills import Skills
from metier.web.pages import usage
from metier.web.pages.site import Site, whole

EVENTS: Final = 200
"""On one page of a timeline."""

REPLAYED_EVENTS: Final = 20_000
"""A longer session is replayed on the command line, where it keeps nobody waiting."""

ARTIFACT_CHARACTERS: Final = 200_000
DIFFERENCES: Final = 50
BARS: Final = 12
NEVER: Final = 40

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "loads": ("skill_loaded", "skill_invoked"),
    "reads": ("skill_resource_read", "skill_resource_refused"),
    "searches": ("skills_searched",),
    "scripts": ("tool_started", "tool_stdout", "tool_stderr", "tool_ended", "tool_failed"),
    "policy": ("policy_asked", "policy_chosen", "skill_override_proposed"),
    "warnings": ("skill_warning",),
}
TROUBLE: Final = frozenset(("skill_resource_refused", "tool_failed"))


@dataclass(frozen=True, slots=True)
class Line:
    """An event on a timeline: what happened in words, whether it is trouble, and what it refers to."""

    frame: Frame
    words: str
    subject: str
    trouble: bool
    artifacts: Sequence[tuple[str, str]]
    inner: bool

    @property
    def facts(self) -> str:
        data = {key: value for key, value in self.frame.items() if key not in ENVELOPE}
        return json.dumps(data, ensure_ascii=False, indent=2, default=str)


@dataclass(frozen=True)
class ActivityPages:
    """See the module."""

    site: Site

    async def index(self, request: Request) -> Response:
        return await run_in_threadpool(self._index, request)

    def _index(self, request: Request) -> Response:
        used = usage.of(self.site.app.store)
        skill, surface = request.query_params.get("skill", ""), request.query_params.get("surface", "")
        sessions = [
            one for one in used.sessions if skill in ("", *one.skills) and surface in ("", one.surface)
        ]  # fmt: skip
        counts = used.counts
        visible = [one.name for one in self.site.skills().catalog.visible]
        never = [name for name in visible if not counts.get(name)]
        return self.site.page(
            request, "activity/index.html", sessions=sessions, used=used, bars=used.bars(BARS), measures=usage.MEASURES,
            never=never[:NEVER], never_count=len(never), offered=len(visible), names=sorted(counts),
            surfaces=sorted({one.surface for one in used.sessions if one.surface}), skill=skill, surface=surface,
            store=self.site.app.store.location,
        )  # fmt: skip

    async def session(self, request: Request) -> Response:
        return await run_in_threadpool(self._session, request)

    def _session(self, request: Request) -> Response:
        store = self.site.app.store
        session_id = request.path_params["session_id"]
        last = store.last_seq(session_id)
        if last < 0:
            raise SkillNotFound(session_id, why="there is no such session in the store")
        group = request.query_params.get("show", "")
        before = whole(request.query_params.get("before"), last + 1, 0)
        after = whole(request.query_params.get("after"), max(-1, before - EVENTS - 1), -1)
        types = GROUPS.get(group)
        frames = [
            frame for frame in store.read(session_id, session_id, types, after, limit=EVENTS) if frame["seq"] < before
        ]  # fmt: skip
        part = "after" in request.query_params
        return self.site.page(
            request, "activity/lines.html" if part else "activity/session.html", session_id=session_id,
            lines=[_line(frame) for frame in frames], last=last, group=group, groups=tuple(GROUPS),
            earlier=after + 1 if after >= 0 else 0, newest=before > last, kinds=[one.type for one in TYPES],
            started=next(iter(store.read(session_id, session_id, ("session_started",), limit=1)), None),
        )  # fmt: skip

    async def artifact(self, request: Request) -> Response:
        return await run_in_threadpool(self._artifact, request)

    def _artifact(self, request: Request) -> Response:
        store = self.site.app.store
        session_id, digest = request.path_params["session_id"], request.path_params["digest"]
        if digest not in store.artifacts(session_id):
            raise SkillNotFound(digest, why="no event of this session names this artifact")
        data = store.get_artifact(digest)
        text = _as_text(data)
        return self.site.page(
            request, "activity/artifact.html", session_id=session_id, digest=digest, size_bytes=len(data),
            text=text[:ARTIFACT_CHARACTERS] if text is not None else None,
            cut=len(text) > ARTIFACT_CHARACTERS if text is not None else False,
        )  # fmt: skip

    async def verdict(self, request: Request) -> Response:
        return await run_in_threadpool(self._verdict, request)

    def _verdict(self, request: Request) -> Response:
        """The verdict on a record: whether it runs again to the same bytes, or what today's files would change."""
        store = self.site.app.store
        session_id = request.path_params["session_id"]
        how = "drift" if request.query_params.get("against") == "today" else "replay"
        last = store.last_seq(session_id)
        if last < 0:
            raise SkillNotFound(session_id, why="there is no such session in the store")
        if last >= REPLAYED_EVENTS:
            raise StoreError(
                f"the session has {last + 1:,} events", reason="invalid", hint=f"run `metier replay {session_id}`"
            )
        record = replay.from_store(store, session_id)
        redacted = replay.redacted(record)
        if how == "drift":
            found = replay.drift(record, self._today(record))
        else:
            found = list(replay.verify(record)) if redacted else list(replay.replay(record).differences)
        part = request.query_params.get("part") == "verdict"
        return self.site.page(
            request, "activity/verdict.html" if part else "activity/replay.html", session_id=session_id, how=how,
            frames=len(record.frames), differences=found[:DIFFERENCES], count=len(found), redacted=redacted,
        )  # fmt: skip

    def _today(self, record: replay.Record) -> Skills:
        """Today's skills, under the profile of then where it is known."""
        skills = self.site.skills()
        name = str(record.frames[0].get("profile", "")) if record.frames else ""
        if name == skills.profile.name or name not in BUILT_IN:
            return skills
        place = skills.settings.place
        named = [root.path for root in skills.roots if root.explicit]
        return Skills.discover(place.cwd, profile=name, home=place.home, roots=named)


def _as_text(data: bytes) -> str | None:
    if b"\x00" in data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if text[:1] in "{[":
        try:
            return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        except (ValueError, RecursionError):
            return text
    return text


# --- events in words ---


def _line(frame: Frame) -> Line:
    kind = str(frame["type"])
    failed = kind == "session_returned" and frame.get("status") == "error"
    refused = kind == "skill_override_proposed" and not frame.get("granted")
    return Line(
        frame, _words(kind, frame), _subject(kind, frame), kind in TROUBLE or failed or refused,
        list(_artifacts(frame)), kind not in ("session_called", "session_started"),
    )  # fmt: skip


_WORDS: Final[Mapping[str, str]] = {
    "session_started": "Session begins",
    "skill_catalog_updated": "Catalog",
    "skill_loaded": "Loaded",
    "skill_invoked": "Called",
    "skill_warning": "Warning",
    "skill_resource_read": "Read",
    "skill_resource_refused": "Not read",
    "skills_searched": "Searched",
    "tool_started": "Script begins",
    "tool_stdout": "Output",
    "tool_stderr": "Error output",
    "tool_ended": "Script ended",
    "tool_failed": "Script refused",
    "skill_override_proposed": "Proposal",
    "policy_chosen": "Policy",
    "policy_asked": "Asked",
    "session_called": "Request",
    "session_returned": "Answer",
}


def _words(kind: str, frame: Frame) -> str:
    if kind == "session_returned" and frame.get("status") == "error":
        return "Refused"
    return _WORDS.get(kind, kind)


def _subject(kind: str, frame: Frame) -> str:
    """The one line that says what an event is about."""
    fact = frame.get
    if kind == "session_called":
        return _request(frame)
    cut = ", cut" if fact("truncated") else ""
    subjects: dict[str, str] = {
        "session_started": f"{fact('surface')}, profile {fact('profile')}",
        "skill_catalog_updated": f"{fact('count', 0):,} skills",
        "skill_loaded": f"{fact('name')}{', again' if fact('already_loaded') else ''}{cut}",
        "skill_invoked": f"{fact('name')} by {'the user' if fact('mode') == 'manual' else 'the model'}",
        "skill_warning": f"{fact('name') or ''} {fact('detail', '')}".strip(),
        "skill_resource_read": f"{fact('name')}: {fact('path')}{cut}",
        "skill_resource_refused": f"{fact('name')}: {fact('detail') or fact('path')}",
        "skills_searched": f"“{fact('query')}”, {fact('count')} found",
        "tool_started": f"{fact('name')}: {fact('script')} in {fact('sandbox')}",
        "tool_stdout": _first_line(fact("text", "")),
        "tool_stderr": _first_line(fact("text", "")),
        "tool_ended": f"exit code {fact('exit_code')} after {fact('duration_ms')} ms",
        "tool_failed": f"{fact('name')}: {fact('detail')}",
        "skill_override_proposed": (
            f"{fact('name')} proposes {fact('key')}: {'granted' if fact('granted') else 'refused'}"
        ),
        "policy_chosen": str(fact("policy", "")),
        "policy_asked": f"{fact('tool')} for {fact('name') or 'a tool'}: {fact('answer')}",
        "session_returned": str(fact("code") or "done"),
    }
    return subjects.get(kind, "")


def _first_line(text: Any) -> str:
    first, *more = str(text).strip().split("\n")
    return f"{first} and {len(more)} more lines" if more else first


def _request(frame: Frame) -> str:
    given = cast("dict[str, Any]", frame.get("args") or {})
    inner = given.get("arguments")
    said = [given.get("tool") or frame.get("operation", "")]
    values = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {k: v for k, v in given.items() if k != "by"}
    said += [str(value) for key, value in values.items() if key != "tool" and isinstance(value, (str, int))]
    return " ".join(str(word) for word in said if word != "")


def _artifacts(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The digests that an event names, each with what it is of."""
    for key, item in value.items():
        if isinstance(item, str) and item.startswith("sha256:"):
            yield key, item
        elif key == "artifacts" and isinstance(item, list):
            for one in cast("list[dict[str, Any]]", item):
                yield str(one.get("path", "file")), str(one.get("digest", ""))
