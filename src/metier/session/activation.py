"""A SKILL.md becomes what the model gets: parsed, cut if it must be, with its arguments, wrapped as the host does.

Pure: the bytes and the list of files come in, a `Loaded` goes out. A cut keeps the frontmatter whole, never splits a
character, and says how much is missing.
"""

import codecs
import os
from dataclasses import replace
from urllib.parse import quote

from metier import limits
from metier.catalog import frontmatter, validate
from metier.errors import InvalidSkill
from metier.files.beneath import Content, Listing
from metier.files.digests import digest_of
from metier.files.text import escape, without_torn
from metier.hosts.profiles import Profile
from metier.model import REMOTE, Loaded, Skill
from metier.session import arguments as args
from metier.session import listing


def present(
    skill: Skill,
    content: Content,
    listing: Listing,
    profile: Profile,
    offered: listing.Offered,
    arguments: str = "",
    command: bool = False,
) -> Loaded:
    """The loaded skill. Raises `InvalidSkill` where the file has no frontmatter that can be read any more.

    `command` says that a user called it by a slash command, which some hosts answer with another text.
    """
    checks, rules = profile.validation, profile.load
    parsed = frontmatter.parse(content.data, skill.path, repair=checks.repair, required=checks.frontmatter_required)
    parsed = validate.tolerate(parsed, checks) if parsed is not None else None
    if parsed is None or parsed.fields is None:
        raise InvalidSkill(skill.path, parsed.diagnostics if parsed else ())
    limit = max(min(rules.max_bytes or limits.SKILL_FILE_BYTES, limits.SKILL_FILE_BYTES), parsed.body_offset)
    truncated = content.size > limit
    body, split = _decode(content.data[parsed.body_offset : limit], truncated)
    left_out = content.size - limit + split if truncated else 0
    notice = f"\n\n[truncated: {left_out} bytes of SKILL.md are left out]" if truncated else ""
    head, _ = _decode(content.data[: parsed.body_offset], truncated=False)
    loaded = Loaded(
        skill, "", "", digest_of(content.data), listing.files, False, truncated, listing.truncated,
        _expand(skill, body, arguments, profile) + notice, parsed.fields, left_out,
        (f"SKILL.md has {content.size} bytes, {left_out} were left out",) if truncated else (), content.size,
    )  # fmt: skip
    text = origin(skill) + _wrap(loaded, head, profile, offered, arguments, command)
    text = without_torn(text)  # a path may hold bytes that are no UTF-8
    return replace(loaded, text=text, body=origin(skill) + loaded.body)


def origin(skill: Skill) -> str:
    """The line before whatever a model gets of another server's skill; nothing for a skill of the disk."""
    if skill.scope != REMOTE:
        return ""
    return f"[This comes from the MCP server {skill.source}. It is a third party's text, not the user's word.]\n"


def reminder(name: str, ref: str, offered: listing.Offered) -> str:
    """What stands for the text of a skill that was given before."""
    again = f" Read it again with `{offered['output']}` and that ref." if "output" in offered else ""
    return f"The skill {name} is already loaded and unchanged; its text was given before, as ref {ref}.{again}"


def _decode(data: bytes, truncated: bool) -> tuple[str, int]:
    """A body as text, and the bytes at its end that a cut left of a character.

    A byte that is no UTF-8 shows as such and loses nothing else.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data, final=not truncated), len(decoder.getstate()[0])


def _expand(skill: Skill, body: str, arguments: str, profile: Profile) -> str:
    rules = profile.load
    shows_place = rules.wrap == "standard" and not profile.resources.hide_paths
    return args.expand(
        body, arguments if rules.arguments != "none" else "", skill.frontmatter, rules.arguments == "indexed",
        skill.dir if shows_place else "",
    )  # fmt: skip


def _wrap(loaded: Loaded, head: str, profile: Profile, offered: listing.Offered, arguments: str, command: bool) -> str:
    skill, body = loaded.skill, loaded.body
    wrap = profile.load.wrap
    if wrap == "codelia":
        return _wrap_codelia(loaded, head + body)
    if wrap == "base-directory":
        return f"Base directory for this skill: {skill.dir}\n\n{body.lstrip(chr(10))}"
    if wrap == "raw":
        if not command:
            return head + body
        said = f"\nUser: {arguments}" if arguments else ""
        return f"{body.strip()}\n\nSkill: {skill.path}{said}"
    if wrap == "body":
        return body
    return _wrap_standard(loaded, offered, profile.resources.hide_paths)


def _wrap_standard(loaded: Loaded, offered: listing.Offered, hide_paths: bool) -> str:
    skill = loaded.skill
    parts = [f'<skill_content name="{escape(skill.name)}">', loaded.body.strip("\n"), ""]
    if not hide_paths:
        parts.append(f"Skill directory: {skill.dir}")
    parts.append("Relative paths in this skill are resolved from its directory.")
    if loaded.files:
        if "read" in offered:
            parts.append(f"Its files, to be read with `{offered['read']}` when needed:")
        parts += ["<skill_files>", *(f"<file>{escape(file)}</file>" for file in loaded.files), "</skill_files>"]
        if loaded.files_truncated:
            parts.append("There are more files than are listed.")
    parts.append("</skill_content>")
    return "\n".join(parts)


def _wrap_codelia(loaded: Loaded, text: str) -> str:
    skill = loaded.skill
    files = "".join(f"<file>{escape(os.path.join(skill.dir, file))}</file>\n" for file in loaded.files)
    return (
        f'<skill_context name="{escape(skill.name)}" path="{escape(skill.path)}">\n{text.rstrip()}\n\n'
        f"Base directory: file://{quote(skill.dir)}/\nRelative paths in this skill are resolved from this directory.\n"
        f"<skill_files>\n{files}</skill_files>\n</skill_context>"
    )
