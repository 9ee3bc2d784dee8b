"""A session that may load skills of other servers: it asks before it takes one in.

The question is put for each set of files once, and a yes is for that set alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from metier.mcp.source import RemoteFiles, Source
from metier.model import RunResult, Skill
from metier.session.policy import REMOTE_LOAD, Policy, Rule
from metier.session.session import Session
from metier.skills import Skills


class OriginSession(Session):
    """See the module. It takes what `Session` takes, but for `files`."""

    def __init__(
        self, skills: Skills, source: Source, *, policy: Policy | Mapping[str, Any] | None = None, **given: Any
    ) -> None:
        given_policy = policy if policy is not None else skills.settings.permissions
        rules = given_policy if isinstance(given_policy, Policy) else Policy.from_settings(given_policy, skills.profile)
        if Rule(REMOTE_LOAD) not in rules.ask:
            rules.ask = (*rules.ask, Rule(REMOTE_LOAD))
        self._remote = RemoteFiles(source, self.confirm)
        super().__init__(skills, policy=rules, files=self._remote, **given)

    def _run(self, skill: Skill, path: str, arguments: Sequence[str], stdin: str | None) -> RunResult:
        self._remote.materialise(skill)
        return super()._run(skill, path, arguments, stdin)
