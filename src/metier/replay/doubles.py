"""The world of a record: files, answers, a runner and a catalog that return what the record of a session holds.

Each gets the frames of the step that is being replayed and reads nothing else. The disk is never touched.
"""

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import fields

from metier import errors
from metier.catalog.snapshot import compare, restore
from metier.errors import PathEscape, ResourceError, ResourceNotFound
from metier.files.beneath import Content, Listing
from metier.files.source import ScriptFiles
from metier.hosts.schema import Profile, RunRules
from metier.hosts.settings import Settings
from metier.policy.decide import Policy
from metier.policy.rules import REMOTE_LOAD, Rule, skill_request
from metier.record.store import Frame
from metier.running import grants
from metier.running.grants import RunGrant, kinds
from metier.running.sandbox import HostAttempt, Job, OnOutput, Outcome, SandboxUnavailable, ScriptRefused, WrittenFile
from metier.running.scripts import WantedRun
from metier.skills import Skills
from metier.values.results import ChangedFile, Request, SearchResult
from metier.values.skill import REMOTE, SKILL_FILE, Changes, JsonObject, Skill


class RecordedFiles:
    """The files that the record holds for the replayed operation."""

    def __init__(self, artifact: Callable[[str], bytes]) -> None:
        self._artifact = artifact
        self.frames: Sequence[Frame] = ()

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        """The recorded approval requests. A skill from an MCP server is approved or refused before it is read."""
        about = [frame for frame in self._about(skill, "policy_asked") if frame["tool"] == REMOTE_LOAD]
        if about:
            return [self._request(skill, frame.get("path", ""), frame.get("digest", "")) for frame in about]
        if skill.scope == REMOTE and not any(frame.get("name") == skill.name for frame in self.frames):
            return [self._request(skill)]  # a rule refused it before anything was read
        return ()

    def _request(self, skill: Skill, path: str = "", digest: str = "") -> Request:
        return skill_request(REMOTE_LOAD, skill, path, digest=digest)

    def skill_file(self, skill: Skill, limit: int) -> Content:
        for frame in self._about(skill, "skill_loaded", "path", skill.path):
            mtime_ns = frame.get("mtime_ns", skill.mtime_ns)
            return Content(self._artifact(frame["digest"]), frame.get("size", 0), mtime_ns)
        return self.resource(skill, SKILL_FILE, limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        for frame in self._about(skill, "skill_resource_read", "path", path):
            return Content(self._artifact(frame["digest"]), frame["size"], skill.mtime_ns)
        for frame in self._about(skill, "skill_resource_refused"):
            if frame.get("digest"):
                data = self._artifact(frame["digest"])
                return Content(data, len(data), skill.mtime_ns)
            raise _refusal(frame)
        raise ResourceNotFound(path)

    def script(self, skill: Skill, path: str) -> ScriptFiles:
        """A script, and the list of the files that it ran with."""
        for frame in (*self._about(skill, "tool_started"), *self._about(skill, "tool_failed")):
            if frame.get("digest"):
                return ScriptFiles(content=self._artifact(frame["digest"]), listing=self._artifact(frame["tree"]))
            raise _refusal(frame | {"path": frame["script"]})
        raise ResourceNotFound(path)

    def grants(self, skill: Skill, path: str) -> Mapping[str, JsonObject]:
        """What a script was given, or would have been given. Raises where it was refused because of that."""
        refusals = {reason for kind in kinds() for reason in kind.refusals}
        for frame in (*self._about(skill, "tool_started"), *self._about(skill, "tool_failed")):
            if frame.get("reason") in refusals:
                raise _script_refused(path, frame)
            return frame.get("grants", {})
        return {}

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        for frame in self._about(skill, "skill_loaded", "path", skill.path):
            truncated, left_out = bool(frame.get("files_truncated")), int(frame.get("files_left_out", 0))
            return Listing(tuple(frame.get("files", ())), truncated, left_out)
        return Listing((), False)

    def folder(self, skill: Skill) -> str:
        return skill.dir

    def _about(self, skill: Skill, kind: str, key: str = "name", value: str = "") -> Iterator[Frame]:
        wanted = value or skill.name
        return (f for f in self.frames if f["type"] == kind and f["name"] == skill.name and f.get(key) == wanted)


def _refusal(frame: Frame) -> ResourceError:
    """The recorded error, with its class, reason and message."""
    reason = frame["reason"]
    kinds: dict[str, type[ResourceError]] = {"not-found": ResourceNotFound, "binary": errors.BinaryResource}
    kind = PathEscape if reason == "link" else kinds.get(reason, ResourceError)
    error = kind.__new__(kind)
    ResourceError.__init__(error, frame["detail"], path=frame["path"], reason=reason)
    return error


def _script_refused(script: str, frame: Frame) -> ScriptRefused:
    refused = ScriptRefused(script, frame["reason"], "")
    refused.args = (frame["detail"],)
    return refused


class RecordedRunner:
    """Runs nothing. Returns the recorded output, files and exit code of a script, in the recorded chunks."""

    name = "recorded"

    def __init__(self, artifact: Callable[[str], bytes]) -> None:
        self._artifact = artifact
        self.frames: Sequence[Frame] = ()

    def problem(self) -> str | None:
        """Why no script can run: what the record says of a script that did not start for that reason."""
        refused = (frame for frame in self.frames if frame["type"] == "tool_failed" and frame.get("digest"))
        return next((frame["detail"] for frame in refused if frame["reason"] == "sandbox"), None)

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        for frame in self.frames:
            if frame["type"] == "tool_started":
                job.started(tuple(frame.get("protections", ())))
            if frame["type"] in ("tool_stdout", "tool_stderr") and on_output is not None:
                on_output("stdout" if frame["type"] == "tool_stdout" else "stderr", frame["text"].encode())
            if frame["type"] == "tool_network" and job.on_attempt is not None:
                reason = frame.get("reason", "")
                job.on_attempt(HostAttempt(frame.get("host", ""), frame["port"], frame["allowed"], reason))
        ended = next((frame for frame in self.frames if frame["type"] == "tool_ended"), None)
        failed = next((frame for frame in self.frames if frame["type"] == "tool_failed"), None)
        if ended is None:
            detail = failed["detail"] if failed else "the record has no end of this run"
            if failed and failed["reason"] != "sandbox":
                raise _script_refused(job.script, failed)
            raise SandboxUnavailable(detail)
        files = tuple(
            WrittenFile(one["path"], one["size"], one["digest"], self._artifact(one["digest"]))
            for one in ended["artifacts"]
        )
        return Outcome(
            exit_code=ended["exit_code"],
            ended=ended.get("ended", "exit"),
            duration_ms=ended["duration_ms"],
            stdout=self._artifact(ended["stdout"]),
            stderr=self._artifact(ended["stderr"]),
            files=files,
            protections=tuple(ended.get("protections", ())),
            notes=tuple(ended.get("notes", ())),
            changes=tuple(ChangedFile(**one) for one in ended.get("changes", ())),
            attempts_left_out=ended.get("attempts_left_out", 0),
        )


class RecordedAnswers(Mapping[Request, str]):
    """What a person was asked in the replayed operation, and answered. Nothing else counts as asked.

    Policy may have changed between the question and the operation, so it does not decide what was asked.
    """

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._asked = [frame for frame in frames if frame["type"] == "policy_asked"]
        self._given: dict[Request, str] = {}

    def __getitem__(self, request: Request) -> str:
        about = (request.tool, request.skill_name, request.digest)
        for frame in self._asked if request not in self._given else ():
            if (frame["tool"], frame.get("name", ""), frame.get("digest", "")) == about:
                self._given[request] = frame["answer"]
                self._asked.remove(frame)
                break
        return self._given[request]

    def __iter__(self) -> Iterator[Request]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given) + len(self._asked)


class RecordedWorld:
    """What the outside decided in the step of a session that is replayed, as its frames say."""

    telemetry: None = None  # what happened then was watched then

    def __init__(self, artifact: Callable[[str], bytes], *, can_run: bool) -> None:
        self.files, self.runner = RecordedFiles(artifact), RecordedRunner(artifact)
        self._can_run = can_run
        self._frames: Sequence[Frame] = ()
        self._noted = 0

    def take(self, frames: Sequence[Frame]) -> None:
        """Go on with the frames of another step."""
        self._frames = self.files.frames = self.runner.frames = frames
        self._noted = 0
        started = (frame["sandbox"] for frame in frames if frame["type"] == "tool_started")
        self.runner.name = next(started, "recorded")

    def id(self) -> str:
        self._noted += 1
        if self._noted > len(self._frames):
            return f"extra-{self._frames[0]['id']}-{self._noted}"
        return str(self._frames[self._noted - 1]["id"])

    def time(self, after_ms: int) -> int:
        """The time of the frame whose id was given last."""
        return int(self._frames[self._noted - 1]["timestamp_ms"]) if self._noted <= len(self._frames) else 0

    def process(self) -> str:
        return next((str(frame["process"]) for frame in self._frames if "process" in frame), "")

    def has_ended(self, name: str) -> bool:
        """The record has the end of every operation that was found to have none."""
        return False

    def can_sandbox(self, rules: RunRules) -> bool:
        return self._can_run

    def answers(self, ask: Callable[[], Mapping[Request, str]]) -> Mapping[Request, str]:
        return RecordedAnswers(self._frames)

    def script(self, skill: Skill, path: str) -> ScriptFiles:
        return self.files.script(skill, path)

    def grants(self, run: WantedRun) -> tuple[RunGrant, ...]:
        """What a script was given, or would have been given. Raises where it was refused because of that."""
        grants.check(run)
        return grants.read(self.files.grants(run.script.skill, run.script.path))


class RecordedPolicy(Policy):
    """A recorded policy. After an answer to be remembered, it is the one that the record has next."""

    def __init__(self, given: Mapping[str, object], profile: Profile) -> None:
        self.frames: list[Frame] = []
        self._profile = profile
        self.take(given)

    def take(self, given: Mapping[str, object]) -> None:
        """Decide by these rules from now on."""
        rules = Policy.from_settings(given, self._profile, recorded=True)
        for item in fields(Policy):
            setattr(self, item.name, getattr(rules, item.name))

    def under(self, settings: Settings) -> Policy:
        """The same: a record keeps the rules of its time, also those that nothing could match."""
        return self

    def remember(self, request: Request) -> Rule:
        rule = super().remember(request)
        if self.frames:
            self.take(self.frames.pop(0)["policy"])
        return rule


class RecordedSkills(Skills):
    """The recorded catalog. It changes only where the record does, and a search returns the recorded hits."""

    _data = b""
    _named = False
    """Whether the session has put the catalog into its record."""

    def __init__(self, data: bytes, artifact: Callable[[str], bytes]) -> None:
        """`data` is the first catalog of the record."""
        self._next: list[bytes] = []
        self.show([data])
        self.settings = Settings(
            profile=self.catalog.profile,
            own_profile=self.catalog.profile,
            place=self.catalog.place,
            config_folder="",
            cache_folder="",
            store="memory:",
            store_required=True,
            permissions={},
            origins={},
        )
        self._artifact = artifact
        self.frames: Sequence[Frame] = ()

    def show(self, catalogs: Sequence[bytes]) -> None:
        """Replace the catalog with others from the record: the first now, each further one when it is looked for."""
        self._next = list(catalogs[1:])
        if catalogs[0] != self._data:
            self._replace(catalogs[0])

    def _replace(self, data: bytes) -> None:
        self.catalog = restore(data.decode())
        self._data, self._named = data, False

    def snapshot(self) -> bytes:
        self._named = True
        return self._data

    def refresh(self) -> Changes:
        if not self._named or not self._next:  # what a scan before the operation found is there already
            return Changes()
        before = self.catalog
        self._replace(self._next.pop(0))
        return compare(before, self.catalog)

    def search(
        self,
        query: str,
        *,
        limit: int | None = None,
        scope: str | None = None,
        among: Container[str] | None = None,
        context: str | None = None,
    ) -> SearchResult:
        frame = next((frame for frame in self.frames if frame["type"] == "skills_searched"), None)
        if frame is None:
            return SearchResult(query, 0, False, ())
        return SearchResult.restored(query, json.loads(self._artifact(frame["hits"])), self.catalog.find_path)
