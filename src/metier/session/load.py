"""Loads a skill into a session: read, remembered by content so that nothing is sent twice, recorded, put to policy."""

from collections.abc import Mapping
from dataclasses import replace

from metier.errors import PolicyDenied, SkillNotFound
from metier.files.digests import digest_of
from metier.model import Skill
from metier.record.events import OverrideProposed, SkillInvoked, SkillLoaded
from metier.results import Loaded, Request
from metier.session import activation
from metier.session.context import SessionContext
from metier.session.policy import proposals
from metier.session.visibility import By


def load(
    context: SessionContext,
    skill: Skill,
    *,
    by: By,
    arguments: str = "",
    parent: str | None = None,
    command: bool = False,
) -> Loaded:
    """Activate a skill that policy allows. `parent` is the skill that asks for it, `command` a user's slash command."""
    chain = context.loaded.chain(skill.name, parent)
    context.confirm_file(skill, by=by)
    offered = context.offered()
    loaded = context.reader.skill(skill, offered, arguments, command)
    context.loaded.follow(chain)
    text = loaded.text.encode()
    rendered = digest_of(text)
    known = context.loaded.at(skill.path)
    if known is not None and known.rendered == rendered and context.profile.load.reload == "remind":
        reminder = activation.reminder(skill.name, known.ref, offered)
        loaded = replace(loaded, text=reminder, body="", already_loaded=True, ref=known.ref, truncated=False)
        text = reminder.encode()
        rendered = digest_of(text)
    else:
        loaded = replace(loaded, ref=_keep(context, loaded, rendered, arguments))
    context.loaded.activate(skill.name)
    _record(context, loaded, {rendered: text}, arguments, by, parent)
    _consider_overrides(context, skill)
    if context.profile.policy.enforce_hints:
        context.policy.open_window(skill)
    return loaded


def preload(context: SessionContext, skill: Skill) -> Loaded:
    """Read a skill that stands in the system prompt from the first request on, and so need not be loaded again."""
    context.confirm_file(skill, by="user")
    loaded = context.reader.skill(skill, context.offered())
    text = loaded.text.encode()
    rendered = digest_of(text)
    context.recorder.note(artifacts={rendered: text})
    return replace(loaded, ref=_keep(context, loaded, rendered, ""))


def preloadable(context: SessionContext, name: str) -> Skill:
    """A skill to preload. Hidden ones can be preloaded, too; for an unknown one the error has the names."""
    catalog = context.skills.catalog
    try:
        skill = catalog.find(name)
    except SkillNotFound as error:
        known = f"known: {', '.join(catalog.by_name)}"
        raise SkillNotFound(name, list(catalog.by_name), error.close, known) from error
    context.refuse_denied(skill)
    if not skill.trusted:
        raise PolicyDenied("skill_load", name, "its project is not trusted; `metier trust` trusts it")
    return skill


def _keep(context: SessionContext, loaded: Loaded, rendered: str, arguments: str) -> str:
    return context.loaded.keep(
        loaded.skill, digest=loaded.digest, rendered=rendered, text=loaded.text, arguments=arguments
    )


def _record(
    context: SessionContext, loaded: Loaded, text: Mapping[str, bytes], arguments: str, by: By, parent: str | None
) -> None:
    """Record a load; `text` is what the model gets, by its digest."""
    skill, policy = loaded.skill, context.policy
    record = SkillLoaded(
        name=skill.name,
        path=skill.path,
        digest=loaded.digest,
        frontmatter=loaded.frontmatter,
        directory=skill.dir,
        output=next(iter(text)),
        files=loaded.files,
        files_truncated=loaded.files_truncated,
        size=loaded.size,
        already_loaded=loaded.already_loaded,
        truncated=loaded.truncated,
        warnings=loaded.warnings,
    )
    invoked = SkillInvoked(
        name=skill.name,
        mode="manual" if by == "user" else "auto",
        args=policy.redact(arguments) or None,
        effective_allowed_tools=policy.effective_tools(skill) if context.profile.policy.enforce_hints else None,
        parent=policy.redact(parent or "") or None,
    )
    notes = context.reader.warnings(skill, loaded.warnings)
    context.recorder.note(record, invoked, *notes, artifacts=text)


def _consider_overrides(context: SessionContext, skill: Skill) -> None:
    """Offer to policy what a skill proposes (a model, tool defaults, a scope); both answers are recorded."""
    for key, value in proposals(skill.frontmatter):
        decision = context.policy.decide(Request("override", skill.name, key))
        granted = decision.verdict == "allow"
        if granted:
            context.overrides[key] = value
        context.recorder.note(OverrideProposed(skill.name, key, value, granted, decision.why))
