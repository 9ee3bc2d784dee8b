"""What a session knows, as a pure fold over its events: `state = fold(events)`.

`apply` takes a state and one frame, and returns the next state. There is no other way for a session's state to change,
so every process that reads the same events knows the same. The stored snapshot is a state at a sequence number; it
saves time when a session is opened, and can be dropped at any moment. Long texts are artifacts, named by digest.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from metier.errors import StoreError
from metier.files.digests import digest_of, digits
from metier.files.shapes import is_items
from metier.record.events import VERSION, check_version
from metier.record.store import Frame, Store
from metier.values.skill import JsonObject
from metier.values.value import Value, field, replace

SNAPSHOT: Final = "snapshot"
"""The key of a session's snapshot in its store."""

LIVES: Final = 16
"""The latest beginnings of a session that are remembered, so that a process with equal options begins no other."""

ARGUMENTS: Final = 4_096
"""The longest arguments that are kept with a loaded skill. A text with longer ones is found only as an artifact."""

_NEW_TURN: Final = ("end_turn", "invoke")
"""The operations that begin the user's next turn."""

_OPTIONS: Final = ("profile", "surface", "tools", "asks", "has_read_tool", "runs", "only", "cwd")
"""The fields of `session_started` that are options of the session. Its policy may change later."""


class LoadedSkill(Value, kw_only=True):
    """A skill that was loaded. `rendered` is the digest of the text that was given, `body` of it without its files."""

    json_keys = ("name", "path", "digest", "rendered", "arguments", "body", "mtime_ms", "ref")

    name: str
    path: str
    digest: str
    rendered: str
    arguments: str = ""
    body: str = ""
    mtime_ms: int = 0
    """When the file that was loaded had last been changed."""

    @property
    def ref(self) -> str:
        return ref_of(self.rendered)

    def gave(self, text: str, body: str) -> bool:
        """Whether this is what was given: the text or, whatever files the folder has now, its `body`."""
        return body == self.body if self.body else digest_of(text.encode()) == self.rendered


NOTHING: Final = ("",)
"""The entries of a window in which no tool may be used. One without entries has no limits of its own."""


class Window(Value):
    """The execution window of a skill: the `allowed-tools` of the bytes that were loaded; see `NOTHING`."""

    name: str
    allowed_tools: tuple[str, ...] = ()


class Life(Value):
    """A beginning of the session, by the id of its frame: the options, and the policy now in force."""

    id: str
    options: JsonObject
    policy: JsonObject


class Running(Value, kw_only=True):
    """An operation that has no end in the record yet. The other fields are those of its script, once it has started."""

    life: str
    operation: str
    since_ms: int
    name: str = ""
    script: str = ""
    process: str = ""


class SessionState(Value, kw_only=True):
    """See the module. Mappings keep the order of events, and are never changed in place."""

    seq: int = -1
    """The seq of the last event."""
    chain: str = ""
    """The hash of the last frame; see `metier.record.chain`."""
    time_ms: int = 0
    catalog: str = ""
    """The artifact with the catalog that the record named last."""
    lives: tuple[Life, ...] = ()
    running: Mapping[str, Running] = field(default_factory=dict[str, Running])
    activated: tuple[str, ...] = ()
    """Names in the order of their first activation."""
    awaited: tuple[str, ...] = ()
    """Those of them that a message called, and whose instructions the model does not have yet."""
    loaded: Mapping[str, LoadedSkill] = field(default_factory=dict[str, LoadedSkill])
    """Loaded skills by path, in the order in which they were last given whole."""
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """For a skill that another one asked for: the chain of skills that leads to it."""
    windows: Mapping[str, Window] = field(default_factory=dict[str, Window])
    preloaded: tuple[str, ...] = ()
    """Refs of skills that stand in the system prompt from the first request on."""
    injected: tuple[str, ...] = ()
    """Refs of skills that stand in the system prompt of this turn only."""
    chosen: tuple[str, ...] = ()
    """Paths of skills that messages brought into the prompt, in order; see `metier.session.listing`."""
    overrides: JsonObject = field(default_factory=dict[str, Any])
    """What skills proposed and policy granted, until the turn ends."""
    warned: frozenset[tuple[str, str]] = frozenset()
    """Warnings that the record has: a name and a text each."""
    approved: frozenset[tuple[str, ...]] = frozenset()
    """What a person allowed for the whole session: a tool, a name, a path and a digest each."""

    @property
    def given(self) -> tuple[str, ...]:
        """The activated skills whose instructions the model was given."""
        return tuple(name for name in self.activated if name not in self.awaited)

    def by_ref(self, ref: str) -> LoadedSkill | None:
        return next((loaded for loaded in self.loaded.values() if loaded.ref == ref), None)

    def life(self, id_: str) -> Life | None:
        return next((life for life in self.lives if life.id == id_), None)

    # --- as data ---

    def as_dict(self) -> JsonObject:
        """What the session knows about its skills: names, paths and digests, never bodies."""
        known: JsonObject = {
            "activated_skill_names": list(self.activated),
            "loaded": [loaded.as_dict() for loaded in self.loaded.values()],
        }
        more: JsonObject = {
            "awaited": list(self.awaited),
            "chains": {name: list(chain) for name, chain in self.chains.items()},
            "windows": {path: [window.name, *window.allowed_tools] for path, window in self.windows.items()},
            "preloaded": list(self.preloaded),
            "injected": list(self.injected),
            "chosen": list(self.chosen),
            "overrides": dict(self.overrides),
            "warned": sorted(map(list, self.warned)),
            "approved": sorted(map(list, self.approved)),
        }
        return known | {key: value for key, value in more.items() if value}

    def knowing(self, known: Mapping[str, object]) -> "SessionState":
        """This state with what `as_dict` gave elsewhere, in place of its own."""
        return replace(self, **_known(known))

    def snapshot(self) -> JsonObject:
        """The whole state as a document for the store."""
        document: JsonObject = {
            "version": VERSION,
            "seq": self.seq,
            "chain": self.chain,
            "time_ms": self.time_ms,
            "catalog": self.catalog,
            "lives": [[life.id, life.options, life.policy] for life in self.lives],
            "running": {id_: one.as_dict() for id_, one in self.running.items()},
            "known": self.as_dict(),
        }
        return {**document, "digest": _document_digest(document)}


def ref_of(digest: str) -> str:
    """The short name of a text that was given, by its digest."""
    return f"skill-{digits(digest)[:12]}"


def from_snapshot(value: Mapping[str, Any]) -> SessionState:
    """The state that `SessionState.snapshot` gave. Raises an error of lookup, type or value where it is not one."""
    if value["version"] != VERSION or value["digest"] != _document_digest(value):
        raise ValueError("the snapshot is of another version, or was changed")
    return SessionState(
        seq=int(value["seq"]),
        chain=str(value["chain"]),
        time_ms=int(value["time_ms"]),
        catalog=str(value["catalog"]),
        lives=tuple(Life(str(id_), dict(options), dict(policy)) for id_, options, policy in value["lives"]),
        running={str(id_): Running(**one) for id_, one in value["running"].items()},
    ).knowing(value["known"])


def _document_digest(document: Mapping[str, Any]) -> str:
    """The digest of a snapshot, whose own `digest` does not count."""
    plain = {key: value for key, value in document.items() if key != "digest"}
    return digest_of(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode())


def _known(value: Mapping[str, object]) -> dict[str, Any]:
    loaded = [cast("Mapping[str, Any]", one) for one in _items(value.get("loaded"))]
    chains = cast("Mapping[str, list[str]]", value.get("chains") or {})
    windows = cast("Mapping[str, list[str]]", value.get("windows") or {})
    return {
        "activated": _texts(value.get("activated_skill_names")),
        "awaited": _texts(value.get("awaited")),
        "loaded": {
            one["path"]: LoadedSkill(**{name: one[name] for name in LoadedSkill.__struct_fields__}) for one in loaded
        },
        "chains": {name: tuple(chain) for name, chain in chains.items()},
        "windows": {path: Window(name, tuple(tools)) for path, (name, *tools) in windows.items()},
        "preloaded": _texts(value.get("preloaded")),
        "injected": _texts(value.get("injected")),
        "chosen": _texts(value.get("chosen")),
        "overrides": dict(cast("JsonObject", value.get("overrides") or {})),
        "warned": frozenset(_pairs(value.get("warned"))),
        "approved": frozenset(map(_texts, _items(value.get("approved")))),
    }


def _items(value: object) -> Iterable[object]:
    return value if is_items(value) else ()


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in _items(value))


def _pairs(value: object) -> Iterable[tuple[str, str]]:
    for item in _items(value):
        first, second = _texts(item)
        yield first, second


# --- the fold ---


def fold(frames: Iterable[Frame], state: SessionState | None = None) -> SessionState:
    """The state after these frames of a session's stream, in order.

    Raises `StoreError` with the reason "corrupt" for a frame that no session wrote.
    """
    state = state or SessionState()
    for frame in frames:
        try:
            state = apply(state, frame)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            message = f"event {state.seq + 1} of the session was changed: {type(error).__name__}: {error}"
            hint = "`metier replay --verify` says what is wrong with the record"
            raise StoreError(message, reason="corrupt", hint=hint) from error
    return state


def apply(state: SessionState, frame: Frame, chain: str | None = None) -> SessionState:
    """The state after one more frame. `chain` is given for a frame whose hash is not known yet."""
    step = _STEPS.get(frame["type"])
    change = step(state, frame) if step is not None else {}
    change["chain"] = frame["chain"] if chain is None else chain
    change["seq"], change["time_ms"] = frame["seq"], max(state.time_ms, frame["timestamp_ms"])
    return replace(state, **change)


_Change = dict[str, Any]


def options_of(started: Mapping[str, Any]) -> JsonObject:
    """The options in the data of a `session_started`, as JSON has them."""
    given: JsonObject = {key: started[key] for key in _OPTIONS if key in started}
    return {key: list(value) if is_items(value) else value for key, value in given.items()}


def _started(state: SessionState, frame: Frame) -> _Change:
    check_version(frame)
    life = Life(frame["id"], options_of(frame), frame["policy"])
    change: _Change = {"lives": (*state.lives, life)[-LIVES:]}
    return change | (_known(frame["state"]) if frame.get("state") else {})


def _policy_changed(state: SessionState, frame: Frame) -> _Change:
    running = state.running.get(frame["op"])
    id_ = running.life if running else ""
    return {"lives": tuple(replace(one, policy=frame["policy"]) if one.id == id_ else one for one in state.lives)}


def _catalog(state: SessionState, frame: Frame) -> _Change:
    return {"catalog": frame.get("snapshot", "")}


def _called(state: SessionState, frame: Frame) -> _Change:
    running = Running(life=frame["life"], operation=frame["operation"], since_ms=frame["timestamp_ms"])
    change: _Change = {"running": {**state.running, frame["id"]: running}}
    life = state.life(running.life)
    if life is not None and life is not state.lives[-1]:  # those in use are remembered
        change["lives"] = (*(one for one in state.lives if one is not life), life)
    if frame["operation"] in _NEW_TURN:
        change |= {"injected": (), "overrides": {}, "windows": {}}
    return change


def _returned(state: SessionState, frame: Frame) -> _Change:
    return {"running": {id_: one for id_, one in state.running.items() if id_ != frame["op"]}}


def _tool_started(state: SessionState, frame: Frame) -> _Change:
    running = state.running.get(frame["op"])
    if running is None:
        return {}
    started = replace(
        running, since_ms=frame["timestamp_ms"], name=frame["name"], script=frame["script"], process=frame["process"]
    )
    return {"running": {**state.running, frame["op"]: started}}


def _loaded(state: SessionState, frame: Frame) -> _Change:
    name, path = frame["name"], frame["path"]
    change: _Change = {}
    if not frame.get("preloaded"):
        change["activated"] = _with(state.activated, name)
    change["awaited"] = tuple(one for one in state.awaited if one != name)
    if not frame.get("already_loaded"):
        loaded = LoadedSkill(
            name=name,
            path=path,
            digest=frame["digest"],
            rendered=frame["output"],
            arguments=frame.get("arguments", ""),
            body=frame.get("body", ""),
            mtime_ms=frame.get("mtime_ns", 0) // 1_000_000,
        )
        known = dict(state.loaded)
        known.pop(path, None)  # so that it is the last one
        known[path] = loaded
        change["loaded"] = known
    if frame.get("preloaded"):
        change["preloaded"] = _with(state.preloaded, ref_of(frame["output"]))
    if frame.get("injected"):
        change["injected"] = (change.get("loaded", state.loaded)[path].ref,)
    if frame.get("window") is not None:
        change["windows"] = {**state.windows, path: Window(name, tuple(frame["window"]))}
    return change


def _unloaded(state: SessionState, frame: Frame) -> _Change:
    name, path = frame["name"], frame.get("path", "")
    loaded = {at: one for at, one in state.loaded.items() if at != path}
    change: _Change = {"loaded": loaded, "windows": {at: one for at, one in state.windows.items() if at != path}}
    refs = {one.ref for one in loaded.values()}
    change |= {key: tuple(ref for ref in getattr(state, key) if ref in refs) for key in ("preloaded", "injected")}
    if all(one.name != name for one in loaded.values()):
        change |= {key: tuple(one for one in getattr(state, key) if one != name) for key in ("activated", "awaited")}
        change["chains"] = {key: chain for key, chain in state.chains.items() if key != name}
    return change


def _invoked(state: SessionState, frame: Frame) -> _Change:
    name, parent = frame["name"], frame.get("parent")
    change: _Change = {}
    if frame.get("activated"):
        change["activated"] = _with(state.activated, name)
        if name not in state.activated:
            change["awaited"] = (*state.awaited, name)
    if parent:
        change["chains"] = {**state.chains, name: (*state.chains.get(parent, (parent,)), name)}
    elif name in state.chains:
        change["chains"] = {key: chain for key, chain in state.chains.items() if key != name}
    return change


def _warned(state: SessionState, frame: Frame) -> _Change:
    if frame["kind"] != "truncated":
        return {}
    return {"warned": state.warned | {(frame.get("name", ""), frame["detail"])}}


def _chosen(state: SessionState, frame: Frame) -> _Change:
    before = () if frame.get("replaces") else state.chosen
    return {"chosen": (*before, *(str(one["path"]) for one in frame["skills"]))}


def _override(state: SessionState, frame: Frame) -> _Change:
    return {"overrides": {**state.overrides, frame["key"]: frame.get("value")}} if frame["granted"] else {}


def _asked(state: SessionState, frame: Frame) -> _Change:
    if not frame.get("for_session"):
        return {}
    asked = (frame["tool"], *(frame.get(key, "") for key in ("name", "path", "digest")))
    return {"approved": state.approved | {asked}}


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)


_STEPS: Final[Mapping[str, Callable[[SessionState, Frame], _Change]]] = {
    "session_started": _started,
    "policy_changed": _policy_changed,
    "skill_catalog_updated": _catalog,
    "session_called": _called,
    "session_returned": _returned,
    "tool_started": _tool_started,
    "skill_loaded": _loaded,
    "skill_unloaded": _unloaded,
    "skill_invoked": _invoked,
    "skill_warning": _warned,
    "skills_chosen": _chosen,
    "skill_override_proposed": _override,
    "policy_asked": _asked,
}


# --- from a store ---


class OpenedState(Value):
    """The state of a session in a store, and the seq of the snapshot that it was read from (-1: none)."""

    state: SessionState
    snapshot_seq: int = -1

    @property
    def options(self) -> JsonObject:
        """The options with which the session began last; empty for a new one."""
        return self.state.lives[-1].options if self.state.lives else {}


def read_state(store: Store, session_id: str) -> OpenedState:
    """The state of a session in a store: its snapshot, if there is a good one, and the events since."""
    known = _snapshot(store, session_id)
    if known is not None:
        frames = store.read(session_id, session_id, after=known.seq - 1)
        if frames and frames[0]["seq"] == known.seq and frames[0].get("chain") == known.chain:
            return OpenedState(fold(frames[1:], known), known.seq)
    return OpenedState(fold(store.read(session_id, session_id)))


def reopened(store: Store, session_id: str, *, required: bool) -> OpenedState | None:
    """`read_state`, for a session that goes on. If it is not `required` and the store fails, nothing is known of it."""
    try:
        return read_state(store, session_id)
    except StoreError:
        if required:
            raise
        return None


def _snapshot(store: Store, session_id: str) -> SessionState | None:
    try:
        document = store.load_state(session_id, SNAPSHOT)
        return from_snapshot(document.value) if document is not None else None
    except (StoreError, LookupError, TypeError, ValueError, AttributeError):
        return None  # the events say the same
