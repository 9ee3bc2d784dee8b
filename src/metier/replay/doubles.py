"""Doubles for a replay: files, a runner and a catalog that return what the record of a session holds.

Each gets the frames of the operation that is being replayed and reads nothing else. The disk is never touched.
"""

import contextlib
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from metier import errors
from metier.catalog.snapshot import compare, restore
from metier.errors import PathEscape, ResourceError, ResourceNotFound
from metier.files.beneath import Content, Listing
from metier.files.source import ScriptFiles
from metier.hosts.schema import Profile
from metier.hosts.settings import Settings
from metier.model import REMOTE, SKILL_FILE, Changes, Skill
from metier.record.store import Frame
from metier.results import ChangedFile, Request, SearchResult
from metier.sandbox import HostAttempt, Job, OnOutput, Outcome, SandboxUnavailable, ScriptRefused, WrittenFile
from metier.session import recorded_hits
from metier.session.policy import REMOTE_LOAD, Policy
from metier.session.rules import Rule
from metier.session.skill_request import skill_request
from metier.skills import Skills


class RecordedFiles:
    """The files that the record holds for the replayed operation."""

    def __init__(self, artifact: Callable[[str], bytes], version: int) -> None:
        self._artifact, self._version = artifact, version
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
        return skill_request(REMOTE_LOAD, skill, path, digest=digest, version=self._version)

    def skill_file(self, skill: Skill, limit: int) -> Content:
        for frame in self._about(skill, "skill_loaded", "path", skill.path):
            mtime_ns = frame.get("mtime_ns", skill.mtime_ns)
            return Content(self._artifact(frame["digest"]), frame.get("size", 0), mtime_ns)
        return self.resource(skill, SKILL_FILE, limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        for frame in self._about(skill, "skill_resource_read", "path", path):
            return Content(self._artifact(frame["digest"]), frame["size"], skill.mtime_ns)
        for frame in (*self._about(skill, "tool_started"), *self._about(skill, "tool_failed")):
            if frame.get("digest"):
                data = self._artifact(frame["digest"])
                return Content(data, len(data), skill.mtime_ns)
            raise _refusal(frame | {"path": frame["script"]})
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

    def run_folder(self) -> tuple[str, str]:
        """The folder that the script was shown, and its current folder."""
        ran = (frame for frame in self.frames if frame["type"] in ("tool_started", "tool_failed"))
        return next(((frame.get("folder", ""), frame.get("cwd", "")) for frame in ran), ("", ""))

    def given_files(self) -> Mapping[str, bytes]:
        """The files that the run was given."""
        started = (frame for frame in self.frames if frame["type"] == "tool_started")
        return {one["path"]: self._artifact(one["digest"]) for frame in started for one in frame.get("files", ())}

    def secrets(self, skill: Skill, path: str) -> tuple[str, ...]:
        """The names of the secrets that a script was given, or would have been given."""
        for frame in (*self._about(skill, "tool_started"), *self._about(skill, "tool_failed")):
            return tuple(frame.get("secrets", ()))
        return ()

    def packages(self, skill: Skill, path: str) -> bytes:
        """The lock of the packages that a script ran with."""
        for frame in (*self._about(skill, "tool_started"), *self._about(skill, "tool_failed")):
            return self._artifact(frame["packages"]) if frame.get("packages") else b""
        return b""

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


class RecordedRunner:
    """Runs nothing. Returns the recorded output, files and exit code of a script, in the recorded chunks."""

    name = "recorded"

    def __init__(self, artifact: Callable[[str], bytes]) -> None:
        self._artifact = artifact
        self.frames: Sequence[Frame] = ()

    def problem(self) -> str | None:
        """Why no script can run: what the record says of a script that did not start for that reason."""
        refused = (frame for frame in self.frames if frame["type"] == "tool_failed" and frame.get("digest"))
        reasons = ("sandbox", SandboxUnavailable.__name__)  # the latter in version 0.1
        return next((frame["detail"] for frame in refused if frame["reason"] in reasons), None)

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
                refused = ScriptRefused(job.script, failed["reason"], "")
                refused.args = (detail,)
                raise refused
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

    async def arun(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        return self.run(job, on_output)


class RecordedAnswers:
    """What a person was asked in the replayed operation, and answered. Nothing else counts as asked.

    Policy may have changed between the question and the operation, so it does not decide what was asked.
    """

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames

    def __call__(self, requests: Iterable[Request]) -> Mapping[Request, str]:
        asked = [frame for frame in self.frames if frame["type"] == "policy_asked"]
        answers: dict[Request, str] = {}
        with contextlib.suppress(errors.MetierError):  # what is wrong with a request shows when it is performed
            for request in requests if asked else ():
                about = (request.tool, request.skill_name, request.digest)
                for frame in asked:
                    if (frame["tool"], frame.get("name", ""), frame.get("digest", "")) == about:
                        answers[request] = frame["answer"]
                        asked.remove(frame)
                        break
        return answers


class RecordedPolicy(Policy):
    """A recorded policy. After an answer to be remembered, it is the one that the record has next."""

    def __init__(self, given: Mapping[str, object], profile: Profile) -> None:
        self.frames: list[Frame] = []
        self._profile = profile
        self.take(given)

    def take(self, given: Mapping[str, object]) -> None:
        """Decide by these rules from now on."""
        rules = Policy.recorded(given, self._profile)
        for item in fields(Policy):
            setattr(self, item.name, getattr(rules, item.name))

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
        return recorded_hits.restore(query, json.loads(self._artifact(frame["hits"])), self.catalog.find_path)
