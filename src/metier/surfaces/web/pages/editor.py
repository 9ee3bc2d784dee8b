"""The editor of skills: new and imported ones, files with live diagnostics and previews, and the history of edits.

Each page is a form that works without scripts; they add diagnostics as one types. What may be changed is decided by
`metier.authoring.editing` and the policy, and every change passes the gate of the server, as all requests do.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from metier.authoring.editing import draft, history
from metier.authoring.editing.history import EditHistory, Version
from metier.authoring.editing.new_skill import folder_for, new_skill
from metier.authoring.editing.removal import RemovedSkills
from metier.authoring.editing.skill_files import EditConflict, EditedText, EditRefused, SkillFolder
from metier.errors import ConfigError, InvalidSkill, MetierError, PolicyDenied, ResourceNotFound, SkillNotFound
from metier.hosts import profiles
from metier.policy.rules import EDIT
from metier.skills import Skills
from metier.sources.install import Installer, InstallRequest, Offer
from metier.surfaces.web.overview import OverviewEntry, key_of
from metier.surfaces.web.site import Form, Site, see_other
from metier.values.results import Request as PolicyRequest
from metier.values.skill import SKILL_FILE

VERSIONS: Final = 30
"""Versions that the history shows."""
DIFF_LINES: Final = 400
_NOTHING: Final[Form] = {}
NAME_CHARACTERS: Final = 300
"""Characters of the name and the source of an imported skill."""


@dataclass(frozen=True, slots=True)
class ShownVersion:
    """A version in the history, and how it differs from the one before it."""

    version: Version
    lines: Sequence[str]
    cut: bool
    is_current: bool


# --- new skills ---


def new(site: Site, request: Request, given: Form = _NOTHING, wrong: str = "") -> Response:
    permit(site, "", SKILL_FILE)
    places = [(user, where) for user in (False, True) if (where := _place(site, user=user))]
    return site.page(
        request,
        "edit/new.html",
        422 if wrong else 200,
        given={key: given.get(key, "") for key in ("name", "description", "place")},
        wrong=wrong,
        places=places,
    )


def _place(site: Site, *, user: bool) -> str:
    try:
        return folder_for(site.app.config, user=user)
    except ConfigError:
        return ""


def create(site: Site, request: Request, given: Form) -> Response:
    name = given.get("name", "").strip()
    try:
        permit(site, name, SKILL_FILE)
        made = new_skill(
            site.app.config,
            name,
            given.get("description", "").strip() or None,
            user=given.get("place") == "user",
        )
    except ConfigError as error:
        return new(site, request, given, f"{error.message}{f'; {error.hint}' if error.hint else ''}")
    site.app.refresh()
    return see_other(f"/edit/{key_of(made[0])}")


# --- importing ---
# The rules are those of `metier install`: policy decides about the network, and the archive is checked in memory. The
# second request has the digest of what was shown, so nothing else is installed.


async def offer(site: Site, request: Request) -> Response:
    try:
        body = await request.body()
    except ClientDisconnect:
        return Response(status_code=400)
    return await run_in_threadpool(_offer, site, request, body)


def _offer(site: Site, request: Request, body: bytes) -> Response:
    given = {key: request.query_params.get(key, "").strip()[:NAME_CHARACTERS] for key in ("source", "name", "digest")}
    permit(site, given["name"], SKILL_FILE)
    asked: list[PolicyRequest] = []

    def approve(question: PolicyRequest) -> bool:
        asked.append(question)
        return "approved" in request.query_params

    wanted = InstallRequest(
        source=given["source"] if not body else f"upload:{given['source'].replace('/', '_') or 'archive'}",
        name=given["name"],
        project="project" in request.query_params,
        replace=True,
        upload=body or None,
    )
    installer = Installer(site.app.config, site.app.store, approve=approve, policy=site.app.policy())
    offer: Offer | None = None
    problem, problems = "", list[str]()
    try:
        if given["digest"]:
            offer = installer.install(wanted, lambda found: found.tree == given["digest"])
            site.app.refresh()
        else:
            offer = installer.preview(wanted)
    except InvalidSkill as error:
        problem, problems = "It is not a valid skill.", [one.message for one in error.diagnostics]
    except MetierError as error:
        problem = str(error)
    question = asked[0].path if asked and offer is None and "approved" not in request.query_params else ""
    return site.page(
        request,
        "edit/offer.html",
        200 if offer is not None or question else 422,
        offer=offer,
        installed=bool(given["digest"]) and offer is not None,
        problem="" if question else problem,
        problems=problems,
        question=question,
    )


# --- one file ---


def show(site: Site, request: Request) -> Response:
    skill, entry = _skill(site, request)
    path = request.query_params.get("file", "") or SKILL_FILE
    fresh = "new" in request.query_params
    problem, opened = "", EditedText(path, "", "")
    try:
        opened = skill.read(path)
        fresh = False
    except ResourceNotFound as error:
        if not fresh:
            problem = str(error)
    except MetierError as error:
        problem = str(error)
    said = "Saved." if "saved" in request.query_params else ""
    return _page(site, request, skill, entry, opened, problem=problem, said=said, fresh=fresh)


def _page(
    site: Site,
    request: Request,
    skill: SkillFolder,
    entry: OverviewEntry,
    opened: EditedText,
    *,
    problem: str = "",
    said: str = "",
    fresh: bool = False,
    conflict: EditConflict | None = None,
) -> Response:
    theirs = conflict.text if conflict is not None else None
    obstacle = skill.obstacle()
    if site.hide_paths(opened.text) != opened.text:
        # A page shows shorter paths, and saving them would change the file.
        opened = EditedText(opened.path, "", "")
        problem = "The file names folders of this machine, which this profile hides. Edit it on the machine."
    return site.page(
        request,
        "edit/index.html",
        409 if conflict is not None else 422 if problem and not obstacle else 200,
        key=entry.key,
        entry=entry,
        opened=opened,
        obstacle=obstacle,
        problem=problem,
        said=said,
        fresh=fresh,
        conflict=str(conflict) if conflict is not None else "",
        theirs=list(history.diff(theirs.text, opened.text, opened.path))[:DIFF_LINES] if theirs else (),
        files=skill.files(),
        notes=draft.review(skill, opened.path, opened.text, site.app.config.profile) if not problem else (),
        hosts=profiles.names(),
        crlf="\r" in opened.text,
    )


def check(site: Site, request: Request, given: Form) -> Response:
    """The diagnostics of a draft, as a part of the page."""
    skill, _ = _skill(site, request)
    text = _lines(given.get("text", ""), "")
    notes = draft.review(skill, given.get("path", SKILL_FILE), text, site.app.config.profile)
    return site.page(request, "edit/notes.html", notes=notes)


def preview(site: Site, request: Request, given: Form) -> Response:
    """What one host would show of a draft, as a part of the page."""
    skill, _ = _skill(site, request)
    host = given.get("host", "")
    if host not in profiles.names():
        raise SkillNotFound(host, why="there is no such profile")
    shown = draft.preview(skill, _lines(given.get("text", ""), ""), host)
    return site.page(request, "edit/preview.html", shown=shown)


def save(site: Site, request: Request, given: Form) -> Response:
    skill, entry = _skill(site, request)
    path, digest = given.get("path", ""), given.get("digest", "")
    before = _current(skill, path)
    text = _lines(given.get("text", ""), before.text if before else "")
    saved = f"/edit/{entry.key}?{urlencode({'file': path, 'saved': 1})}"
    try:
        return _write(site, request, skill, entry, EditedText(path, text, digest), saved)
    except EditRefused as refused:
        return _page(site, request, skill, entry, EditedText(path, text, digest), problem=str(refused))


def _write(
    site: Site, request: Request, skill: SkillFolder, entry: OverviewEntry, edited: EditedText, then: str
) -> Response:
    """Save a text over the content that the page showed, or show what has changed meanwhile."""
    permit(site, entry.name, edited.path)
    before = _current(skill, edited.path)
    try:
        skill.save(edited.path, edited.text, edited.digest)
    except EditConflict as conflict:
        theirs = conflict.text.digest if conflict.text else ""
        return _page(site, request, skill, entry, EditedText(edited.path, edited.text, theirs), conflict=conflict)
    _history(site, entry).keep(edited.path, before.text if before else None, edited.text)
    site.app.refresh()
    return see_other(then)


# --- the history ---


def versions(site: Site, request: Request) -> Response:
    skill, entry = _skill(site, request)
    kept = _history(site, entry)
    all_versions = kept.versions()
    files = {path: _current(skill, path) for path in {one.path for one in all_versions}}
    current = {path: file.digest if file else "" for path, file in files.items()}
    return site.page(
        request,
        "edit/history.html",
        key=entry.key,
        entry=entry,
        versions=list(_compared(kept, all_versions, current)),
        more=max(0, len(all_versions) - VERSIONS),
        digests=current,
        obstacle=skill.obstacle(),
    )


def restore(site: Site, request: Request, given: Form) -> Response:
    """Save an older version again, over the content that the page showed."""
    skill, entry = _skill(site, request)
    version, text = _history(site, entry).text(given.get("version", ""))
    edited = EditedText(version.path, text, given.get("digest", ""))
    return _write(site, request, skill, entry, edited, f"/edit/{entry.key}/history")


def _history(site: Site, entry: OverviewEntry) -> EditHistory:
    return EditHistory(site.app.config.config_folder, entry.path)


# --- removing ---


def remove(site: Site, request: Request, given: Form) -> Response:
    skill, entry = _skill(site, request)
    permit(site, entry.name, SKILL_FILE)
    removed = RemovedSkills(site.app.config.config_folder).remove(skill)
    site.app.refresh()
    return see_other(f"/skills?{urlencode({'removed': removed.id})}")


def put_back(site: Site, request: Request, given: Form) -> Response:
    permit(site, "", SKILL_FILE)
    found = RemovedSkills(site.app.config.config_folder).restore(given.get("id", ""))
    site.app.refresh()
    return see_other(f"/skills?{urlencode({'q': found.name})}")


# --- what is edited ---


def _skill(site: Site, request: Request) -> tuple[SkillFolder, OverviewEntry]:
    skills = site.skills()
    entry = site.overviews.of(skills).by_key.get(request.path_params["key"])
    if entry is None:
        raise SkillNotFound(request.path_params["key"], why="the catalog has changed; open the list of skills again")
    permit(site, entry.name, SKILL_FILE)
    return folder_of(entry, skills), entry


def folder_of(entry: OverviewEntry, skills: Skills) -> SkillFolder:
    """The folder of a skill in the catalog, also of one that is not valid."""
    if entry.skill is not None:
        return SkillFolder(entry.path, entry.skill.root, entry.skill.inner)
    above = [root for root in skills.roots if entry.path.startswith(root.path.rstrip("/") + "/")]
    return SkillFolder(entry.path, max(above, key=lambda root: len(root.path), default=None))


def permit(site: Site, name: str, path: str) -> None:
    """Raise `PolicyDenied` if the host or policy does not let people change this skill. To ask for it is their yes."""
    if not site.app.config.profile.policy.edits:
        raise PolicyDenied(EDIT, name, f"the profile {site.app.config.profile.name} has no editor of skills")
    site.app.policy().enforce(PolicyRequest(EDIT, name, path), None, by="user")


def _current(skill: SkillFolder, path: str) -> EditedText | None:
    try:
        return skill.read(path)
    except MetierError:
        return None


def _lines(text: str, before: str) -> str:
    """The text of a form with the line ends of the file: browsers send all of them as CRLF."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain.replace("\n", "\r\n") if before.count("\r\n") > before.count("\n") / 2 else plain


def _compared(kept: EditHistory, versions: Sequence[Version], current: dict[str, str]) -> Iterator[ShownVersion]:
    for number, one in enumerate(versions[:VERSIONS]):
        earlier = next((other for other in versions[number + 1 :] if other.path == one.path), None)
        lines: list[str] = []
        if earlier is not None:
            with contextlib.suppress(MetierError):  # the text of a version is gone
                lines = list(history.diff(kept.text(earlier.id)[1], kept.text(one.id)[1], one.path))
        yield ShownVersion(one, lines[:DIFF_LINES], len(lines) > DIFF_LINES, current.get(one.path) == one.digest)
