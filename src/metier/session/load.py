"""Loads a skill into a session: read, remembered by content so that nothing is sent twice, recorded, put to policy.

What was given before is known by the digest of the text without the list of files: a new file sends no text again.
Body, frontmatter, proposals and the execution window come from the same bytes, also where the file was edited after the
catalog was built.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from metier import limits
from metier.errors import BadArguments, InvocationError, PolicyDenied, SkillNotFound
from metier.files.digests import artifact_of
from metier.files.text import storable_text
from metier.policy import windows
from metier.policy.decide import proposals
from metier.policy.rules import skill_request
from metier.record.events import OverrideProposed, SkillInvoked, SkillLoaded
from metier.record.state import ARGUMENTS, ref_of
from metier.session import activation
from metier.session.context import SessionContext, Steps
from metier.session.visibility import By
from metier.values.results import Loaded, Resource
from metier.values.skill import SKILL_FILE, Skill
from metier.values.value import replace


def load(
    context: SessionContext,
    skill: Skill,
    *,
    by: By,
    arguments: str = "",
    parent: str | None = None,
    command: bool = False,
    inject: bool = False,
) -> Loaded:
    """Activate a skill that policy allows, and whose file may be read.

    `parent` is the skill that asks for it, and `command` says that a user's slash command does. `inject` puts it into
    the system prompt of this turn.
    """
    _check_chain(context, skill.name, parent)
    offered = context.offered()
    loaded = context.reader.skill(skill, offered, arguments, command)
    rendered, text = artifact_of(loaded.text)
    known = context.state.loaded.get(storable_text(skill.path))
    if known is not None and known.gave(loaded.text, loaded.body_digest) and context.profile.load.reload == "remind":
        reminder = activation.reminder(skill.name, known.ref, offered)
        loaded = replace(loaded, text=reminder, body="", already_loaded=True, ref=known.ref, truncated=False)
        rendered, text = artifact_of(reminder)
    else:
        loaded = _keep(context, loaded, rendered)
    _record(
        context,
        loaded,
        {rendered: text},
        by=by,
        arguments=arguments,
        parent=parent,
        inject=inject,
    )
    return loaded


def read_whole(context: SessionContext, skill: Skill, path: str, *, by: By, raw: bool) -> Resource:
    """SKILL.md as a file. Reading it activates the skill, whichever way it is read. The text is given each time."""
    reader = context.reader
    content = reader.skill_bytes(skill, reader.limit(raw))
    loaded = reader.presented(skill, content, context.offered())  # first, because a broken file is not given
    resource = reader.as_bytes(skill, SKILL_FILE, content) if raw else reader.as_text(skill, path, SKILL_FILE, content)
    known = context.state.loaded.get(storable_text(skill.path))
    rendered, text = artifact_of(resource.text)
    again = known is not None and known.digest == loaded.digest
    loaded = replace(loaded, already_loaded=again, body_digest="")  # the text is not that of a load
    if not loaded.already_loaded:
        context.texts[ref_of(rendered)] = resource.text
    _record(context, loaded, {rendered: text}, by=by)
    return resource


def preload(context: SessionContext, skills: Sequence[Skill]) -> Steps[tuple[Loaded, ...]]:
    """Read the skills that stand in the system prompt from the first request on, and so need not be loaded again."""
    for skill in skills:
        yield from context.file_requests(skill)
    yield
    return tuple(_preload(context, skill) for skill in skills)


def _preload(context: SessionContext, skill: Skill) -> Loaded:
    loaded = context.reader.skill(skill, context.offered())
    rendered, text = artifact_of(loaded.text)
    record = _loaded(loaded, rendered, preloaded=True)
    context.recorder.note(record, artifacts={rendered: text})
    return _keep(context, loaded, rendered)


def preloadable(context: SessionContext, name: str) -> Skill:
    """A skill to preload: also a hidden one, but none that is switched off. For an unknown one the error has names."""
    catalog = context.skills.catalog
    check_preload((name,), context.visibility.only)
    try:
        skill = catalog.find(name)
    except SkillNotFound as error:
        known = f"known: {', '.join(catalog.by_name)}"
        raise SkillNotFound(name, list(catalog.by_name), error.close, known) from error
    context.visibility.refuse_off(skill)
    context.refuse_denied(skill)
    if not skill.trusted:
        raise PolicyDenied("skill_load", name, "its project is not trusted; `metier trust` trusts it")
    return skill


def check_preload(preload: Iterable[str], only: Collection[str] | None) -> None:
    """Refuse to preload a skill that the session does not have."""
    outside = next((name for name in preload if only is not None and name not in only), None)
    if outside is not None:
        message = f"preload: the session is limited to {', '.join(sorted(only or ())) or 'no skill'} by `only`"
        raise BadArguments(f"{message}, and {outside!r} is not one of them", field="preload")


def _keep(context: SessionContext, loaded: Loaded, rendered: str) -> Loaded:
    """The skill with the ref to find its text by."""
    ref = ref_of(rendered)
    context.texts[ref] = loaded.text
    return replace(loaded, ref=ref)


def _kept(context: SessionContext, arguments: str) -> str:
    return context.policy.redact(arguments) if len(arguments) <= ARGUMENTS else ""


def _loaded(
    loaded: Loaded,
    output: str,
    *,
    arguments: str = "",
    window: tuple[str, ...] | None = None,
    injected: bool = False,
    preloaded: bool = False,
) -> SkillLoaded:
    """The record of a load; `output` is the digest of what the model gets."""
    return SkillLoaded(
        name=loaded.skill.name,
        path=storable_text(loaded.skill.path),
        digest=loaded.digest,
        frontmatter=loaded.frontmatter,
        directory=loaded.skill.dir,
        output=output,
        body=loaded.body_digest,
        files=loaded.files,
        files_truncated=loaded.files_truncated,
        files_left_out=loaded.files_left_out or None,
        size=loaded.size,
        already_loaded=loaded.already_loaded,
        truncated=loaded.truncated,
        warnings=loaded.warnings,
        mtime_ns=loaded.skill.mtime_ns or None,
        arguments=arguments,
        window=window,
        injected=injected or None,
        preloaded=preloaded or None,
    )


def _record(
    context: SessionContext,
    loaded: Loaded,
    text: Mapping[str, bytes],
    *,
    by: By,
    arguments: str = "",
    parent: str | None = None,
    inject: bool = False,
) -> None:
    """Record an activation, and put to policy what the skill proposes; `text` is what the model gets, by its digest."""
    given = loaded.skill
    if given.frontmatter != loaded.frontmatter:
        given = replace(given, frontmatter=loaded.frontmatter)
    enforced = context.profile.policy.enforce_hints
    record = _loaded(
        loaded,
        next(iter(text)),
        arguments=_kept(context, arguments),
        window=windows.of(given) if enforced else None,
        injected=inject,
    )
    invoked = SkillInvoked(
        name=given.name,
        mode="manual" if by == "user" else "auto",
        args=context.policy.redact(arguments) or None,
        effective_allowed_tools=context.policy.effective_tools(given) if enforced else None,
        parent=_shown_parent(context, parent),
    )
    notes = context.reader.warnings(given, loaded.warnings)
    context.recorder.note(record, invoked, *notes, artifacts=text)
    _consider_overrides(context, given)


# --- skills that load skills ---


def _check_chain(context: SessionContext, name: str, parent: str | None) -> None:
    """Raise `InvocationError` where skills call each other in a cycle, or too deep."""
    if parent is None:
        return
    chain = (*context.state.chains.get(parent, (parent,)), name)
    if name in chain[:-1]:
        raise InvocationError("skills call each other in a cycle", chain)
    if len(chain) > limits.CALL_DEPTH:
        raise InvocationError(f"skills call each other more than {limits.CALL_DEPTH} deep", chain)


def _shown_parent(context: SessionContext, parent: str | None) -> str | None:
    """The parent for the record. Where policy redacts, only the name of an active skill is known to be no secret."""
    if parent is None or parent in context.state.activated:
        return parent or None
    return context.policy.redact(parent) or None


# --- proposals ---


def _consider_overrides(context: SessionContext, skill: Skill) -> None:
    """Offer to policy what a skill proposes (a model, tool defaults, a scope); both answers are recorded."""
    for key, value in proposals(skill.frontmatter):
        decision = context.policy.decide(skill_request("override", skill, key))
        granted = decision.verdict == "allow"
        context.recorder.note(OverrideProposed(skill.name, key, value, granted, decision.why))
