"""Which skills a session sees, and how a name or a path finds one of them.

For a model, a skill that is hidden from it does not exist, whichever way it asks; a person also reaches what is hidden
from models. What is switched off, nobody reaches. The policy decides who sees what, and the profile decides when the
disk is scanned again.
"""

import shlex
from collections.abc import Collection, Container, Sequence
from typing import Protocol

from metier.catalog.build import Catalog
from metier.errors import AmbiguousSkill, SkillNotFound
from metier.hosts.schema import Profile
from metier.hosts.settings import Settings
from metier.policy.decide import By, Policy
from metier.policy.rules import RuleLists, skill_request
from metier.record.recorder import NamedCatalog, Recorder
from metier.record.state import LoadedSkill
from metier.session import mentions
from metier.values.results import SearchResult
from metier.values.skill import Changes, Skill


class SessionSkills(Protocol):
    """The skills of a session, as `metier.Skills` has them."""

    catalog: Catalog
    settings: Settings

    @property
    def profile(self) -> Profile: ...

    def refresh(self) -> Changes: ...

    def snapshot(self) -> bytes: ...

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        scope: str | None = None,
        among: Container[str] | None = None,
        context: str | None = None,
    ) -> SearchResult: ...

    def ranked(self, skills: Sequence[Skill], message: str | None, used: Sequence[str] = ()) -> list[Skill]: ...

    def fitting(self, message: str, among: Container[str], limit: int, least: float) -> list[Skill]: ...


class Visibility:
    """See the module. The recorder is told whenever the catalog may have changed."""

    def __init__(self, skills: SessionSkills, policy: Policy, only: Collection[str] | None, recorder: Recorder) -> None:
        self._skills, self._policy, self._recorder = skills, policy, recorder
        self.only = frozenset(only) if only is not None else None
        self._visible: tuple[Catalog, RuleLists, list[Skill]] | None = None

    def on(self, recorder: Recorder) -> "Visibility":
        """The same with another recorder."""
        view = Visibility(self._skills, self._policy, self.only, recorder)
        view._visible = self._visible
        return view

    def visible(self) -> list[Skill]:
        """The skills that the model may see, by modes, policy and the limits of this session."""
        catalog, answers = self._skills.catalog, self._policy.remembered.current()
        known = self._visible
        if known is None or known[0] is not catalog or known[1] is not answers:
            with self._policy.remembered.held():
                shown = self._shown_by_default if self._policy.never_denies_loads() else self.shows
                known = self._visible = (catalog, answers, [skill for skill in catalog.skills if shown(skill)])
        return known[2]

    def _shown_by_default(self, skill: Skill) -> bool:
        return skill.visible and self.within(skill.name)

    def findable(self) -> frozenset[str]:
        """The paths of the skills that a search of the model may find: what it may see, or may load by its path."""
        shadowed = () if self._skills.profile.resources.hide_paths else self._skills.catalog.shadowed
        hidden = (entry.skill for entry in shadowed if self.shows(entry.skill))
        return frozenset(skill.path for skill in (*self.visible(), *hidden))

    def shows(self, skill: Skill) -> bool:
        """Whether the model may see the skill."""
        if not self._shown_by_default(skill):
            return False
        if self._policy.never_denies_loads():
            return True
        return self._policy.decide(skill_request("skill_load", skill, skill.path)).verdict != "deny"

    def within(self, name: str) -> bool:
        """Whether the session is not limited to other skills."""
        return self.only is None or name in self.only

    def callable_by_user(self, skill: Skill) -> bool:
        """Whether a person may call the skill by name."""
        return skill.enabled and self._named_by_user(skill)

    def _named_by_user(self, skill: Skill) -> bool:
        return skill.user_invocable and self.within(skill.name)

    def refuse_off_in(self, message: str, called: Collection[Skill]) -> None:
        """Raise `SkillNotFound` where a message calls a skill that is switched off. In some hosts a path is text."""
        if all(skill.enabled for skill in self._skills.catalog.skills):
            return
        names = {skill.name for skill in called}
        for skill in mentions.mentioned(self._skills.catalog, self._named_by_user, message, by_path=False).skills:
            if skill.name not in names:
                self.refuse_off(skill)

    # --- the disk ---

    @property
    def rescans(self) -> bool:
        """Whether the host scans the disk before each operation."""
        rules = self._skills.profile
        return rules.catalog.refresh == "call" and rules.load.refresh_on_call

    def rescan(self) -> None:
        """Scan the disk before an operation, where the host does so on each call."""
        if self.rescans:
            self._skills.refresh()

    def notice(self) -> None:
        """Record the catalog, if it is a new one."""
        self._recorder.notice(self._skills.catalog, self._skills.snapshot)

    # --- names and paths ---

    def find(self, name: str | None, path: str | None, by: By) -> Skill:
        """The skill that is meant, and the catalog in the record.

        Raises `SkillNotFound`, `AmbiguousSkill`, or `InvalidSkill` where the skill is broken now.
        """
        before = self._recorder.named_catalog
        self.notice()
        try:
            return self._known(name, path, by, before)
        except SkillNotFound:
            if self._skills.profile.catalog.refresh not in ("stale", "call") or not self._skills.refresh():
                raise
            self.notice()
            return self._known(name, path, by, before)

    def _known(self, name: str | None, path: str | None, by: By, before: NamedCatalog) -> Skill:
        """The skill in the catalog as it is, or the error that says most about why it is not there."""
        try:
            return self._look_up(name, path, by)
        except SkillNotFound as error:
            self._refuse_broken(name, by, before)
            raise self._not_found(error, name, path) from error

    def _refuse_broken(self, name: str | None, by: By, before: NamedCatalog) -> None:
        """Raise what is wrong with a skill that the session knew by this name, if it is broken now.

        That says more than that it is gone, which is all that a catalog knows of a file whose name cannot be read.
        """
        known = self._recorder.restored(before) if name else None
        for skill in known.by_name.get(name or "", ()) if known is not None else ():
            if skill.path in self._skills.catalog.failed and (by == "user" or self.shows(skill)):
                self._skills.catalog.find_path(skill.path)
        for loaded in self._loaded(name, None):
            if loaded.path in self._skills.catalog.failed:
                self._skills.catalog.find_path(loaded.path)

    def _not_found(self, error: SkillNotFound, name: str | None, path: str | None) -> SkillNotFound:
        """The error, which says more of a skill that was loaded before: it was removed since."""
        catalog = self._skills.catalog
        listed = {skill.path for skill in (*catalog.skills, *(entry.skill for entry in catalog.shadowed))}
        listed.update(catalog.failed, (skipped.path for skipped in catalog.skipped))
        if all(loaded.path in listed for loaded in self._loaded(name, path)):
            return error
        return SkillNotFound(error.wanted, error.available, error.close, "it was removed", "removed")

    def _loaded(self, name: str | None, path: str | None) -> list[LoadedSkill]:
        """What the session loaded of this name or at this path."""
        return [one for one in self._recorder.state.loaded.values() if one.path == path or one.name == name]

    def _look_up(self, name: str | None, path: str | None, by: By) -> Skill:
        skill = self._skills.catalog.find_path(path) if path else self._named(name or "", by)
        if by == "model" and not self.shows(skill):
            why = "the path is not in the catalog" if path else ""
            raise SkillNotFound(path or name or "", [visible.name for visible in self.visible()], why=why)
        if not self.within(skill.name):
            raise SkillNotFound(skill.name, sorted(self.only or ()))
        self.refuse_off(skill)
        return skill

    def refuse_off(self, skill: Skill) -> None:
        """Raise `SkillNotFound` for a skill that is switched off, which nobody reaches before it is switched on."""
        if skill.enabled:
            return
        bearers = self._skills.catalog.by_name.get(skill.name, ())
        named = skill.name if len(bearers) == 1 and bearers[0] is skill else skill.path
        why = f"it is switched off; `{shlex.join(('metier', 'enable', named))}` switches it on"
        raise SkillNotFound(skill.name, why=why, reason="off")

    def _named(self, name: str, by: By) -> Skill:
        """The skill of a name. Where several have it, the model knows only of those that it may see."""
        bearers = self._skills.catalog.by_name.get(name, ())
        if by == "model" and len(bearers) > 1:
            seen = [skill for skill in bearers if self.shows(skill)]
            if len(seen) > 1:
                raise AmbiguousSkill(name, [skill.path for skill in seen])
            return (seen or bearers)[0]
        return self._skills.catalog.find(name)
