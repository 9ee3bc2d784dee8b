"""The one place where a request about a skill is made, so that every request says which skill of that name it is."""

from typing import TYPE_CHECKING

from metier.files.text import storable_text
from metier.model import Skill
from metier.record.events import VERSION
from metier.results import Request

if TYPE_CHECKING:
    from metier.session.context import SessionContext
    from metier.session.scripts import Script


def skill_request(
    tool: str,
    skill: Skill,
    path: str = "",
    *,
    command: str = "",
    digest: str = "",
    detail: str = "",
    arguments: tuple[str, ...] = (),
    grants: tuple[str, ...] = (),
    project: str = "",
    hosts: tuple[str, ...] = (),
    given: tuple[str, ...] = (),
    wants: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    name: str = "",
    secrets: tuple[str, ...] = (),
    packages: str = "",
    version: int = VERSION,
) -> Request:
    """A request about a skill at its place. A replay of a record before version 3 has only the name, as then."""
    known = version > 2
    return Request(
        tool=tool,
        skill_name=skill.name,
        path=path,
        command=command,
        digest=digest,
        detail=detail,
        arguments=arguments if known else (),
        grants=grants if known else (),
        project=project if known else "",
        hosts=hosts,
        given=given,
        wants=wants,
        files=files,
        name=name,
        secrets=secrets,
        packages=packages,
        folder=storable_text(skill.folder) if known else "",
        scope=skill.scope if known else "",
        source=skill.source if known else "",
        foreign=known and skill.foreign,
    )


def script_request(context: "SessionContext", script: "Script", tool: str) -> Request:
    """A request about a script as it is, without what it is given: to run it, or a grant for it."""
    return skill_request(
        tool,
        script.skill,
        script.path,
        command=script.command,
        digest=script.tree,
        arguments=script.shown_arguments,
        version=context.version,
    )
