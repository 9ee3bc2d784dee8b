"""Everything that the operations of one session work with: the catalog, the policy, the files and the record.

A context belongs to one session. Operations are performed on it one at a time; only `ask` runs without the session's
lock, so that nobody waits while a person is asked. What the session knows is `state`, the fold of its events: an
operation changes it by noting an event, and in no other way.

What an operation does is one generator, which yields each request where it is needed. It is run twice: without the
lock, on a context that records nothing, to ask a person; and with the lock, where each request is confirmed against the
answers.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from metier.catalog.build import Catalog
from metier.errors import MetierError, PolicyDenied
from metier.files.source import ScriptFiles
from metier.files.text import storable_text
from metier.policy import windows
from metier.policy.asking import NOBODY, YES, Approve, ask
from metier.policy.decide import By, Policy, Unconfirmed
from metier.policy.rules import skill_request
from metier.record.events import Event, PolicyAsked
from metier.record.recorder import Recorder
from metier.record.state import SessionState
from metier.record.writer import Overtaken
from metier.running.world import World
from metier.session.reading import Reader
from metier.session.visibility import SessionSkills, Visibility
from metier.values.grants import Grant
from metier.values.results import Request
from metier.values.skill import ROLES, SKILL_FILE, Role, Skill, wire_name

if TYPE_CHECKING:
    from metier.hosts.schema import Profile
    from metier.running.scripts import ScriptKey

_UNSANDBOXED = Request("run_unsandboxed")
"""A request for any script: what policy says of it decides whether a model has a tool to run one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person answered before an operation, and the scripts that the questions were about."""

    answers: Mapping[Request, str] = field(default_factory=dict[Request, str])
    scripts: "dict[ScriptKey, ScriptFiles]" = field(default_factory=dict[Any, ScriptFiles])
    """The operation runs these very bytes."""
    looked_up: "dict[ScriptKey, Grant]" = field(default_factory=dict[Any, Grant])
    """What was looked up elsewhere for those scripts, such as versions of packages, as the questions showed it."""
    is_final: bool = False
    """Whether the answers are all there are: anything not yet answered is denied."""


R = TypeVar("R")

Steps = Generator[Request | None, None, R]
"""Something that is done step by step: it yields each request before what needs it, and goes on if that is allowed.

A `yield` of nothing says that all is asked. What comes before it only reads and notes events, so that it can be run
twice; what comes after it is done once.
"""

_ONCE: Final = ("skill_load", "skill_read", "skill_run")
"""What is asked about each time. A yes to what a source of files asks holds as long as the session."""


@dataclass(slots=True, kw_only=True)
class SessionContext:
    """See the module."""

    id: str
    skills: SessionSkills
    policy: Policy
    recorder: Recorder
    visibility: Visibility
    world: World
    reader: Reader
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
    """Whether the operation names tools as they go over the wire; see `metier.values.skill.wire_name`."""
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

    def ask(self, work: "Work[Any]") -> Asked:
        """Put the questions of an operation to a person, before it begins, without the session's lock."""
        if self.approve is None:
            return Asked()
        asked = Asked()
        return replace(asked, answers=self.world.answers(lambda: self._put(self._requests(work, asked))))

    def unasked(self, work: "Work[Any]") -> Asked:
        """What an operation goes on with where nobody is asked. Raises `Unconfirmed` if somebody would have to be."""
        asked = Asked(is_final=True)
        if questions := self.questions(work, asked):
            raise Unconfirmed(questions[0])
        return asked

    def _requests(self, work: "Work[Any]", asked: Asked) -> Iterator[Request]:
        """What policy is asked, in order; the next only if the one before is allowed. Nothing is recorded."""
        for request in work(self.silent(asked, wire=False)):
            if request is None:
                return
            yield request

    def questions(self, work: "Work[Any]", asked: Asked) -> tuple[Request, ...]:
        """What an operation would ask a person, in order, if each answer is yes. `asked` keeps what it is about."""
        questions: list[Request] = []
        try:
            for request in self._requests(work, asked):
                verdict = self.policy.decide(request).verdict
                if verdict == "deny":
                    break
                if verdict == "ask":
                    questions.append(self._shown(request))
        except MetierError:
            return tuple(questions)  # the operation itself says what is wrong
        return tuple(questions)

    def _shown(self, request: Request) -> Request:
        """A request as it is put to a person: with the text of the script that was approved before."""
        from metier.running.scripts import approved_before

        before = approved_before(self.policy, self.recorder.store.get_artifact, request)
        return replace(request, before=before) if before else request

    def _put(self, requests: Iterable[Request]) -> Mapping[Request, str]:
        """Put questions to a person; the answers, up to the first no.

        Whatever is wrong with a request shows when the operation is performed, and not here.
        """
        answers: dict[Request, str] = {}
        assert self.approve is not None
        try:
            for request in requests:
                verdict = self.policy.decide(request).verdict
                if verdict == "deny":
                    break
                if verdict == "allow" or request in answers:
                    continue
                answer = answers[request] = ask(self.approve, self._shown(request))
                if answer != NOBODY and answer not in YES:
                    break
        except MetierError:
            return answers
        return answers

    def use_answers(self, asked: Asked) -> None:
        """Take these answers for the operation that is performed next."""
        self.asked = asked

    def settle(self, steps: Steps[R], by: By = "model") -> R:
        """Do something step by step, each only if policy, or the person who was asked, allows it.

        `by` decides where nobody can be asked: what a person or the host named is allowed unless a rule denies it.
        """
        try:
            request = next(steps)
            while True:
                try:
                    if request is not None:
                        self._confirm(request, by)
                except MetierError as refusal:
                    request = steps.throw(refusal)
                else:
                    request = next(steps)
        except StopIteration as done:
            return done.value

    def _confirm(self, request: Request, by: By) -> None:
        """Have something allowed. Raises `PolicyDenied` otherwise."""
        answer = self.asked.answers.get(request) if self.asked.answers else None
        if answer is not None:
            lasts = request.tool not in _ONCE and answer in YES
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
            refused = answer != NOBODY and answer not in YES
            if refused and self.policy.decide(request).verdict != "deny":
                # Also where a rule allows it by now: the person was asked, and the answer is heard.
                raise self.policy.not_approved(request, answer)
        asks = (self.approve is not None or self.asked.is_final) and answer != NOBODY
        self.policy.enforce(request, self._answered if asks else None, by)
        if answer is not None:
            self.recorder.notice_policy(self.policy.as_dict())

    def _answered(self, request: Request) -> str:
        if request not in self.asked.answers:
            raise PolicyDenied(request.tool, request.skill_name, "it changed after the question was asked; try again")
        return self.asked.answers[request]

    def refuse_denied(self, skill: Skill) -> None:
        """A person or a host who names a skill is not asked, but a rule that denies it holds."""
        request = skill_request("skill_load", skill, skill.path)
        decision = self.policy.decide(request)
        if decision.verdict == "deny":
            raise self.policy.denied(request, decision)

    def may_use(self, tool: str, command: str = "") -> bool:
        """Whether a tool may be used now, by policy and the `allowed-tools` of the skills that are active."""
        return windows.may_use(self.policy, self.skills.catalog, self.state.windows, tool, command)

    # --- files ---

    def file_requests(self, skill: Skill, path: str = SKILL_FILE) -> Sequence[Request]:
        """What must be allowed before a file is read, and was not allowed before in this session."""
        approved = self.state.approved
        requests = self.world.files.requests(skill, path)
        return [one for one in requests if (one.tool, one.skill_name, one.path, one.digest) not in approved]

    # --- scripts ---

    @property
    def can_run(self) -> bool:
        """Whether scripts can run at all: a sandbox works here, and policy does not refuse every script."""
        if not self.profile.tools.run or self._denies("run"):
            return False
        unsandboxed = self.policy.decide(_UNSANDBOXED).verdict == "allow"
        return unsandboxed or self.world.can_sandbox(self.profile.run)

    def note_now(self, *events: Event, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Write events at once: a script is running, and others want to see what it does.

        A store in trouble does not end the script. Its operation fails at the end, if the trouble lasts so long.
        """
        self.recorder.note(*events, artifacts=artifacts)
        self.recorder.flush(more_follows=True)

    # --- tools ---

    def _denies(self, role: Role) -> bool:
        """Whether policy refuses every call of a tool. No default does."""
        tool = f"skill_{role}"
        return self.policy.has_rules_about(tool) and self.policy.decide(Request(tool)).verdict == "deny"

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
        # Whatever the call is about: a rule for some skills or files still leaves others.
        for role in ROLES:
            if role in names and self._denies(role):
                names.pop(role)
        on_wire = self.wire if wire is None else wire
        return {role: wire_name(name) for role, name in names.items()} if on_wire else names


Work = Callable[[SessionContext], Steps[R]]
"""Begins the steps of an operation on a context."""
