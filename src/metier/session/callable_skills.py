"""What a user's message may call in a session: the skills of the catalog that a user may call, by name and by path."""

import functools
import os

from metier.errors import AmbiguousSkill, SkillNotFound
from metier.model import Skill
from metier.results import AmbiguousMention
from metier.session import mentions
from metier.session.context import SessionContext


def mentioned(context: SessionContext, message: str) -> mentions.Mention:
    """The skills that a message calls. Before version 4 of the record, a path in it was text."""
    at = _Places(context).find if context.version > 3 else mentions.nowhere
    known = context.skills.catalog.by_name
    return mentions.find(message, context.profile, known, functools.partial(_named, context), at)


def choices(context: SessionContext, mention: mentions.Mention) -> tuple[AmbiguousMention, ...]:
    """The names in a message that several skills bear, with these skills."""
    by_name = context.skills.catalog.by_name
    return tuple(
        AmbiguousMention(name, tuple(skill for skill in by_name[name] if skill.path in paths))
        for name, paths in mention.ambiguous.items()
    )


def _named(context: SessionContext, name: str) -> Skill:
    """The skill that a user means by a name. Raises `AmbiguousSkill` where it may be any of several."""
    catalog, may_call = context.skills.catalog, context.visibility.callable_by_user
    try:
        skill = catalog.find(name)
    except AmbiguousSkill:
        if context.version < 4:
            raise
        bearers = [one for one in catalog.by_name[name] if may_call(one)]
        if len(bearers) != 1:
            raise AmbiguousSkill(name, [one.path for one in bearers]) if bearers else SkillNotFound(name) from None
        skill = bearers[0]
    if not may_call(skill):
        raise SkillNotFound(name)
    return skill


class _Places:
    """The skills by the paths that a message may have: absolute, from the working directory, or from `~`."""

    def __init__(self, context: SessionContext) -> None:
        self._context, self._known = context, dict[str, Skill]()

    def find(self, path: str) -> Skill | None:
        catalog = self._context.skills.catalog
        if not self._known:
            for skill in (*(entry.skill for entry in catalog.shadowed), *catalog.skills):
                self._known |= dict.fromkeys((skill.real_path, skill.folder, skill.dir, skill.path), skill)
        whole = os.path.join(catalog.place.home, path[2:]) if path.startswith("~/") else path
        skill = self._known.get(os.path.normpath(os.path.join(catalog.place.cwd, whole)))
        return skill if skill is not None and self._context.visibility.callable_by_user(skill) else None
