"""A SKILL.md becomes what the model gets: parsed, cut if it must be, with its arguments, wrapped as the host does.

Pure: the bytes and the list of files come in, and a `Loaded` comes out. A cut keeps the frontmatter whole, never splits
a character, and says how much is missing.
"""

import os
from typing import TYPE_CHECKING

from metier import limits
from metier.catalog import validate
from metier.errors import InvalidSkill
from metier.files.beneath import Content, Listing
from metier.files.digests import digest_of
from metier.files.text import from_utf8, from_utf8_part, without_torn
from metier.hosts import formats
from metier.hosts.formats import Activation, Offered
from metier.hosts.schema import Profile
from metier.session import arguments as placeholders
from metier.values.results import Loaded
from metier.values.skill import REMOTE, SKILL_FILE, Skill
from metier.values.value import Value, replace

if TYPE_CHECKING:
    from metier.catalog.frontmatter import Parsed


class SkillFile(Value, kw_only=True):
    """A skill with the bytes of its SKILL.md and the list of its other files."""

    skill: Skill
    content: Content
    listing: Listing


def present(
    file: SkillFile,
    profile: Profile,
    offered: Offered,
    arguments: str = "",
    command: bool = False,
) -> Loaded:
    """The loaded skill. Raises `InvalidSkill` where the file is no valid skill any more.

    `command` says that a user called the skill by a slash command, which some hosts answer with another text.
    """
    skill, content, checks = file.skill, file.content, profile.validation
    parsed = validate.parse(content.data, skill.path, checks)
    parsed = validate.tolerate(parsed, checks) if parsed is not None else None
    if parsed is None or parsed.fields is None:
        raise InvalidSkill(skill.path, parsed.diagnostics if parsed else ())
    skill = _as_read(skill, content, _check(skill, parsed, profile))
    limit = max(min(profile.load.max_bytes or limits.LOADED_BYTES, limits.SKILL_FILE_BYTES), parsed.body_offset)
    truncated = content.size > limit
    shown = content.data[parsed.body_offset : limit]
    body, split = from_utf8_part(shown) if truncated else (from_utf8(shown), 0)
    left_out = content.size - limit + split if truncated else 0
    notice = ""
    if truncated:
        notice = cut_notice(SKILL_FILE, left_out, content.size, _way_to_the_rest(profile, offered))
    loaded = Loaded(
        skill=skill,
        text="",
        ref="",
        digest=digest_of(content.data),
        files=file.listing.files,
        already_loaded=False,
        truncated=truncated,
        files_truncated=file.listing.truncated,
        body=_expand(skill, body, arguments, profile) + notice,
        frontmatter=parsed.fields,
        left_out=left_out,
        warnings=(f"SKILL.md has {content.size} bytes, {left_out} were left out",) if truncated else (),
        size=content.size,
        files_left_out=file.listing.left_out,
    )
    whole = Activation(
        loaded=loaded,
        head=from_utf8(content.data[: parsed.body_offset]),
        profile=profile,
        offered=offered,
        arguments=arguments,
        command=command,
    )
    unlisted = replace(whole, loaded=replace(loaded, files=(), files_truncated=False, files_left_out=0))
    return replace(
        loaded,
        text=_wrapped(whole),
        body=origin(skill) + loaded.body,
        body_digest=digest_of(_wrapped(unlisted).encode()),
    )


def _wrapped(activation: Activation) -> str:
    """The text for the model. A path in it may hold bytes that are not UTF-8."""
    text = formats.wrapper(activation.profile).wrap(activation)
    return without_torn(origin(activation.loaded.skill) + text)


def cut_notice(path: str, left_out: int, size: int, way: str) -> str:
    """What stands at the end of a text that was cut: how much is missing, of how much, and how to get it."""
    return f"\n\n[truncated: {left_out} bytes of {path} are left out of {size}; {way}]"


def raise_limit(setting: str) -> str:
    """The way to the rest that always exists: a person changes a setting."""
    return f"the user can raise {setting} in ~/.config/metier/config.toml"


def _way_to_the_rest(profile: Profile, offered: Offered) -> str:
    """How a model gets the rest of a SKILL.md: with its tool for files, unless that gives no more than it has."""
    if profile.load.max_bytes or "read" not in offered or not profile.tools.load:
        return raise_limit("load.max_bytes")
    size = min(profile.resources.max_bytes or limits.RESOURCE_BYTES, limits.RESOURCE_BYTES)
    return f"`{offered['read']}` with the path SKILL.md gives its first {size:,} bytes"


def _check(skill: Skill, parsed: "Parsed", profile: Profile) -> validate.Validation:
    """What a scan of the same bytes would find. Raises `InvalidSkill` for what it would refuse."""
    folder = skill.name if skill.scope == REMOTE else os.path.basename(skill.dir)
    described = all(root.require_description for root in profile.roots)
    found = validate.check(parsed, folder, profile.validation, skill.path, require_description=described)
    if not found.valid:
        raise InvalidSkill(skill.path, [one for one in found.diagnostics if one.severity == "error"])
    return found


def _as_read(skill: Skill, content: Content, found: validate.Validation) -> Skill:
    """The skill as a scan of these bytes would describe it: the file may have been edited since the catalog was built.

    Its name stays the one that it was asked for by. Another server's skill is as its server lists it.
    """
    if skill.scope == REMOTE:
        return skill
    return replace(
        skill,
        description=found.description,
        frontmatter=found.fields,
        mtime_ns=content.mtime_ns,
        size=content.size,
    )


def origin(skill: Skill) -> str:
    """The line before whatever a model gets of another server's skill; nothing for a skill on this disk."""
    if skill.scope != REMOTE:
        return ""
    return f"[This comes from the MCP server {skill.source}. It is a third party's text, not the user's word.]\n"


def reminder(name: str, ref: str, offered: Offered) -> str:
    """What the model gets instead of the text of a skill that was given before."""
    again = f", as ref {ref}. Read it again with `{offered['output']}` and that ref" if "output" in offered else ""
    return f"The skill {name} is already loaded and unchanged; its text was given before{again}."


def _expand(skill: Skill, body: str, arguments: str, profile: Profile) -> str:
    rules = profile.load
    fills = formats.wrapper(profile).fills_directory and not profile.resources.hide_paths
    return placeholders.expand(
        body,
        arguments if rules.arguments != "none" else "",
        skill.frontmatter,
        rules.arguments == "indexed",
        skill.dir if fills else "",
        append=rules.arguments == "appended",
    )
