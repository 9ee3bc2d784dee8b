"""The activity pages: the latest sessions, the timeline of a session, an artifact, and the result of a replay.

They only read the store, and each reads a bounded part of it: the newest sessions, the latest events.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier import replay
from metier.errors import SkillNotFound, StoreError
from metier.files.digests import is_digest
from metier.files.shapes import as_table, is_items, is_table
from metier.hosts import profiles
from metier.record.events import TYPES
from metier.record.store import ENVELOPE, Frame
from metier.record.usage import MEASURES
from metier.skills import Skills
from metier.surfaces.web.pages import usage
from metier.surfaces.web.site import Site, seen_by, whole

EVENTS: Final = 200
"""Events on one page of a timeline."""

REPLAYED_EVENTS: Final = 20_000
"""A longer session is replayed on the command line, so that no browser has to wait for it."""

ARTIFACT_CHARACTERS: Final = 200_000
DIFFERENCES: Final = 50

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "loads": ("skill_loaded", "skill_unloaded", "skill_invoked"),
    "reads": ("skill_resource_read", "skill_resource_refused"),
    "searches": ("skills_searched",),
    "scripts": ("tool_started", "tool_stdout", "tool_stderr", "tool_network", "tool_ended", "tool_failed"),
    "policy": ("policy_asked", "policy_changed", "policy_chosen", "skill_override_proposed"),
    "warnings": ("skill_warning",),
}
PROBLEMS: Final = frozenset(("skill_resource_refused", "tool_failed"))


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """An event on a timeline: a label, what it is about, whether it is a problem, and the artifacts it names."""

    frame: Frame
    label: str
    subject: str
    problem: bool
    artifacts: Sequence[tuple[str, str]]
    inner: bool
    """Whether it belongs to the request above it."""

    @property
    def facts(self) -> str:
        data = {key: value for key, value in self.frame.items() if key not in ENVELOPE}
        return json.dumps(data, ensure_ascii=False, indent=2, default=str)


def index(site: Site, request: Request) -> Response:
    skill, surface = request.query_params.get("skill", ""), request.query_params.get("surface", "")
    newest, total = usage.newest(site.app.store)
    return site.page(
        request,
        "activity/index.html",
        sessions=[one for one in newest if skill in ("", *one.skills) and surface in ("", one.surface)],
        counted=len(newest),
        total=total,
        measures=MEASURES,
        names=sorted({name for one in newest for name in one.skills}),
        surfaces=sorted({one.surface for one in newest if one.surface}),
        skill=skill,
        surface=surface,
        store=site.app.store.location,
    )


def session(site: Site, request: Request) -> Response:
    store = site.app.store
    session_id = request.path_params["session_id"]
    last = store.last_seq(session_id)
    if last < 0:
        raise SkillNotFound(session_id, why="there is no such session in the store")
    group = request.query_params.get("show", "")
    before = whole(request.query_params.get("before"), last + 1, 0)
    after = whole(request.query_params.get("after"), max(-1, before - EVENTS - 1), -1)
    types = GROUPS.get(group)
    found = store.read(session_id, session_id, types, after, limit=EVENTS)
    part = "after" in request.query_params
    return site.page(
        request,
        "activity/lines.html" if part else "activity/session.html",
        session_id=session_id,
        lines=[_line(frame) for frame in found if frame["seq"] < before],
        last=last,
        group=group,
        groups=tuple(GROUPS),
        earlier=after + 1 if after >= 0 else 0,
        newest=before > last,
        kinds=[one.type for one in TYPES],
        started=next(iter(store.read(session_id, session_id, ("session_started",), limit=1)), None),
    )


def artifact(site: Site, request: Request) -> Response:
    store = site.app.store
    session_id, digest = request.path_params["session_id"], request.path_params["digest"]
    if digest not in store.artifacts(session_id):
        raise SkillNotFound(digest, why="no event of this session refers to this artifact")
    data = store.get_artifact(digest)
    text = _as_text(data)
    return site.page(
        request,
        "activity/artifact.html",
        session_id=session_id,
        digest=digest,
        size_bytes=len(data),
        text=text[:ARTIFACT_CHARACTERS] if text is not None else None,
        cut=len(text) > ARTIFACT_CHARACTERS if text is not None else False,
    )


def verdict(site: Site, request: Request) -> Response:
    """The result of a replay: whether it gives the same bytes, or what today's files would change."""
    store = site.app.store
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
    unrunnable = replay.unrunnable(record)
    not_compared = 0
    if how == "drift":
        found = replay.drift(record, _today(site, record))
    elif unrunnable:
        found = replay.verify(record)
    else:
        outcome = replay.replay(record)
        found, not_compared = outcome.differences, outcome.not_compared
    part = request.query_params.get("part") == "verdict"
    return site.page(
        request,
        "activity/verdict.html" if part else "activity/replay.html",
        session_id=session_id,
        how=how,
        frames=len(record.frames),
        differences=found[:DIFFERENCES],
        count=len(found),
        unrunnable=unrunnable,
        not_compared=not_compared,
    )


def _today(site: Site, record: replay.Record) -> Skills:
    """Today's skills, under the profile of the record if it is a built-in one."""
    skills = site.skills()
    name = str(record.frames[0].get("profile", "")) if record.frames else ""
    if name == skills.profile.name or name not in profiles.names():
        return skills
    return seen_by(skills, name)


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


# --- lines ---


def _line(frame: Frame) -> TimelineLine:
    kind = str(frame["type"])
    failed = kind == "session_returned" and frame.get("status") != "ok"
    refused = kind == "skill_override_proposed" and not frame.get("granted")
    label, subject = _EVENTS.get(kind, (kind, lambda _: ""))
    return TimelineLine(
        frame=frame,
        label="Failed" if failed else label,
        subject=subject(frame),
        problem=kind in PROBLEMS or failed or refused,
        artifacts=list(_artifacts(frame)),
        inner=kind not in ("session_called", "session_started"),
    )


def _cut(frame: Frame) -> str:
    return ", truncated" if frame.get("truncated") else ""


_EVENTS: Final[Mapping[str, tuple[str, Callable[[Frame], str]]]] = {
    "session_started": ("Session started", lambda f: f"{f.get('surface')}, profile {f.get('profile')}"),
    "skill_catalog_updated": ("Catalog", lambda f: f"{f.get('count', 0):,} skills"),
    "skill_loaded": (
        "Loaded",
        lambda f: f"{f.get('name')}{', again' if f.get('already_loaded') else ''}{_cut(f)}",
    ),
    "skill_unloaded": ("Unloaded", lambda f: str(f.get("name"))),
    "skill_invoked": (
        "Called",
        lambda f: f"{f.get('name')} by {'the user' if f.get('mode') == 'manual' else 'the model'}",
    ),
    "skill_warning": ("Warning", lambda f: f"{f.get('name') or ''} {f.get('detail', '')}".strip()),
    "skill_resource_read": ("Read", lambda f: f"{f.get('name')}: {f.get('path')}{_cut(f)}"),
    "skill_resource_refused": ("Read refused", lambda f: f"{f.get('name')}: {f.get('detail') or f.get('path')}"),
    "skills_searched": ("Searched", lambda f: f"“{f.get('query')}”, {f.get('count')} found"),
    "skills_chosen": ("Added to the prompt", lambda f: ", ".join(str(one["name"]) for one in f.get("skills", ()))),
    "tool_started": ("Script started", lambda f: f"{f.get('name')}: {f.get('script')} in {f.get('sandbox')}"),
    "tool_stdout": ("Output", lambda f: _first_line(f.get("text", ""))),
    "tool_stderr": ("Error output", lambda f: _first_line(f.get("text", ""))),
    "tool_network": (
        "Network",
        lambda f: f"{f.get('host') or 'a request'}:{f.get('port')}, {f.get('reason') or 'connected'}",
    ),
    "tool_ended": ("Script ended", lambda f: f"exit code {f.get('exit_code')} after {f.get('duration_ms')} ms"),
    "tool_failed": ("Script refused", lambda f: f"{f.get('name')}: {f.get('detail')}"),
    "skill_override_proposed": (
        "Override proposed",
        lambda f: f"{f.get('name')} proposes {f.get('key')}: {'granted' if f.get('granted') else 'refused'}",
    ),
    "policy_chosen": ("Policy", lambda f: str(f.get("policy", ""))),
    "policy_changed": ("Policy changed", lambda f: _rules(as_table(f.get("policy")))),
    "policy_asked": ("Asked", lambda f: f"{f.get('tool')} for {f.get('name') or 'a tool'}: {f.get('answer')}"),
    "session_called": ("Request", lambda f: _request(f)),
    "session_returned": ("Answer", lambda f: str(f.get("code") or "done")),
}
"""The label of each event, and one line about its subject."""


def _rules(policy: Mapping[str, object]) -> str:
    counts = ((key, policy.get(key)) for key in ("allow", "deny", "ask"))
    listed = (f"{len(rules)} {key}" for key, rules in counts if is_items(rules))
    return f"{policy.get('profile', '')}, {', '.join(listed) or 'no'} rules"


def _first_line(text: object) -> str:
    first, *more = str(text).strip().split("\n")
    return f"{first} and {len(more)} more lines" if more else first


def _request(frame: Frame) -> str:
    """The tool or operation of a call, and its arguments."""
    given = as_table(frame.get("args"))
    inner = given.get("arguments")
    values = inner if is_table(inner) else {key: value for key, value in given.items() if key != "by"}
    shown = [value for key, value in values.items() if key != "tool" and isinstance(value, str | int)]
    words = (str(word) for word in (given.get("tool") or frame.get("operation", ""), *shown))
    return " ".join(word for word in words if word)


def _artifacts(frame: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The digests in an event, each with a label."""
    for key, item in frame.items():
        if is_digest(item):
            yield key, item
        elif key == "artifacts" and is_items(item):
            for one in item:
                if is_table(one):
                    yield str(one.get("path", "file")), str(one.get("digest", ""))
