"""Everything that the operations of one session work with: the catalog, the policy, the files and the record.

A context belongs to one session. Operations are performed on it one at a time; only `ask` runs without the session's
lock, so that nobody waits while a person is asked. What the session knows is `state`, the fold of its events: an
operation changes it by noting an event, and in no other way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from metier.catalog.build import Catalog
from metier.errors import MetierError, PolicyDenied
from metier.files.source import Files, ScriptFiles
from metier.files.text import storable_text
from metier.model import SKILL_FILE, Role, Skill, wire_name
from metier.record.events import Event, PolicyAsked
from metier.record.recorder import Recorder
from metier.record.state import SessionState
from metier.record.writer import Overtaken
from metier.results import Request
from metier.sandbox import Runner
from metier.session import scripts, windows
from metier.session.dependencies import Plan
from metier.session.policy import NOBODY, By, Policy
from metier.session.reading import Reader
from metier.session.skill_request import skill_request
from metier.session.visibility import Visibility

if TYPE_CHECKING:
    from metier.hosts.schema import Profile
    from metier.skills import Skills

_RUN, _UNSANDBOXED = Request("skill_run"), Request("run_unsandboxed")
"""Requests for any script: what policy says of them decides whether a model has a tool to run one."""

Approve = Callable[[Request], "bool | str"]
"""Asks a person: `True` or `"once"`, `"always"`, anything else is a no."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person answered before an operation, and the scripts that the questions were about."""

    answers: Mapping[Request, str] = field(default_factory=dict[Request, str])
    scripts: dict[tuple[str, str, str], ScriptFiles] = field(default_factory=dict[tuple[str, str, str], ScriptFiles])
    """By the path and the folder of the skill and the path of the script. The operation runs these very bytes."""
    packages: dict[tuple[str, str, str], Plan] = field(default_factory=dict[tuple[str, str, str], Plan])
    """The packages of those scripts, in the versions that the questions showed."""


class Asks(Protocol):
    """An operation, as far as it has questions."""

    def requests(self, context: "SessionContext") -> Iterable[Request]: ...


@dataclass(slots=True, kw_only=True)
class SessionContext:
    """See the module."""

    id: str
    skills: "Skills"
    policy: Policy
    recorder: Recorder
    visibility: Visibility
    files: Files
    reader: Reader
    runner: Runner | None = None
    approve: Approve | None = None
    tools_enabled: bool = True
    has_read_tool: bool = True
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """What this process gave, by ref: a cache of artifacts, and all there is where policy keeps no artifacts."""
    asked: Asked = field(default_factory=Asked)
    folder: str | None = None
    """The folder in which scripts run instead of the working folder, where a person named one."""
    uploads: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of files that scripts of this session find in their current folder, by name."""
    wire: bool = False
    """Whether the operation names tools as they go over the wire; see `metier.model.wire_name`."""
    _catalog: Catalog | None = None
    """The catalog when the operation began."""
    _scopes: tuple[Catalog, Sequence[str]] | None = None

    @property
    def profile(self) -> "Profile":
        return self.skills.profile

    @property
    def state(self) -> SessionState:
        """What the session knows now."""
        return self.recorder.state

    @property
    def version(self) -> int:
        """The version of the record. A replay of an old one follows the rules of then."""
        return self.recorder.inputs.version

    @property
    def scopes(self) -> Sequence[str]:
        """The scopes of all folders that skills can come from."""
        catalog = self.skills.catalog
        if self._scopes is None or self._scopes[0] is not catalog:
            self._scopes = (catalog, sorted({root.scope for root in (*catalog.profile.roots, *catalog.roots)}))
        return self._scopes[1]

    def has_loaded(self, skill: Skill) -> bool:
        return storable_text(skill.path) in self.state.loaded

    def silent(self, asked: Asked, *, wire: bool) -> "SessionContext":
        """The same for what only shows something, and so leaves no trace, with these answers."""
        recorder = self.recorder.silent()
        visibility, reader = self.visibility.on(recorder), self.reader.on(recorder)
        return replace(self, recorder=recorder, visibility=visibility, reader=reader, asked=asked, wire=wire)

    # --- the catalog ---

    def begin(self) -> None:
        """Begin an operation on the catalog as it is now, under the policy as it is now."""
        self._catalog, self.wire = self.skills.catalog, False
        self.recorder.notice_policy(self.policy.as_dict())

    def check_catalog(self) -> None:
        """Have the operation decided anew where another thread replaced the catalog in the middle of it."""
        current = self.skills.catalog
        if self._catalog is not None and current is not self._catalog and not self.recorder.has_noticed(current):
            raise Overtaken

    def commit(self) -> None:
        """Write what the operation has decided. What comes now is done only once."""
        self.check_catalog()
        self.recorder.commit()
        self.policy.remembered.look_again()
        self._catalog = None

    # --- policy ---

    def request(self, tool: str, skill: Skill, path: str = "") -> Request:
        """A request about a skill."""
        return skill_request(tool, skill, path, version=self.version)

    def ask(self, operation: "Asks") -> Asked:
        """Put the questions of an operation to a person, before it begins, without the session's lock."""
        if self.approve is None:
            return Asked()
        view = self.asking()
        return replace(view.asked, answers=view.put(operation.requests(view)))

    def asking(self) -> "SessionContext":
        """The same for the questions of one operation."""
        return replace(self, asked=Asked())

    def shown(self, request: Request) -> Request:
        """A request as it is put to a person: with the text of the script that was approved before."""
        before = scripts.approved_before(self, request)
        return replace(request, before=before) if before else request

    def put(self, requests: Iterable[Request]) -> Mapping[Request, str]:
        """Put questions to a person; the answers, up to the first no.

        Whatever is wrong with a request shows when the operation is performed, and not here.
        """
        answers: dict[Request, str] = {}
        if self.approve is None:
            return answers
        if self.recorder.inputs.answers is not None:
            return self.recorder.inputs.answers(requests)
        try:
            for request in requests:
                verdict = self.policy.decide(request).verdict
                if verdict == "deny":
                    break
                if verdict == "allow" or request in answers:
                    continue
                answer = self.approve(self.shown(request))
                said = answer if isinstance(answer, str) else "once" if answer else "no"
                answers[request] = said
                if said != NOBODY and not Policy.is_yes(said):
                    break
        except MetierError:
            return answers
        return answers

    def use_answers(self, asked: Asked) -> None:
        """Take these answers for the operation that is performed next."""
        self.asked = asked

    def confirm(self, request: Request, by: By = "model", *, for_session: bool = False) -> None:
        """Have policy, or the person who was asked, allow something. Raises `PolicyDenied` otherwise.

        `by` decides where nobody can be asked: what a person or the host named is allowed unless a rule denies it.
        `for_session`: a yes holds as long as the session.
        """
        answer = self.asked.answers.get(request) if self.asked.answers else None
        if answer is not None:
            lasts = for_session and Policy.is_yes(answer)
            self.recorder.note(
                PolicyAsked(
                    tool=request.tool,
                    answer=answer,
                    name=request.skill_name or None,
                    digest=request.digest or None,
                    for_session=lasts or None,
                    path=(request.path or None) if lasts else None,
                )
            )
            refused = answer != NOBODY and not Policy.is_yes(answer)
            if refused and self.policy.decide(request).verdict != "deny":
                # Also where a rule allows it by now: the person was asked, and the answer is heard.
                raise self.policy.not_approved(request, answer, brief=self._brief)
        asks = self.approve is not None and answer != NOBODY
        self.policy.enforce(request, self._answered if asks else None, by, brief=self._brief)
        if answer is not None:
            self.recorder.notice_policy(self.policy.as_dict())

    def _answered(self, request: Request) -> str:
        if request not in self.asked.answers:
            raise PolicyDenied(request.tool, request.skill_name, "it changed after the question was asked; try again")
        return self.asked.answers[request]

    def refuse_denied(self, skill: Skill) -> None:
        """A person or a host who names a skill is not asked, but a rule that denies it holds."""
        request = self.request("skill_load", skill, skill.path)
        decision = self.policy.decide(request)
        if decision.verdict == "deny":
            raise self.policy.denied(request, decision, brief=self._brief)

    @property
    def _brief(self) -> bool:
        """Whether refusals leave out how to allow the request, as before version 5."""
        return self.version < 5

    def may_use(self, tool: str, command: str = "") -> bool:
        """Whether a tool may be used now, by policy and the `allowed-tools` of the skills that are active."""
        return windows.may_use(self.policy, self.skills.catalog, self.state.windows, tool, command)

    # --- files ---

    def file_requests(self, skill: Skill, path: str = SKILL_FILE) -> Sequence[Request]:
        """What must be allowed before a file is read, and was not allowed before in this session."""
        approved = self.state.approved
        requests = self.files.requests(skill, path)
        return [one for one in requests if (one.tool, one.skill_name, one.path, one.digest) not in approved]

    def confirm_file(self, skill: Skill, path: str = SKILL_FILE, by: By = "model") -> None:
        """Have the reading of a file allowed, where it comes from elsewhere."""
        for request in self.file_requests(skill, path):
            self.confirm(request, by, for_session=True)

    # --- scripts ---

    @property
    def can_run(self) -> bool:
        """Whether scripts can run at all: a sandbox works here, and policy does not refuse every script."""
        if not self.profile.tools.run or self.policy.decide(_RUN).verdict == "deny":
            return False
        unsandboxed = self.policy.decide(_UNSANDBOXED).verdict == "allow"
        if unsandboxed or self.recorder.inputs.sandbox is not None:
            return unsandboxed or bool(self.recorder.inputs.sandbox)
        runner = self.runner or scripts.default_runner(self.profile.run)
        return runner is not None and runner.problem() is None

    def note_now(self, *events: Event, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Write events at once: a script is running, and others want to see what it does."""
        self.recorder.note(*events, artifacts=artifacts)
        self.recorder.flush()

    # --- tools ---

    def offered(self, *, wire: bool | None = None) -> dict[Role, str]:
        """The tools that the model has now: role to name. A tool is offered only where it can succeed.

        `wire` says how tools are named; without it, as the operation names them.
        """
        profile = self.profile
        if not profile.enabled or not self.tools_enabled:
            return {}
        if not self.visibility.visible() and profile.catalog.refresh != "call":
            return {}
        names = profile.tools.by_role()
        if profile.tools.host_read and not self.has_read_tool:
            names.pop("read", None)
        if "run" in names and not self.can_run:
            names.pop("run")
        on_wire = self.wire if wire is None else wire
        return {role: wire_name(name) for role, name in names.items()} if on_wire else names
