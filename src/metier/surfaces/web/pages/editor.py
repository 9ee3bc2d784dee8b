"""The editor of skills: new skills, their files with live diagnostics and previews, and the history of edits.

Each page is a form that works without scripts; they add diagnostics as one types. What may be changed is decided by
`metier.authoring.editing` and the policy, and every change passes the gate of the server, as all requests do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from metier.authoring.editing import draft, history
from metier.authoring.editing.history import EditHistory, Version
from metier.authoring.editing.new_skill import folder_for, new_skill
from metier.authoring.editing.removal import RemovedSkills
from metier.authoring.editing.skill_files import EditConflict, EditedText, EditRefused, SkillFolder
from metier.errors import ConfigError, MetierError, PolicyDenied, ResourceNotFound, SkillNotFound
from metier.hosts import profiles
from metier.policy.decide import Policy
from metier.policy.rules import EDIT
from metier.skills import Skills
from metier.surfaces.web.pages.overview import OverviewEntry, Overviews, key_of
from metier.surfaces.web.site import Form, Site, see_other
from metier.values.results import Request as PolicyRequest
from metier.values.skill import SKILL_FILE, Root

VERSIONS: Final = 30
"""Versions that the history shows."""
DIFF_LINES: Final = 400


@dataclass(frozen=True, slots=True)
class ShownVersion:
    """A version in the history, and how it differs from the one before it."""

    version: Version
    lines: Sequence[str]
    cut: bool
    is_current: bool


@dataclass(frozen=True)
class EditorPages:
    """The pages under `/edit`."""

    site: Site
    overviews: Overviews

    # --- new skills ---

    def new(self, request: Request) -> Response:
        return self._new(request, {}, "")

    def _new(self, request: Request, given: Form, wrong: str) -> Response:
        permit(self.site, "", SKILL_FILE)
        places = [(user, where) for user in (False, True) if (where := self._place(user=user))]
        return self.site.page(
            request,
            "edit/new.html",
            422 if wrong else 200,
            given={key: given.get(key, "") for key in ("name", "description", "place")},
            wrong=wrong,
            places=places,
        )

    def _place(self, *, user: bool) -> str:
        try:
            return folder_for(self.site.app.config, user=user)
        except ConfigError:
            return ""

    def create(self, request: Request, given: Form) -> Response:
        name = given.get("name", "").strip()
        try:
            permit(self.site, name, SKILL_FILE)
            made = new_skill(
                self.site.app.config,
                name,
                given.get("description", "").strip() or None,
                user=given.get("place") == "user",
            )
        except ConfigError as error:
            return self._new(request, given, f"{error.message}{f'; {error.hint}' if error.hint else ''}")
        self.site.app.refresh()
        return see_other(f"/edit/{key_of(made[0])}")

    # --- one file ---

    def show(self, request: Request) -> Response:
        skill, entry = self._skill(request)
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
        return self._page(request, skill, entry, opened, problem=problem, said=said, fresh=fresh)

    def _page(
        self,
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
        if self.site.hide_paths(opened.text) != opened.text:
            # A page shows shorter paths, and saving them would change the file.
            opened = EditedText(opened.path, "", "")
            problem = "The file names folders of this machine, which this profile hides. Edit it on the machine."
        return self.site.page(
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
            notes=draft.review(skill, opened.path, opened.text, self.site.app.config.profile) if not problem else (),
            hosts=profiles.names(),
            crlf="\r" in opened.text,
        )

    def check(self, request: Request, given: Form) -> Response:
        """The diagnostics of a draft, as a part of the page."""
        skill, _ = self._skill(request)
        text = _lines(given.get("text", ""), "")
        notes = draft.review(skill, given.get("path", SKILL_FILE), text, self.site.app.config.profile)
        return self.site.page(request, "edit/notes.html", notes=notes)

    def preview(self, request: Request, given: Form) -> Response:
        """What one host would show of a draft, as a part of the page."""
        skill, _ = self._skill(request)
        host = given.get("host", "")
        if host not in profiles.names():
            raise SkillNotFound(host, why="there is no such profile")
        shown = draft.preview(skill, _lines(given.get("text", ""), ""), host)
        return self.site.page(request, "edit/preview.html", shown=shown)

    def save(self, request: Request, given: Form) -> Response:
        skill, entry = self._skill(request)
        path, digest = given.get("path", ""), given.get("digest", "")
        before = _current(skill, path)
        text = _lines(given.get("text", ""), before.text if before else "")
        saved = f"/edit/{entry.key}?{urlencode({'file': path, 'saved': 1})}"
        try:
            return self._write(request, skill, entry, EditedText(path, text, digest), saved)
        except EditRefused as refused:
            return self._page(request, skill, entry, EditedText(path, text, digest), problem=str(refused))

    def _write(
        self, request: Request, skill: SkillFolder, entry: OverviewEntry, edited: EditedText, then: str
    ) -> Response:
        """Save a text over the content that the page showed, or show what has changed meanwhile."""
        permit(self.site, entry.name, edited.path)
        before = _current(skill, edited.path)
        try:
            skill.save(edited.path, edited.text, edited.digest)
        except EditConflict as conflict:
            theirs = conflict.text.digest if conflict.text else ""
            return self._page(request, skill, entry, EditedText(edited.path, edited.text, theirs), conflict=conflict)
        self._history(entry).keep(edited.path, before.text if before else None, edited.text)
        self.site.app.refresh()
        return see_other(then)

    # --- the history ---

    def versions(self, request: Request) -> Response:
        skill, entry = self._skill(request)
        kept = self._history(entry)
        all_versions = kept.versions()
        files = {path: _current(skill, path) for path in {one.path for one in all_versions}}
        current = {path: file.digest if file else "" for path, file in files.items()}
        return self.site.page(
            request,
            "edit/history.html",
            key=entry.key,
            entry=entry,
            versions=list(_compared(kept, all_versions, current)),
            more=max(0, len(all_versions) - VERSIONS),
            digests=current,
            obstacle=skill.obstacle(),
        )

    def restore(self, request: Request, given: Form) -> Response:
        """Save an older version again, over the content that the page showed."""
        skill, entry = self._skill(request)
        version, text = self._history(entry).text(given.get("version", ""))
        edited = EditedText(version.path, text, given.get("digest", ""))
        return self._write(request, skill, entry, edited, f"/edit/{entry.key}/history")

    def _history(self, entry: OverviewEntry) -> EditHistory:
        return EditHistory(self.site.app.config.config_folder, entry.path)

    # --- removing ---

    def remove(self, request: Request, given: Form) -> Response:
        skill, entry = self._skill(request)
        permit(self.site, entry.name, SKILL_FILE)
        removed = RemovedSkills(self.site.app.config.config_folder).remove(skill)
        self.site.app.refresh()
        return see_other(f"/skills?{urlencode({'removed': removed.id})}")

    def put_back(self, request: Request, given: Form) -> Response:
        permit(self.site, "", SKILL_FILE)
        found = RemovedSkills(self.site.app.config.config_folder).restore(given.get("id", ""))
        self.site.app.refresh()
        return see_other(f"/skills?{urlencode({'q': found.name})}")

    # --- what is edited ---

    def _skill(self, request: Request) -> tuple[SkillFolder, OverviewEntry]:
        skills = self.site.skills()
        entry = self.overviews.of(skills).by_key.get(request.path_params["key"])
        if entry is None:
            raise SkillNotFound(
                request.path_params["key"], why="the catalog has changed; open the list of skills again"
            )
        permit(self.site, entry.name, SKILL_FILE)
        return folder_of(entry, skills), entry


def folder_of(entry: OverviewEntry, skills: Skills) -> SkillFolder:
    """The folder of a skill in the catalog, also of one that is not valid."""
    if entry.skill is not None:
        return SkillFolder(entry.path, entry.skill.root, entry.skill.inner)
    return SkillFolder(entry.path, _root_of(entry.path, skills.roots))


def _root_of(path: str, roots: Sequence[Root]) -> Root | None:
    above = [root for root in roots if path.startswith(root.path.rstrip("/") + "/")]
    return max(above, key=lambda root: len(root.path), default=None)


def permit(site: Site, name: str, path: str) -> None:
    """Raise `PolicyDenied` if the host or policy does not let people change this skill. To ask for it is their yes."""
    if not site.app.config.profile.policy.edits:
        raise PolicyDenied(EDIT, name, f"the profile {site.app.config.profile.name} has no editor of skills")
    Policy.configured(site.app.config).enforce(PolicyRequest(EDIT, name, path), None, by="user")


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
            lines = _diff(lambda earlier=earlier, one=one: (kept.text(earlier.id)[1], kept.text(one.id)[1]), one.path)
        yield ShownVersion(one, lines[:DIFF_LINES], len(lines) > DIFF_LINES, current.get(one.path) == one.digest)


def _diff(texts: Callable[[], tuple[str, str]], path: str) -> list[str]:
    try:
        return list(history.diff(*texts(), path))
    except MetierError:
        return []
