"""The catalog pages: the list of skills with search and switches, and the page of one skill.

They show skills and change how they are offered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from metier import limits
from metier.authoring import check
from metier.catalog import validate
from metier.errors import AmbiguousSkill, InvalidSkill, MetierError, SkillNotFound
from metier.files import beneath
from metier.files.shapes import is_items, is_table
from metier.files.source import DiskFiles
from metier.files.text import from_utf8
from metier.record.usage import MEASURES
from metier.skills import Skills
from metier.surfaces.web.markdown import MARKDOWN_CHARACTERS, to_html
from metier.surfaces.web.overview import KINDS, key_of, source_line
from metier.surfaces.web.pages import usage
from metier.surfaces.web.site import Form, Site, back_to, see_other, segment, whole
from metier.values.skill import MODES, SKILL_FILE, Skill, as_text

SHOWN_BYTES: Final = 400_000
"""Bytes of one file that are shown."""

MANY: Final = 1_000
"""With more skills than this, checking every host is slow, so it is done only on request."""


def listing(site: Site, request: Request) -> Response:
    given = {key: request.query_params.get(key, "") for key in ("q", "kind", "scope")}
    part = request.query_params.get("part") == "list"
    skills = site.skills()
    overview = site.overviews.of(skills)
    number = whole(request.query_params.get("page"), 1, 1)
    page = site.overviews.page(skills, given["q"], given["kind"], given["scope"], number)
    answer = site.page(
        request,
        "skills/list.html" if part else "skills/index.html",
        page=page,
        given=given,
        overview=overview,
        kinds=KINDS,
        source_line=source_line,
        counts=skills.counts,
        roots=skills.roots,
        # The page itself says that skills are switched off.
        general=[d for d in skills.warnings if d.code != "switched-off"],
    )
    if not part:  # so that the first search does not wait for it
        answer.background = BackgroundTask(site.overviews.warm, skills)
    return answer


def rescan(site: Site, request: Request, given: Form) -> Response:
    site.app.refresh()
    return see_other(back_to(given.get("back", ""), "/skills"))


def switch(site: Site, request: Request, given: Form) -> Response:
    """Pin a skill, hide it, or switch it on or off, and return to the page that asked."""
    key, mode = given.get("key", ""), given.get("mode", "")
    skills = site.skills()
    entry = site.overviews.of(skills).by_key.get(key)
    if entry is None or entry.skill is None or mode not in MODES:
        raise SkillNotFound(key, why="the catalog has changed; reload the page")
    skills.set_mode(entry.path, mode)
    return see_other(back_to(given.get("back", ""), "/skills"))


def skill(site: Site, request: Request) -> Response:
    skills = site.skills()
    name, key = request.path_params["name"], request.query_params.get("key", "")
    entry = site.overviews.of(skills).by_key.get(key)
    try:
        skill = skills.at(entry.path) if entry is not None else skills[name]
    except AmbiguousSkill:
        return see_other(f"/skills?{urlencode({'q': name})}")
    except InvalidSkill as error:
        return site.page(
            request,
            "skills/broken.html",
            422,
            name=name,
            path=error.path,
            diagnostics=error.diagnostics,
            source_line=source_line,
        )
    if request.query_params.get("part") == "hosts":
        return _hosts(site, request, skill)
    wanted = request.query_params.get("file", "")
    shadowed = next((entry for entry in skills.shadowed if entry.skill.path == skill.path), None)
    address = f"/skills/{segment(skill.name)}?" + (f"key={key}&" if entry is not None else "")
    return site.page(
        request,
        "skills/skill.html",
        skill=skill,
        key=key_of(skill.path),
        shadowed=shadowed,
        address=address,
        files=_files(skill),
        opened=_opened(skill, wanted) if wanted else None,
        body=_body(skill, skills, address) if not wanted else None,
        wanted=wanted,
        diagnostics=[d for d in skills.diagnostics if d.path == skill.path],
        source_line=source_line,
        uses=[one for one in usage.newest(site.app.store)[0] if skill.name in one.skills],
        measures=MEASURES,
        fields=_fields(skill),
        many=len(skills) > MANY,
    )


def _hosts(site: Site, request: Request, skill: Skill) -> Response:
    """How each host treats the skill. This part is loaded separately, because it reads the folders of all hosts."""
    place = site.app.config.place
    try:
        verdicts = check.verdicts(skill, cwd=place.cwd, home=place.home)
    except MetierError:
        verdicts = []
    return site.page(request, "skills/hosts.html", verdicts=verdicts)


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file on a page: its text, formatted if possible, or the reason why it is not shown."""

    text: str = ""
    html: str = ""
    size: int = 0
    truncated: bool = False
    problem: str = ""


def _body(skill: Skill, skills: Skills, address: str) -> ShownFile:
    """The instructions of a skill, without its frontmatter."""
    try:
        content = DiskFiles().skill_file(skill, SHOWN_BYTES)
    except MetierError as error:
        return ShownFile(problem=str(error))
    checks = skills.profile.validation
    parsed = validate.parse(content.data, skill.path, checks)
    text = from_utf8(content.data[parsed.body_offset if parsed else 0 :])
    cut = content.size > len(content.data)

    def link(url: str) -> str | None:
        relative = url.partition("#")[0].removeprefix("./")
        return f"{address}file={quote(relative)}" if relative and not relative.startswith(("/", "?")) else None

    html = to_html(text, link) if len(text) <= MARKDOWN_CHARACTERS else ""
    return ShownFile(text, html, content.size, cut)


def _opened(skill: Skill, path: str) -> ShownFile:
    try:
        relative = beneath.check_relative(path)
        files = DiskFiles()
        if relative == SKILL_FILE:
            content = files.skill_file(skill, SHOWN_BYTES)
        else:
            content = files.resource(skill, relative, SHOWN_BYTES)
        cut = content.size > len(content.data)
        return ShownFile(beneath.decode(content.data, relative, partial=cut), "", content.size, cut)
    except MetierError as error:
        return ShownFile(problem=str(error))


def _files(skill: Skill) -> Sequence[str]:
    try:
        listed = DiskFiles().listing(skill, limits.LISTED_FILES, limits.RESOURCE_BYTES).files
    except MetierError:
        return ()
    return (SKILL_FILE, *(file for file in listed if file != SKILL_FILE))


def _fields(skill: Skill) -> list[tuple[str, str]]:
    """The frontmatter as a flat list; nested values have dotted names."""
    shown = ((key, value) for key, value in skill.frontmatter.items() if key not in ("name", "description"))
    return [pair for key, value in shown for pair in _flat(key, value)]


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    if is_table(value) and value:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif is_items(value):
        yield name, ", ".join(str(item) for item in value)
    else:
        yield name, as_text(value) or ""
