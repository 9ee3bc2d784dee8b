"""Imports a skill that a person uploads or names: it is checked, shown, and installed when they say so.

The rules are those of `metier install`: policy decides about the network, and the archive is checked in memory. The
second request has the digest of what was shown, so nothing else is installed.
"""

from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from metier.errors import InvalidSkill, MetierError
from metier.sources.install import Installer, InstallRequest, Offer
from metier.surfaces.web.pages.editor import permit
from metier.surfaces.web.site import Site
from metier.values.results import Request as PolicyRequest
from metier.values.skill import SKILL_FILE

NAME_CHARACTERS: Final = 300


@dataclass(frozen=True)
class ImportPages:
    """The parts of `/edit/new` that import a skill."""

    site: Site

    async def offer(self, request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return Response(status_code=400)
        return await run_in_threadpool(self._offer, request, body)

    def _offer(self, request: Request, body: bytes) -> Response:
        given = {
            key: request.query_params.get(key, "").strip()[:NAME_CHARACTERS] for key in ("source", "name", "digest")
        }
        permit(self.site, given["name"], SKILL_FILE)
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
        installer = Installer(self.site.app.config, self.site.app.store, approve=approve)
        offer: Offer | None = None
        problem, problems = "", list[str]()
        try:
            if given["digest"]:
                offer = installer.install(wanted, lambda found: found.tree == given["digest"])
                self.site.app.refresh()
            else:
                offer = installer.preview(wanted)
        except InvalidSkill as error:
            problem, problems = "It is not a valid skill.", [one.message for one in error.diagnostics]
        except MetierError as error:
            problem = str(error)
        question = asked[0].path if asked and offer is None and "approved" not in request.query_params else ""
        return self.site.page(
            request,
            "edit/offer.html",
            200 if offer is not None or question else 422,
            offer=offer,
            installed=bool(given["digest"]) and offer is not None,
            problem="" if question else problem,
            problems=problems,
            question=question,
        )
