"""Judges the text of a skill that is being written, before it is saved.

The diagnostics are those of `metier validate --strict`. The preview is what a session under a host's profile would give
to a model: the draft is put into a folder of its own, and discovered, listed and loaded there by the code that does it
everywhere.
"""

import os
import tempfile
from collections.abc import Sequence
from typing import Final

from metier.authoring import lint as authoring
from metier.authoring.editing.skill_files import SkillFolder
from metier.authoring.lint import SkillText
from metier.catalog import validate
from metier.errors import MetierError
from metier.hosts.profiles import Profile
from metier.skills import Skills
from metier.values.skill import SKILL_FILE, Diagnostic
from metier.values.value import Value

_SEVERITIES: Final = ("error", "warning", "info")


def review(skill: SkillFolder, path: str, text: str, profile: Profile) -> list[Diagnostic]:
    """What is wrong in the draft of one file, in the order of its lines."""
    file = os.path.join(skill.folder, path)
    found: list[Diagnostic] = []
    data = text.encode(errors="replace")
    if path == SKILL_FILE:
        rules = validate.strict(profile)
        parsed = validate.parse(data, file, rules)
        if parsed is not None:
            found += validate.check(parsed, skill.name, rules, file).diagnostics
        body = validate.check_body(data, file)
        found += [body] if body is not None else []
    reviewed = authoring.review(skill.folder, [one.code for one in found], SkillText(path, text))
    found += [one for one in reviewed if one.path == file]
    return sorted(found, key=lambda one: (one.line, _SEVERITIES.index(one.severity)))


class HostPreview(Value):
    """What a host would show of a draft: the entry in its list of skills, and the text that a load returns."""

    profile: str
    listed: str
    loaded: str
    problem: str = ""
    """Why the host shows nothing."""


def preview(skill: SkillFolder, text: str, profile: str) -> HostPreview:
    """The draft of a SKILL.md in the eyes of one host. Its other files have their names, and no content."""
    with tempfile.TemporaryDirectory(prefix="metier-draft-") as place:
        folder = os.path.join(place, "skills", skill.name)
        _write(folder, text, skill.files())
        try:
            skills = Skills.discover(place, profile=profile, home=place, roots=[os.path.dirname(folder)])
            found = next((one for one in skills if one.path == os.path.join(folder, SKILL_FILE)), None)
            if found is None:
                errors = [one.message for one in skills.diagnostics if one.severity == "error"]
                return HostPreview(profile, "", "", next(iter(errors), "the host does not accept it as a skill"))
            listed = skills.prompt().text if found.visible else ""
            loaded = skills.session().load(path=found.path).text
        except MetierError as error:
            return HostPreview(profile, "", "", str(error))
    # The folder of the draft is gone. Where it was named, the skill's own folder belongs.
    own = skill.folder
    return HostPreview(profile, listed.replace(folder, own), loaded.replace(folder, own))


def _write(folder: str, text: str, files: Sequence[str]) -> None:
    for path in files:
        file = os.path.join(folder, path)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w", encoding="utf-8", errors="replace") as stream:
            stream.write(text if path == SKILL_FILE else "")
