"""One conversation of one agent with its skills: what it loads, reads and calls, and what it has already seen.

A session is what a host embeds. It resolves names against the catalog, asks the policy, reads a SKILL.md when it is
needed, wraps it as the profile says, remembers it by content so that nothing is sent twice, and records every step. Its
state is names and digests, never bodies, and survives as plain data.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metier import limits
from metier.catalog.search import SearchResult
from metier.errors import MetierError, PolicyDenied, ResourceError, SkillNotFound
from metier.files import beneath, urls
from metier.files.beneath import Content
from metier.files.digests import digest_of
from metier.files.source import DiskFiles, Files
from metier.files.text import without_torn
from metier.hosts.profiles import Profile
from metier.model import SKILL_FILE, Compaction, Invocation, Loaded, Resource, RunResult, Skill
from metier.record.events import (
    Event,
    OverrideProposed,
    PolicyAsked,
    PolicyChosen,
    ResourceRefused,
    SessionStarted,
    SkillInvoked,
    SkillLoaded,
    SkillsSearched,
    SkillWarning,
    ToolFailed,
)
from metier.record.journal import Journal, Output
from metier.record.recorder import Recorder, Sink, random_ids, system_clock
from metier.record.store import Document, Frame
from metier.record.store.memory import MemoryStore
from metier.sandbox import Runner
from metier.session import activation, listing, mentions, scripts, system_prompt
from metier.session import tools as toolbox
from metier.session.loaded import Recollection
from metier.session.policy import Policy, Request, proposals
from metier.session.reading import Reader
from metier.session.visibility import By, Sight

if TYPE_CHECKING:
    from metier.skills import Skills


class Session:
    """See the module. Errors are raised to the host; `call` turns them into results for the model."""

    def __init__(
        self,
        skills: "Skills",
        *,
        id: str | None = None,  # noqa: A002 - the public name of the argument
        policy: Policy | Mapping[str, Any] | None = None,
        store: Sink | None = None,
        approve: Callable[[Request], bool | str] | None = None,
        tools: bool = True,
        preload: Sequence[str] = (),
        only: Sequence[str] | None = None,
        has_read_tool: bool = True,
        state: Mapping[str, Any] | Document | None = None,
        files: Files | None = None,
        runner: Runner | None = None,
        surface: str = "python",
        store_required: bool = True,
        clock: Callable[[], int] = system_clock,
        ids: Callable[[], str] = random_ids,
    ) -> None:
        """`tools` off means that the model cannot call any; `only` limits the session to skills of these names.

        `state` is what `state()` of an earlier life gave, or the document that its store has of it. With a `store`,
        what is needed to run the session again is kept there, too, unless policy redacts. Trouble with it is raised;
        without `store_required` it is logged, and what could not be kept is tried again later.
        """
        self.skills = skills
        self.id = id or ids()
        given = policy if isinstance(policy, Policy) else Policy.from_settings(policy or {}, skills.profile)
        self.policy = replace(given, _windows={})  # several sessions may share rules and answers, but no window
        self.approve = approve
        self.tools_enabled = tools
        self.has_read_tool = has_read_tool
        known: Mapping[str, Any] | None = state.value if isinstance(state, Document) else state
        self._seen = Recollection(known)
        self._injected = [str(ref) for ref in (known or {}).get("injected", ())]
        self._standing = [str(ref) for ref in (known or {}).get("preloaded", ())]
        self._runner = runner
        recorder = Recorder(
            store or MemoryStore(), self.id, clock, ids, required=store_required,
            keeps_artifacts=not self.policy.redact_arguments,
        )  # fmt: skip
        version = state.version if isinstance(state, Document) else 0
        self._journal = Journal(recorder, keeps_record=store is not None, version=version)
        self._sight = Sight(skills, self.policy, only, self._journal.notice)
        warned = ((str(path), str(note)) for path, note in (known or {}).get("warned", ()))
        self._reader = Reader(files or DiskFiles(), skills.profile, self._journal, warned)
        self.overrides: dict[str, Any] = dict((known or {}).get("overrides", {}))
        pinned = [self._pinned(name) for name in preload]  # an unknown name ends it here, before anything is recorded
        self.preloaded = tuple(self._preload(skill) for skill in pinned)
        self._standing += (loaded.ref for loaded in self.preloaded)
        self._begin(self.state() if pinned else known, surface)

    def _begin(self, state: Mapping[str, Any] | None, surface: str) -> None:
        started = SessionStarted(
            self.profile.name, surface, self.tools_enabled, self.approve is not None, self.has_read_tool, self.can_run,
            self.policy.as_dict(),
            tuple(sorted(self.only)) if self.only is not None else None, state,
        )  # fmt: skip
        notes: list[Event] = [PolicyChosen(self.policy.name)] if self.policy.name != "default" else []
        notes += (SkillWarning("policy", warning) for warning in self.policy.warnings)
        self._journal.begin(started, self.skills, notes)
        for path in (state or {}).get("windows", ()):
            if skill := next((one for one in self.skills.catalog.skills if one.path == path), None):
                self.policy.open_window(skill)

    # --- the surroundings ---

    @property
    def activated(self) -> list[str]:
        """The names of the skills that were activated, in order."""
        return self._seen.activated

    @property
    def saved_version(self) -> int:
        """The version of the state in the store that this session knows."""
        return self._journal.version

    @property
    def profile(self) -> Profile:
        return self.skills.profile

    def shaped(self, approve: Callable[[Request], bool | str], tools: bool) -> bool:
        """Whether it asks by this callback and has, or has not, tools; what it is at its beginning, it stays."""
        return self.approve == approve and self.tools_enabled == tools

    @property
    def events(self) -> list[Frame]:
        """The frames of this session, in order."""
        return self._journal.frames()

    @property
    def only(self) -> frozenset[str] | None:
        """The names to which the session is limited, if it is."""
        return self._sight.only

    def visible(self) -> list[Skill]:
        """The skills that the model may see, by switches, policy and the limits of this session."""
        return self._sight.visible()

    def _operation(self, operation: str, /, **given: Any) -> AbstractContextManager[Output]:
        """One step that a host or a model asked for; see `Journal.operation`."""

        def asked() -> Mapping[str, Any]:
            return self.policy.redacted({key: value for key, value in given.items() if value is not None})

        return self._journal.operation(operation, asked, self.keep)

    # --- asking ---

    def _authorise(self, tool: str, skill: Skill, path: str = "") -> None:
        self.confirm(Request(tool, skill.name, path or skill.path))

    def _refuse_denied(self, skill: Skill) -> None:
        """A person or a host who names a skill needs no question, but a rule that denies it stands."""
        decision = self.policy.decide(Request("skill_load", skill.name, skill.path))
        if decision.verdict == "deny":
            raise PolicyDenied("skill_load", skill.name, decision.why)

    def confirm(self, request: Request) -> None:
        """Ask policy, and whoever can answer where it says so, whether something may be taken in; raises if not."""
        self.policy.enforce(request, self._ask if self.approve else None)

    def _ask(self, request: Request) -> bool | str:
        """Put a question to whoever can answer it, and record the answer."""
        answer = self.approve(request) if self.approve is not None else False
        said = answer if isinstance(answer, str) else "once" if answer else "no"
        self._journal.note(PolicyAsked(request.tool, said, request.skill_name or None, request.digest or None))
        return said

    # --- loading ---

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
        with self._operation("load", name=name, path=where, arguments=arguments, parent=parent, by=by) as output:
            skill = self._sight.find(name, where, by)
            self._authorise("skill_load", skill)
            loaded = self._load(skill, arguments, parent, by, command=False)
            output.append(loaded.text)
        return loaded

    def _load(self, skill: Skill, arguments: str, parent: str | None, by: By, command: bool) -> Loaded:
        chain = self._seen.chain(skill.name, parent)
        loaded = self._read_skill(skill, arguments, command)
        self._seen.follow(chain)
        rendered = digest_of(loaded.text.encode())
        known = self._seen.of(skill.path)
        if known is not None and known.rendered == rendered and self.profile.load.reload == "remind":
            text = activation.reminder(skill.name, known.ref, self.offered())
            loaded = replace(loaded, text=text, body="", already_loaded=True, ref=known.ref, truncated=False)
        else:
            ref = self._seen.keep(skill, loaded.digest, rendered, loaded.text, arguments)
            loaded = replace(loaded, ref=ref)
        self._seen.activate(skill.name)
        self._record_load(loaded, arguments, by, parent)
        self._consider_overrides(skill)
        if self.profile.policy.enforce_hints:
            self.policy.open_window(skill)
        return loaded

    def _record_load(self, loaded: Loaded, arguments: str, by: By, parent: str | None) -> None:
        skill = loaded.skill
        text = loaded.text.encode()
        record = SkillLoaded(
            skill.name, skill.path, loaded.digest, loaded.frontmatter, skill.dir, digest_of(text), loaded.files,
            loaded.files_truncated, loaded.size, loaded.already_loaded, loaded.truncated, loaded.warnings,
        )  # fmt: skip
        invoked = SkillInvoked(
            skill.name, "manual" if by == "user" else "auto", self.policy.redact(arguments) or None,
            self.policy.effective_tools(skill) if self.profile.policy.enforce_hints else None,
            self.policy.redact(parent or "") or None,
        )  # fmt: skip
        notes = self._reader.warnings(skill, loaded.warnings)
        self._journal.note(record, invoked, *notes, artifacts={record.output: text})

    def _consider_overrides(self, skill: Skill) -> None:
        """What a skill proposes (a model, tool defaults, a scope) is offered to policy; both answers are recorded."""
        for key, value in proposals(skill.frontmatter):
            decision = self.policy.decide(Request("override", skill.name, key))
            granted = decision.verdict == "allow"
            if granted:
                self.overrides[key] = value
            self._journal.note(OverrideProposed(skill.name, key, value, granted, decision.why))

    def _read_skill(self, skill: Skill, arguments: str = "", command: bool = False) -> Loaded:
        return self._reader.skill(skill, arguments, command, self.offered())

    # --- resources ---

    def read(self, name: str, path: str | None = None, *, by: By = "user", raw: bool = False) -> Resource:
        """A file of a skill, by name and relative path or by a `skill://` URL.

        `raw` asks for the bytes as they are, whole and whatever they are; the text is empty where they are none.
        """
        with self._operation("read", name=name, path=path, by=by, raw=raw or None) as output:
            if path is None:
                name, path = urls.parse_url(name)
            resource = self._read(self._sight.find(name, None, by), path, by, raw)
            output.append(resource.text)
        return resource

    def _read(self, skill: Skill, path: str, by: By, raw: bool) -> Resource:
        try:
            relative = beneath.check_relative(path, self.profile.resources.parents)
            if relative == SKILL_FILE:
                self._authorise("skill_load", skill)  # its body is in there
                if not self.profile.tools.load:  # hosts without a tool for it load a skill by reading it
                    return self._read_by_loading(skill, by, raw)
            self._authorise("skill_read", skill, relative)
            return self._reader.whole(skill, relative) if raw else self._reader.text(skill, path, relative)
        except ResourceError as error:
            redact = self.policy.redact
            self._journal.note(ResourceRefused(skill.name, redact(path), error.reason, redact(str(error))))
            raise

    def _read_by_loading(self, skill: Skill, by: By, raw: bool) -> Resource:
        loaded = self._load(skill, "", None, by, command=False)
        data = self._reader.files.skill_file(skill, limits.WHOLE_FILE_BYTES).data if raw else None
        return Resource(
            skill, SKILL_FILE, loaded.text, "text/markdown", loaded.size, loaded.truncated, loaded.digest, data
        )

    # --- searching ---

    def search(
        self, query: str, *, limit: int | None = None, scope: str | None = None, by: By = "user"
    ) -> SearchResult:
        """Skills that answer a query; the model finds only what it may load."""
        with self._operation("search", query=query, limit=limit, scope=scope, by=by) as output:
            self._sight.refresh()
            among = frozenset(skill.path for skill in self.visible()) if by == "model" else None
            result = self.skills.search(query, limit=limit, scope=scope, among=among)
            hits = [[hit.skill.path, hit.score, hit.reason, list(hit.matched)] for hit in result.results]
            data = json.dumps({"truncated": result.truncated, "hits": hits}).encode()
            digest = digest_of(data)
            found = SkillsSearched(self.policy.redact(query), result.count, digest, result.truncated)
            self._journal.note(found, artifacts={digest: data})
            output.append(result.text)
        return result

    # --- scripts ---

    def run(
        self, name: str, script: str, arguments: Sequence[str] = (), *, stdin: str | None = None, by: By = "user"
    ) -> RunResult:
        """Run a script of a skill in the sandbox, if policy allows it; the model must have loaded the skill first."""
        given = {"name": name, "script": script, "arguments": list(arguments), "stdin": stdin, "by": by}
        with self._operation("run", **given) as output:
            skill = self._sight.find(name, None, by)
            if skill.path not in self._seen:
                if by == "model":
                    raise ResourceError(f"load the skill {name} before you run its scripts", reason="not-loaded")
                self._authorise("skill_load", skill)
                self._load(skill, "", None, by, command=False)
            result = self._run(skill, script, arguments, stdin)
            output.append(result.text)
        return result

    async def arun(
        self, name: str, script: str, arguments: Sequence[str] = (), *, stdin: str | None = None, by: By = "user"
    ) -> RunResult:
        """`run` for asyncio."""
        return await asyncio.to_thread(self.run, name, script, arguments, stdin=stdin, by=by)

    def _run(self, skill: Skill, path: str, arguments: Sequence[str], stdin: str | None) -> RunResult:
        profile = self.profile
        content = Content(b"", 0, 0)
        try:
            relative = beneath.check_relative(path, profile.resources.parents)
            content = self._reader.files.resource(skill, relative, limits.SCRIPT_BYTES)
            script = scripts.check(skill, relative, arguments, profile, content.data)
            if profile.policy.enforce_hints:
                scripts.refuse_by_hint(script, self.policy, profile.tools.run)
            self.confirm(script.request)
            script.grants = scripts.grants(script, self.policy)
            runner = scripts.runner_for(script, self._runner)
        except MetierError as error:
            reason = getattr(error, "reason", "") or type(error).__name__
            digest = digest_of(content.data) if content.size else ""
            redact = self.policy.redact
            failed = ToolFailed("skill_run", skill.name, redact(path), reason, redact(str(error)), digest)
            self._journal.note(failed, artifacts={digest: content.data} if digest else None)
            raise
        self._journal.note(artifacts={script.digest: content.data})
        place = self.skills.settings.place
        return scripts.execute(script, runner, profile, place, stdin, self._note_now, self.policy.redact)

    def _note_now(self, *noted: Event, artifacts: Mapping[str, bytes] | None = None) -> None:
        self._journal.note(*noted, artifacts=artifacts)
        self._journal.flush()

    @property
    def can_run(self) -> bool:
        """Whether scripts can run at all: a sandbox works here, and policy does not refuse every script."""
        if not self.profile.tools.run or self.policy.decide(Request("skill_run")).verdict == "deny":
            return False
        unsandboxed = self.policy.decide(Request("run_unsandboxed")).verdict == "allow"
        runner = self._runner or scripts.default_runner()
        return unsandboxed or (runner is not None and runner.problem() is None)

    # --- what was already returned ---

    def output(self, ref: str, *, start: int = 1, end: int | None = None, grep: str | None = None) -> str:
        """An earlier output by its ref: whole, by lines (from 1, both ends included), or the lines that match."""
        with self._operation("output", ref=ref, start=start, end=end, grep=grep) as output:
            text = self._seen.texts.get(ref) or self._recover(ref)
            lines = text.split("\n")
            if grep is not None:
                text = "\n".join(f"{n}: {line}" for n, line in enumerate(lines, 1) if grep.lower() in line.lower())
            elif start != 1 or end is not None:
                text = "\n".join(lines[max(start, 1) - 1 : end])
            output.append(text)
        return text

    def _recover(self, ref: str) -> str:
        """An output of an earlier life of the session: kept in the store, or made again from an unchanged file."""
        entry = self._seen.by_ref(ref)
        if entry is None:
            raise ResourceError(f"there is no output {ref!r} in this session", path=ref, reason="not-found")
        try:
            return self._journal.sink.get_artifact(entry.rendered).decode()
        except MetierError:
            loaded = self._read_skill(self.skills.catalog.find_path(entry.path), entry.arguments)
        if digest_of(loaded.text.encode()) != entry.rendered:
            raise ResourceError(f"{entry.name} has changed since; load it again", path=ref, reason="changed")
        self._seen.texts[ref] = loaded.text
        return loaded.text

    def compact(self, budget: int = limits.COMPACTION_CHARACTERS) -> Compaction:
        """What belongs back into a compacted context, the newest skill first, within a number of characters."""
        parts: list[str] = []
        restored: list[str] = []
        referenced: list[str] = []
        left = budget
        with self._operation("compact", budget=budget) as output:
            for entry in self._seen.newest_first():
                if entry.ref in self._standing:
                    continue  # the system prompt still has it
                try:
                    text = self.output(entry.ref)
                except MetierError:
                    continue
                if len(text) <= left:
                    restored.append(entry.name)
                else:
                    referenced.append(entry.name)
                    text = activation.reminder(entry.name, entry.ref, self.offered())
                if len(text) <= left:
                    parts.append(text)
                    left -= len(text) + 2
            output.append("\n\n".join(parts))
        return Compaction("\n\n".join(parts), tuple(restored), tuple(referenced))

    # --- messages and prompts ---

    def invoke(self, message: str) -> Invocation:
        """What a user's message calls, in the profile's grammar; a message that calls nothing comes back unchanged."""
        with self._operation("invoke", message=message) as output:
            invocation = self._invoke(message)
            output.append(invocation.loaded.text if invocation.loaded else invocation.message)
        return invocation

    def _invoke(self, message: str) -> Invocation:
        self.end_turn()
        self._sight.refresh()
        mention = mentions.find(message, self.profile, self._callable_by_user)
        if not mention.skills:
            if mention.ambiguous:
                detail = f"a name in the message is ambiguous: {', '.join(mention.ambiguous)}"
                self._journal.note(SkillWarning("ambiguous", detail))
            return Invocation(None, message, ambiguous=mention.ambiguous)
        skill = mention.skills[0]
        self._refuse_denied(skill)
        loaded = None
        if self.profile.invocation.loads or (mention.command and not self.tools_enabled):
            loaded = self._load(skill, mention.arguments, None, "user", command=mention.command)
            if not self.profile.invocation.loads:
                self._injected = [loaded.ref]
        else:
            if mention.command:
                self._seen.activate(skill.name)
            self._journal.note(SkillInvoked(skill.name, "manual", self.policy.redact(mention.arguments) or None))
        return Invocation(skill, mention.message, loaded, mention.arguments, mention.skills, mention.ambiguous)

    def _callable_by_user(self, name: str) -> Skill:
        skill = self.skills.catalog.find(name)
        if not skill.enabled or not skill.user_invocable or not self._sight.within(name):
            raise SkillNotFound(name)
        return skill

    def commands(self) -> list[str]:
        """The slash commands that the host may offer to a user, one per skill."""
        rules = self.profile.invocation
        form = next((form for form in rules.forms if form.startswith("/")), "") if rules.commands else ""
        callable_skills = [
            s for s in self.skills.catalog.skills if s.enabled and s.user_invocable and self._sight.within(s.name)
        ]
        return [form.replace("name", skill.name) for skill in callable_skills] if form else []

    def end_turn(self) -> None:
        """The user's next message begins: what was injected for one request is gone, execution windows close."""
        with self._operation("end_turn"):
            self._injected = []
            self.overrides = {}
            self.policy.close_windows()

    def prompt(
        self, message: str | None = None, budget: int | None = None, files: Sequence[str] | None = None
    ) -> listing.Prompt:
        """The part of the system prompt that shows the catalog."""
        rules = self.profile.prompt
        if rules.needs_read_tool and not (self.has_read_tool and self.tools_enabled):
            return listing.NOTHING
        shown = system_prompt.relevant(self.visible(), self.profile, files)
        ranked = self.skills.ranked(shown, message, self.activated[::-1])
        return listing.render(ranked, self.profile, self.offered(), budget)

    def system_prompt(
        self,
        base: str = "",
        *,
        message: str | None = None,
        budget: int | None = None,
        files: Sequence[str] | None = None,
    ) -> str:
        """Base, AGENTS.md files, skills, names already activated, preloaded skills: one text."""
        rules = self.profile
        always = system_prompt.always_applied(self.visible(), rules, files)
        applied = [(skill.name, self._read_skill(skill).text) for skill in always]
        preloaded = [*self._given(self._standing), *applied, *self._given(self._injected)]
        listing = "" if preloaded and rules.prompt.preloaded_replace else self.prompt(message, budget, files).text
        names = self.activated if rules.context.activated and rules.enabled else []
        return system_prompt.assemble(
            base, system_prompt.agents_files(rules, self.skills.settings.place), listing, names, preloaded
        )

    def _preload(self, skill: Skill) -> Loaded:
        """Read a skill that stands in the system prompt from the first request on, and so need not be loaded again."""
        loaded = self._read_skill(skill)
        text = loaded.text.encode()
        rendered = digest_of(text)
        self._journal.note(artifacts={rendered: text})
        return replace(loaded, ref=self._seen.keep(skill, loaded.digest, rendered, loaded.text, ""))

    def _given(self, refs: Sequence[str]) -> list[tuple[str, str]]:
        """Names and texts of what was given under these refs; of an earlier life, if it can still be had."""
        found: list[tuple[str, str]] = []
        for seen in filter(None, map(self._seen.by_ref, refs)):
            try:
                found.append((seen.name, self._seen.texts.get(seen.ref) or self._recover(seen.ref)))
            except MetierError:
                continue
        return found

    def _pinned(self, name: str) -> Skill:
        """A skill for a subagent; hidden ones can be pinned too, unknown ones are an error with the names."""
        catalog = self.skills.catalog
        try:
            skill = catalog.find(name)
        except SkillNotFound as error:
            raise SkillNotFound(
                name, list(catalog.by_name), error.close, f"known: {', '.join(catalog.by_name)}"
            ) from error
        self._refuse_denied(skill)
        if not skill.trusted:
            raise PolicyDenied("skill_load", name, "its project is not trusted; `metier trust` trusts it")
        return skill

    # --- tools ---

    def offered(self) -> dict[toolbox.Role, str]:
        """The tools that the model has now: role to name. A tool is offered only where it can succeed."""
        return toolbox.offered(self)

    def tools(self) -> list[toolbox.Tool]:
        """Definitions to hand to a model: name, description, JSON schema."""
        return toolbox.definitions(self)

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> toolbox.ToolResult:
        """Answer a model's tool call in the profile's shape. A model's mistake is a result, never an exception."""
        tool = without_torn(tool)[: limits.NAME_LENGTH * 4]
        problem = toolbox.problem(arguments)
        with self._operation("call", tool=tool, arguments=problem or arguments) as output:
            result = toolbox.call(self, tool, arguments, problem)
            output.append(result.text)
            output.code = result.code
        return result

    async def acall(self, tool: str, arguments: Mapping[str, Any] | None = None) -> toolbox.ToolResult:
        return await asyncio.to_thread(self.call, tool, arguments)

    # --- state ---

    def loaded_versions(self) -> dict[str, int]:
        """The skills that are loaded, by path, with the time of the file that was loaded."""
        times = {skill.path: skill.mtime_ms for skill in self.skills.catalog.skills}
        return {seen.path: times.get(seen.path, 0) for seen in self._seen}

    def state(self) -> dict[str, Any]:
        """What the session knows, as data: names, paths and digests, never bodies."""
        more = {
            "windows": self.policy.windows(),
            "preloaded": list(self._standing),
            "injected": list(self._injected),
            "overrides": dict(self.overrides),
            "warned": sorted(map(list, self._reader.warned)),
        }
        known = self._seen.state(self.policy.redact_arguments)
        return {"version": 1, "id": self.id, **known, **{key: value for key, value in more.items() if value}}

    def keep(self) -> None:
        """Put what the session knows into its store; a new session is known to others from then on."""
        self._journal.save(self.id, self.state, self._seen.merge)
