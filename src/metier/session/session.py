"""One conversation of one agent with its skills: what it loads, reads and calls, and what it has already seen.

A session is what a host embeds. Every method builds an operation and performs it: policy is asked first, without the
session's lock; then the operation runs under the lock, one at a time, and its events are written in one transaction.
What the session knows is the fold of its events, so any process that opens it knows the same.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from metier import limits
from metier.errors import BadArguments, MetierError, PolicyDenied
from metier.hosts.formats import Answer
from metier.hosts.schema import Profile
from metier.policy.asking import Approve
from metier.policy.decide import Policy
from metier.record import catalog_events
from metier.record.events import VERSION, Event, PolicyChosen, SessionStarted, SkillWarning
from metier.record.offers import SkillOffer
from metier.record.recorder import Recorder, Returned
from metier.record.state import OpenedState, SessionState
from metier.record.store import Frame, Store
from metier.running.async_twins import async_twin
from metier.running.secrets.masking import Mask
from metier.running.secrets.storage import stored_secrets
from metier.running.world import LiveWorld, World
from metier.session import load, operations, queries
from metier.session.context import Asked, SessionContext
from metier.session.operation import Operation
from metier.session.reading import Reader
from metier.session.visibility import By, Visibility
from metier.values.results import (
    Compaction,
    Invocation,
    Loaded,
    Prompt,
    Request,
    Resource,
    RunResult,
    SearchResult,
    Tool,
    ToolResult,
    Unloaded,
)
from metier.values.skill import JsonObject, Role, Skill

if TYPE_CHECKING:
    from metier.skills import Skills

R = TypeVar("R", bound=Answer)

_NO_SECRETS: Final = Mask()

_GRACE_MS: Final = 60_000
"""How long after its limit a script of another machine counts as lost."""


class Session:
    """A conversation with a catalog; `Skills.session` opens one.

    Errors are raised to the host as subclasses of `MetierError`; `call` turns them into results for the model. Methods
    may be called from any thread. Each that touches a file, a process or the network has an `a...` twin for asyncio.
    """

    def __init__(
        self,
        skills: "Skills",
        *,
        id: str | None = None,  # noqa: A002 - the public name of the argument
        policy: Policy | Mapping[str, object] | None = None,
        store: Store | None = None,
        approve: Approve | None = None,
        tools: bool = True,
        preload: Sequence[str] = (),
        only: Sequence[str] | None = None,
        has_read_tool: bool = True,
        state: Mapping[str, object] | OpenedState | None = None,
        world: World | None = None,
        surface: str = "python",
        cwd: str | None = None,
        store_required: bool = True,
    ) -> None:
        """See `Skills.session`. `world` is what the outside decides: this machine, or a record."""
        world = world or LiveWorld()
        self.id = id or world.id()
        self.skills = skills
        rules = policy if isinstance(policy, Policy) else Policy.from_settings(policy or {}, skills.profile)
        recorder = Recorder(
            store,
            self.id,
            world,
            skills.profile,
            required=store_required,
            keeps_artifacts=not rules.redact_arguments,
            opened=state if isinstance(state, OpenedState) else None,
        )
        self._context = SessionContext(
            id=self.id,
            skills=skills,
            policy=rules,
            recorder=recorder,
            visibility=Visibility(skills, rules, only, recorder),
            world=world,
            reader=Reader(world.files, skills.profile, recorder, rules),
            approve=approve,
            tools_enabled=tools,
            has_read_tool=has_read_tool,
        )
        known = None if isinstance(state, OpenedState) else state
        self.preloaded = self._begin(known, preload, surface, cwd)
        """The skills that were preloaded now."""
        recorder.recover(int(self.profile.run.seconds * 1000) + _GRACE_MS)

    def _begin(
        self, known: Mapping[str, object] | None, preload: Sequence[str], surface: str, cwd: str | None
    ) -> tuple[Loaded, ...]:
        context = self._context
        if known and known.get("version") != VERSION:
            message = f"state: it has version {known.get('version')}, and this Metier reads version {VERSION}"
            raise BadArguments(message, field="state")
        skills = [load.preloadable(context, name) for name in preload]  # an unknown name ends it before any record
        context.use_answers(context.ask(lambda context: load.preload(context, skills)))
        started = SessionStarted(
            profile=self.profile.name,
            surface=surface,
            tools=self.tools_enabled,
            asks=self.approve is not None,
            has_read_tool=self.has_read_tool,
            runs=self.can_run,
            policy=self.policy.as_dict(),
            only=tuple(sorted(self.only)) if self.only is not None else None,
            state=known or None,
            cwd=cwd,
        )
        notes: list[Event] = [PolicyChosen(self.policy.name)] if self.policy.name != "default" else []
        notes += (SkillWarning("policy", warning) for warning in self.policy.warnings)
        if self.only is not None:
            notes += catalog_events.outside(self.skills.catalog, self.only)
        loads = (lambda: context.settle(load.preload(context, skills), "user")) if skills else None
        return context.recorder.begin(started, notes, context.visibility.notice, loads) or ()

    # --- operations ---

    def perform(
        self,
        operation: Operation[R],
        *,
        wire: bool = False,
        offers: bool = True,
        watch: Callable[[Frame], None] | None = None,
        unasked: bool = True,
    ) -> R:
        """Do what an operation says: ask policy, then do it and record it.

        With `wire`, prompts and definitions name tools as they go over the wire; see `metier.values.skill.wire_name`.
        Without `offers`, only a person sees the prompt, and the record does not count its skills as offered to a model.
        `watch` is called with each frame of a recorded operation as it is written, such as the output of a script. All
        have the id of the operation in `op`, and none is of another process that works in the session meanwhile.
        Without `unasked`, nobody is asked: a recorded operation that needs an answer raises `Unconfirmed`, also where a
        user's own call would go on, and nothing is done or recorded.
        """
        operation.check()
        if operation.recorded:
            return self._record(operation, watch=watch, unasked=unasked)
        result = self._show(operation, wire)
        if offers and (offer := operation.offer(result)) is not None:
            self.offer(offer)
        return result

    def offer(self, offer: SkillOffer) -> None:
        """Record a list of skills that the model is shown, unless the record has it. Prompts do so by themselves."""
        self._context.recorder.offer(offer)

    def _record(
        self,
        operation: Operation[R],
        given: Mapping[Request, str] | None = None,
        watch: Callable[[Frame], None] | None = None,
        unasked: bool = True,
    ) -> R:
        """Perform and record an operation. `given` are the answers, where a person was asked already."""
        context = self._context
        recorder, name = context.recorder, operation.operation
        mask = (
            stored_secrets(context.skills.settings.config_folder).mask
            if operation.runs_script(context)
            else _NO_SECRETS
        )

        def arguments() -> JsonObject:
            return self.policy.redacted({key: mask.value(value) for key, value in operation.as_dict().items()})

        def work(returned: Returned) -> R:
            with self.policy.remembered.held():
                context.begin()
                context.use_answers(asked)
                try:
                    result = context.settle(operation.perform(context), operation.asker)
                except MetierError:
                    context.check_catalog()
                    raise
                context.check_catalog()
            returned.text, returned.code = result.text, operation.code(result)
            return result

        with recorder.span(name, arguments) as span:
            operation.rescan(context)
            ask = context.ask if unasked else context.unasked
            asked = ask(operation.perform) if given is None else Asked(given)
            with recorder.lock:
                try:
                    return recorder.operation(name, arguments, work, span, watch)
                finally:
                    used = context.asked
                    if used.answers or used.scripts or used.looked_up or used.is_final:
                        context.use_answers(Asked())  # the files of a skill may be large

    def _show(self, operation: Operation[R], wire: bool) -> R:
        """Perform what only shows something. It does not wait for a script; if somebody was asked, that is recorded."""
        context = self._context
        asked = context.ask(operation.perform)
        if asked.answers:
            with contextlib.suppress(PolicyDenied):  # the operation itself says what is missing
                self._record(operations.Confirm(asked=tuple(asked.answers)), asked.answers)
        context.recorder.refresh()
        shown = context.silent(asked, wire=wire)
        result = shown.settle(operation.perform(shown), operation.asker)
        listed = operation.listed(result)
        if listed is not None and listed.chosen and self._choose(listed):
            shown = context.silent(asked, wire=wire)  # after what other processes chose meanwhile
            result = shown.settle(operation.perform(shown), operation.asker)
        return result

    def _choose(self, listed: Prompt) -> bool:
        """Record what a prompt shows from now on, unless an operation is running: a prompt does not wait for that."""
        lock = self._context.recorder.lock
        if not lock.acquire(blocking=False):
            return False
        try:
            self._record(queries.Choose.of(listed))
        finally:
            lock.release()
        return True

    def questions(self, operation: Operation[Any]) -> tuple[Request, ...]:
        """What an operation would ask a person now, in order, if each answer is yes. Nothing is asked or recorded."""
        return self._context.questions(operation.perform, Asked())

    def load(
        self,
        name: str | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        arguments: str = "",
        parent: str | None = None,
        by: By = "user",
    ) -> Loaded:
        """Activate a skill by name, or by a path of the catalog. `parent` is the skill on whose behalf it is loaded."""
        where = os.fspath(path) if path is not None else None
        return self.perform(operations.Load(name=name, path=where, arguments=arguments, parent=parent, by=by))

    def unload(self, name: str, *, path: str | os.PathLike[str] | None = None, by: By = "user") -> Unloaded:
        """Take a loaded skill out: its text has no ref any more and is not put back, and its window closes."""
        where = os.fspath(path) if path is not None else None
        return self.perform(operations.Unload(name=name, path=where, by=by))

    def read(self, name: str, path: str | None = None, *, by: By = "user", raw: bool = False) -> Resource:
        """A file of a skill, by name and relative path or by a `skill://` URL.

        `raw` asks for the bytes as they are, whole and of any kind; the text is empty where they are not text.
        """
        return self.perform(operations.Read(name=name, path=path, by=by, raw=raw))

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        scope: str | None = None,
        context: str | None = None,
        by: By = "user",
    ) -> SearchResult:
        """The skills that answer a query, the best first. A model finds only what it may load."""
        return self.perform(operations.Search(query=query, limit=limit, scope=scope, context=context, by=by))

    def run(
        self,
        name: str,
        script: str,
        arguments: Sequence[str] = (),
        *,
        stdin: str | None = None,
        files: Mapping[str, bytes] | None = None,
        write: bool = False,
        write_paths: Sequence[str] | None = None,
        by: By = "user",
    ) -> RunResult:
        """Run a script of a skill in the sandbox, if policy allows it. A model must have loaded the skill first.

        The script runs in the working folder. `files` are put there for this run, by name. With `write`, new files
        of data formats come back to the folder. What `write_paths` names, as paths or globs, comes back whatever it is.
        """
        operation = operations.Run(
            name=name,
            script=script,
            arguments=tuple(arguments),
            stdin=stdin,
            files=files,
            write=write,
            write_paths=tuple(write_paths) if write_paths is not None else None,
            by=by,
        )
        return self.perform(operation)

    def run_in(self, folder: str | None) -> None:
        """Have scripts run in this folder instead of the working folder, as a person wants it."""
        self._context.folder = folder

    def use_files(self, files: Mapping[str, str]) -> None:
        """Have scripts find these files in their current folder: the digest of each in the record, by name."""
        self._context.uploads = dict(files)

    def output(self, ref: str, *, start: int = 1, end: int | None = None, grep: str | None = None) -> str:
        """An earlier result by its ref: whole, by lines (from 1, both ends included), or the lines that match."""
        return self.perform(operations.Output(ref=ref, start=start, end=end, grep=grep)).text

    def compact(self, budget: int = limits.COMPACTION_CHARACTERS) -> Compaction:
        """What belongs back into a compacted context, the newest skill first, within a number of characters."""
        return self.perform(operations.Compact(budget=budget))

    def invoke(self, message: str) -> Invocation:
        """The skill that a user's message calls, in the profile's grammar; other messages come back unchanged."""
        return self.perform(operations.Invoke(message=message))

    def end_turn(self) -> None:
        """Begin the user's next turn: what was injected for one request is gone, and execution windows close."""
        self.perform(operations.EndTurn())

    def prompt(
        self, message: str | None = None, budget: int | None = None, files: Sequence[str] | None = None
    ) -> Prompt:
        """The part of the system prompt that shows the catalog."""
        return self.perform(queries.CatalogPrompt(message=message, budget=budget, files=files))

    def system_prompt(
        self,
        base: str = "",
        *,
        message: str | None = None,
        budget: int | None = None,
        files: Sequence[str] | None = None,
        wire: bool = False,
    ) -> str:
        """Base, AGENTS.md files, skills, names already activated, preloaded skills: one text.

        With `wire`, it names tools as `tools(wire=True)` does.
        """
        shown = queries.SystemPrompt(base=base, message=message, budget=budget, files=files)
        return self.perform(shown, wire=wire).text

    def call(self, tool: str, arguments: Mapping[str, object] | None = None) -> ToolResult:
        """Answer a model's tool call in the profile's shape. A model's mistake is a result, never an exception."""
        return self.perform(operations.Call(tool=tool, arguments=arguments))

    def tools(self, budget: int | None = None, *, wire: bool = False) -> list[Tool]:
        """Tool definitions to hand to a model: name, description, JSON schema.

        A host may list its skills in a description. `budget` is then that of the prompt in the same request. With
        `wire`, names are in characters that every provider accepts: `skills_activate` for `skills.activate`. `call`
        takes both.
        """
        return list(self.perform(operations.Tools(budget=budget), wire=wire).tools)

    def as_functions(self) -> list[Callable[..., str]]:
        """The tools as plain functions, for frameworks that read signatures, type hints and docstrings.

        Each returns the text for the model and raises nothing: a mistake or a refusal is text, too.
        """
        from metier.session.functions import functions

        return functions(self)

    def as_async_functions(self) -> list[Callable[..., Awaitable[str]]]:
        """`as_functions` as coroutine functions."""
        from metier.session.functions import async_functions

        return async_functions(self)

    def commands(self) -> list[str]:
        """The slash commands that a host may offer to a user, one per skill."""
        return list(self.perform(queries.Commands()).commands)

    def may_use(self, tool: str, command: str = "") -> bool:
        """Whether a tool of the host may be used now, by policy and the skills that are active."""
        return self.perform(queries.MayUse(tool=tool, command=command)).allowed

    # --- for asyncio ---

    aperform = async_twin(perform)
    """`perform` for asyncio."""
    aload = async_twin(load)
    """`load` for asyncio."""
    aunload = async_twin(unload)
    """`unload` for asyncio."""
    aread = async_twin(read)
    """`read` for asyncio."""
    asearch = async_twin(search)
    """`search` for asyncio."""
    arun = async_twin(run)
    """`run` for asyncio."""
    aoutput = async_twin(output)
    """`output` for asyncio."""
    acompact = async_twin(compact)
    """`compact` for asyncio."""
    ainvoke = async_twin(invoke)
    """`invoke` for asyncio."""
    aend_turn = async_twin(end_turn)
    """`end_turn` for asyncio."""
    aprompt = async_twin(prompt)
    """`prompt` for asyncio."""
    asystem_prompt = async_twin(system_prompt)
    """`system_prompt` for asyncio."""
    acall = async_twin(call)
    """`call` for asyncio."""

    # --- what it is ---

    @property
    def profile(self) -> Profile:
        return self._context.profile

    @property
    def policy(self) -> Policy:
        return self._context.policy

    @property
    def approve(self) -> Approve | None:
        """Who is asked where policy says so."""
        return self._context.approve

    @property
    def tools_enabled(self) -> bool:
        """Whether the model can call tools at all."""
        return self._context.tools_enabled

    @property
    def has_read_tool(self) -> bool:
        """Whether the host gives its model a tool to read files with."""
        return self._context.has_read_tool

    @property
    def only(self) -> frozenset[str] | None:
        """The names to which the session is limited, if it is."""
        return self._context.visibility.only

    @property
    def exclusive(self) -> bool:
        """Whether the host sees to it that no other process works in the session for now.

        Prompts and properties then do not look for what others did. An operation still notices it.
        """
        return self._context.recorder.exclusive

    @exclusive.setter
    def exclusive(self, value: bool) -> None:
        self._context.recorder.exclusive = value

    @property
    def can_run(self) -> bool:
        """Whether scripts can run at all: a sandbox works here, and policy does not refuse every script."""
        return self._context.can_run

    @property
    def activated(self) -> list[str]:
        """The names of the skills that were activated, in order."""
        return list(self._known.activated)

    @property
    def given(self) -> list[str]:
        """The activated skills whose instructions the model was given; a message may have called others."""
        return list(self._known.given)

    @property
    def overrides(self) -> JsonObject:
        """What skills proposed and policy granted in this turn: a model, tool defaults, a scope."""
        return dict(self._known.overrides)

    @property
    def events(self) -> list[Frame]:
        """The frames of this session, in order."""
        return self._context.recorder.frames()

    def visible(self) -> list[Skill]:
        """The skills that the model may see, by modes, policy and the limits of this session."""
        return self._context.visibility.visible()

    def offered(self, *, wire: bool = False) -> dict[Role, str]:
        """The tools that the model has now: role to name. A tool is offered only where it can succeed."""
        return self._context.offered(wire=wire)

    @property
    def command_form(self) -> str:
        """How a user calls a skill by a slash command, such as `/name`; empty where the host has no commands."""
        return queries.command_form(self.profile)

    def explain(self, error: MetierError) -> str:
        """An error as a sentence for a model, without paths where the host hides them."""
        from metier.session.tools import explain

        return explain(error, self.profile, self.visible())

    # --- state ---

    def loaded_versions(self) -> dict[str, int]:
        """The skills that are loaded, by path, each with the time of the file as it was loaded."""
        return {path: loaded.mtime_ms for path, loaded in self._known.loaded.items()}

    def state(self) -> JsonObject:
        """What the session knows, as data: names, paths and digests, never bodies."""
        return {"version": VERSION, "id": self.id, **self._known.as_dict()}

    def refresh(self) -> None:
        """Learn what other processes did in this session. Its operations and properties do so by themselves."""
        self._context.recorder.refresh()

    @property
    def _known(self) -> SessionState:
        """What the session knows now, also of what other processes did."""
        self.refresh()
        return self._context.state
