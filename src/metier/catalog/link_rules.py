"""Decides which symbolic links a search follows.

Links are followed as the profile says, but never out of a project that is not trusted, never to a folder that contains
the root, and never to the skills of another project: a link must not bring in what nobody chose.
"""

import os
from typing import Final, NamedTuple

from metier.hosts.profiles import Profile
from metier.hosts.roots import Place, in_project
from metier.values.skill import SKILL_FILE, Root

TRUST_OR_COPY: Final = "run `metier trust` if you trust the project, or replace the link by a copy"
_ONE_SKILL: Final = "link to the folder of one skill instead"


class LinkRefusal(NamedTuple):
    """Why a link is not followed: a stable word, the same as a sentence, and what to do about it."""

    reason: str
    detail: str
    hint: str = ""


class LinkRules:
    """The rules for the links below one root at a time; `enter` names the root."""

    def __init__(self, profile: Profile, place: Place, roots: tuple[Root, ...], *, trusted: bool) -> None:
        self._profile, self._place, self._trusted = profile, place, trusted
        self._project = os.path.realpath(place.project).rstrip("/")
        self._inside = [f"{os.path.realpath(place.project)}/"]
        if profile.discovery.file_links == "inside":
            self._inside += (f"{os.path.realpath(root.path)}/" for root in roots)
        self._root = ""
        self._confined = False

    def enter(self, root: Root, real: str) -> None:
        """Judge the links below this root from now on. `real` is its real path."""
        self._root = real.rstrip("/") + "/"
        # The links of a project that is not trusted must not leave the project.
        self._confined = not self._trusted and in_project(root.path, root, self._place)

    def in_root(self, real: str) -> bool:
        """Whether a real path is in the root, or is the root."""
        return f"{real}/".startswith(self._root)

    def leaves_project(self, real: str) -> bool:
        """Whether a real path is outside of the project, and the root must not lead there."""
        return self._confined and not f"{real}/".startswith(f"{self._project}/")

    def refuse_folder(self, link: str, real: str) -> LinkRefusal | None:
        """Why a link to a folder is not followed, or `None` if it is."""
        rule = self._profile.discovery.folder_links
        if rule == "never":
            return LinkRefusal("link", "linked folders are not followed")
        if rule == "inside" and not self._leads_inside(real):
            return LinkRefusal("outside", "the folder is a link that leads outside")
        around = real.rstrip("/") + "/"
        if around != self._root and self._root.startswith(around):
            return LinkRefusal("outside", "the folder contains the folder that is searched", _ONE_SKILL)
        if self.leaves_project(real):
            return LinkRefusal("outside", "the folder is a link that leaves the project", TRUST_OR_COPY)
        if self._is_elsewhere(real) and not os.path.isfile(f"{link}/{SKILL_FILE}"):
            return LinkRefusal("outside", "the folder has the skills of another project", _ONE_SKILL)
        return None

    def refuse_file(self, target: str, real_folder: str) -> LinkRefusal | None:
        """Why a SKILL.md that is a link is not followed to its target, or `None` if it is.

        The target must itself be named SKILL.md, so that a skill cannot show another file of the user's.
        """
        rule = self._profile.discovery.file_links
        if rule == "never":
            return LinkRefusal("link", "SKILL.md is a symbolic link")
        if rule == "inside" and not (target.startswith(real_folder + "/") or self._leads_inside(target)):
            return LinkRefusal("outside", "SKILL.md is a link that leads outside")
        if os.path.basename(target) != SKILL_FILE:
            return LinkRefusal("link", "SKILL.md is a link to a file of another name")
        if self.leaves_project(target):
            return LinkRefusal("outside", "SKILL.md is a link that leaves the project")
        return None

    def _is_elsewhere(self, real: str) -> bool:
        """Whether a real path is a folder in which this host looks for the skills of another project, or is in one."""
        own = {self._project, os.path.realpath(self._place.home)}
        for rules in self._profile.roots:
            before, found, _ = f"{real}/".partition(f"/{rules.path}/")
            if found and rules.at in ("ancestors", "project", "cwd") and before not in own:
                return not f"{before}/".startswith(f"{self._project}/")
        return False

    def _leads_inside(self, target: str) -> bool:
        return target.startswith(tuple(self._inside))
