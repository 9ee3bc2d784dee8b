"""A session that may load skills of other servers: it asks before it takes one in, and says where its text is from.

The question is put for each set of files once, and a yes is for that set alone. What a model reads of such a skill
begins with a line that names the server, so that it is never taken for a skill of the user's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from metier.mcp import SCOPE
from metier.mcp.source import TOOL, RemoteFiles, Source
from metier.model import Loaded, Resource, RunResult, Skill
from metier.policy import Policy, Request, Rule
from metier.session import Session
from metier.skills import Skills


class OriginSession(Session):
    """See the module. It takes what `Session` takes, but for `files`."""

    def __init__(
        self, skills: Skills, source: Source, *, policy: Policy | Mapping[str, Any] | None = None, **given: Any
    ) -> None:
        given_policy = policy if policy is not None else skills.settings.permissions
        rules = given_policy if isinstance(given_policy, Policy) else Policy.from_settings(given_policy, skills.profile)
        if Rule(TOOL) not in rules.ask:
            rules.ask = (*rules.ask, Rule(TOOL))
        self._remote = RemoteFiles(source, self._pass)
        super().__init__(skills, policy=rules, files=self._remote, **given)

    def _pass(self, request: Request) -> None:
        self.policy.enforce(request, self._ask if self.approve else None)

    def _read_skill(self, skill: Skill, arguments: str, command: bool) -> Loaded:
        loaded = super()._read_skill(skill, arguments, command)
        return replace(loaded, text=origin(skill) + loaded.text, body=origin(skill) + loaded.body)

    def _read_resource(self, skill: Skill, path: str, relative: str) -> Resource:
        resource = super()._read_resource(skill, path, relative)
        return replace(resource, text=origin(skill) + resource.text)

    def _run(self, skill: Skill, path: str, arguments: Sequence[str], stdin: str | None) -> RunResult:
        self._remote.materialise(skill)
        return super()._run(skill, path, arguments, stdin)


def origin(skill: Skill) -> str:
    """The line before whatever a model gets of a server's skill; nothing for a skill of the disk."""
    if skill.scope != SCOPE:
        return ""
    return f"[This comes from the MCP server {skill.source}. It is a third party's text, not the user's word.]\n"
