"""What a session gave before: found again by its ref, and put back after the host compacted its context."""

from collections.abc import Sequence
from typing import Final

from metier.errors import MetierError, ResourceError, SkillNotFound, StoreError
from metier.files.plugins import nearest
from metier.files.text import storable_text
from metier.policy.rules import skill_request
from metier.record.events import SkillUnloaded
from metier.record.state import LoadedSkill, SessionState, apply, ref_of
from metier.session.activation import reminder
from metier.session.context import SessionContext, Steps
from metier.values.results import Compaction, Request, Unloaded
from metier.values.skill import Skill


def text_of(context: SessionContext, ref: str) -> Steps[str]:
    """A text by its ref: from this process, from the store, or made again from an unchanged file.

    A ref is good as long as the record, also after the skill was loaded again with another text. The text of a skill
    that was unloaded or switched off since is not given.
    """
    entry = context.state.by_ref(ref) or _given_before(context, ref)
    context.visibility.notice()
    if entry is not None and (skill := _skill_of(context, entry)) is not None:
        context.visibility.refuse_off(skill)
    if entry is None:
        if printed := _printed(context, ref):
            return printed[1]
        raise ResourceError(f"there is no output {ref!r} in this session", path=ref, reason="not-found")
    if text := context.texts.get(ref):
        return text
    try:
        return context.recorder.store.get_artifact(entry.rendered).decode()
    except MetierError:
        skill = context.skills.catalog.find_path(entry.path)
        yield from context.file_requests(skill)
        yield
        loaded = context.reader.skill(skill, context.offered(), entry.arguments)
    if not entry.gave(loaded.text, loaded.body_digest):
        raise ResourceError(f"{entry.name} has changed since; load it again", path=ref, reason="changed")
    context.texts[ref] = loaded.text
    return loaded.text


def _given_before(context: SessionContext, ref: str) -> LoadedSkill | None:
    """What the record says of a text that is not the last one of its skill, unless that was unloaded since."""
    recorder, found = context.recorder, SessionState()
    for frame in recorder.store.read(context.id, context.id, ("skill_loaded", "skill_unloaded")):
        unloads = frame["type"] == "skill_unloaded"
        if unloads or (ref_of(frame["output"]) == ref and not frame.get("already_loaded")):
            found = apply(found, {**frame, "chain": ""})
    return found.by_ref(ref)


def _skill_of(context: SessionContext, entry: LoadedSkill) -> Skill | None:
    """The skill that was loaded, if the catalog still has it."""
    bearers = context.skills.catalog.by_name.get(entry.name, ())
    return next((skill for skill in bearers if storable_text(skill.path) == entry.path), None)


def _printed(context: SessionContext, ref: str) -> tuple[str, str] | None:
    """The skill whose script printed what has the ref, and that output."""
    store, name = context.recorder.store, ""
    for frame in store.read(context.id, context.id, ("tool_started", "tool_ended")):
        if frame["type"] == "tool_started":
            name = frame["name"]
        elif frame["stdout"] and ref_of(frame["stdout"]) == ref:
            try:
                return name, store.get_artifact(frame["stdout"]).decode(errors="replace")
            except StoreError:
                return None
    return None


def request(context: SessionContext, ref: str) -> Request:
    """What policy is asked before a text is given again. It names the skill that the text is from."""
    entry = context.state.by_ref(ref) or _given_before(context, ref)
    if entry is not None:
        return _about("skill_output", entry.name, _skill_of(context, entry))
    name, _ = _printed(context, ref) or ("", "")
    return _about("skill_output", name, next(iter(context.skills.catalog.by_name.get(name, ())), None))


def _about(tool: str, name: str, skill: Skill | None) -> Request:
    """The request of a tool about a skill, which may be gone from the catalog by now."""
    return skill_request(tool, skill) if skill is not None else Request(tool, name)


def unload(context: SessionContext, name: str, path: str | None = None) -> Steps[Unloaded]:
    """Take a skill out, by its name and, where several loaded skills bear it, by the path of one."""
    state, wanted = context.state, storable_text(path) if path is not None else None
    entries = [one for one in state.loaded.values() if one.name == name and wanted in (None, one.path)]
    if not entries and path is None and name in state.activated:  # a message called it, and nobody loaded it yet
        entries = [LoadedSkill(name=name, path="", digest="", rendered="")]
    if not entries:
        known = list(dict.fromkeys((*state.activated, *(one.name for one in state.loaded.values()))))
        why = f"it is not loaded; loaded: {', '.join(known) or 'none'}"
        raise SkillNotFound(name, known, nearest(name, known), why)
    for one in entries:
        yield _about("skill_unload", name, _skill_of(context, one))
    yield
    for one in entries:
        context.recorder.note(SkillUnloaded(name, one.path))
    return Unloaded(name, tuple(one.path for one in entries if one.path))


def given(context: SessionContext, refs: Sequence[str]) -> list[tuple[str, str]]:
    """Names and texts of what was given under these refs, as far as it can still be had."""
    found: list[tuple[str, str]] = []
    for entry in filter(None, map(context.state.by_ref, refs)):
        try:
            found.append((entry.name, context.settle(text_of(context, entry.ref))))
        except MetierError:
            continue
    return found


def lines_of(text: str, start: int, end: int | None, grep: str | None) -> str:
    """A text whole, by lines (from 1, both ends included), or the lines that contain something."""
    lines = text.split("\n")
    if grep is not None:
        return "\n".join(f"{n}: {line}" for n, line in enumerate(lines, 1) if grep.lower() in line.lower())
    if start != 1 or end is not None:
        return "\n".join(lines[max(start, 1) - 1 : end])
    return text


_LEFT_OUT_CHARACTERS: Final = 60
"""The room that is kept for saying how many skills a compaction leaves out."""


def compact(context: SessionContext, budget: int) -> Compaction:
    """What belongs back into a compacted context, the newest skill first, within a number of characters."""
    parts: list[str] = []
    restored: list[str] = []
    referenced: list[str] = []
    left_out: list[str] = []
    left = budget
    # What the system prompt has is still there.
    entries = [one for one in context.state.loaded.values() if one.ref not in context.state.preloaded]
    while entries:
        entry = entries.pop()
        room = left - (_LEFT_OUT_CHARACTERS if entries else 0)
        try:
            text = context.settle(text_of(context, entry.ref))
        except MetierError:
            continue
        names = restored
        if len(text) > room:
            names, text = referenced, reminder(entry.name, entry.ref, context.offered())
        if len(text) > room:
            left_out.append(entry.name)
            continue
        names.append(entry.name)
        parts.append(text)
        left -= len(text) + 2
    if left_out:
        whole = f"Loaded before, and left out here for lack of room: {', '.join(left_out)}."
        count = f"Skills loaded before, and left out here: {len(left_out):,}."
        parts += [text for text in (whole, count) if len(text) <= left][:1]
    return Compaction("\n\n".join(parts), tuple(restored), tuple(referenced), tuple(left_out))
