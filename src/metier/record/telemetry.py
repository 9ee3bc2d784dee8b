"""What the runtime does, as OpenTelemetry spans and metrics, for those who ask for it with `enable`.

A span is opened around each operation of a session and closed with it, in the caller's context, so that it stands below
the span of the agent that called. What it says comes from the events of that operation and from nowhere else. Without
`content` it carries names of skills and tools, counts and reasons, but nothing that a user, a model or a skill wrote.
Where nobody asked, `active` is `None` and nothing is imported.
"""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from metier.errors import MissingExtra
from metier.files.text import from_utf8

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from metier.catalog.build import Catalog
    from metier.hosts.profiles import Profile
    from metier.record.events import Event
    from metier.record.recorder import EventWriter

CONTENT_CHARACTERS: Final = 16_000
"""Of an argument or a result that is put into a span; backends drop or charge for more."""

_REFUSALS: Final = ("PolicyDenied", "PathEscape", "ScriptRefused", "ACCESS_DENIED", "PERMISSION_DENIED")
"""The codes with which an operation says that something is not allowed, in Python and to a model."""

active: "Telemetry | None" = None
"""What `enable` switched on; sessions and scans look here."""


def enable(
    *,
    content: bool = False,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
) -> "Telemetry":
    """Trace from now on, in every session of this process; without providers, those that the process has set.

    `content` adds arguments, queries, paths and results, except where policy redacts them.
    """
    global active
    try:
        active = Telemetry(content, tracer_provider, meter_provider)
    except ImportError as error:
        raise MissingExtra("telemetry", "otel") from error
    return active


def disable() -> None:
    """Trace no longer. What is under way ends its span."""
    global active
    active = None


class Telemetry:
    """The tracer and the instruments; what sessions and scans call while it is on."""

    def __init__(
        self, content: bool, tracer_provider: "TracerProvider | None", meter_provider: "MeterProvider | None"
    ) -> None:
        from opentelemetry import metrics, trace

        from metier import __version__

        self.content = content
        self._trace = trace
        self.unheard = tracer_provider is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        """Whether nobody takes the spans, because the process has set no provider yet."""
        self._tracer = trace.get_tracer("metier", __version__, tracer_provider)
        meter = metrics.get_meter("metier", __version__, meter_provider)
        self._counters = {
            name: meter.create_counter(f"metier.skills.{name}", unit, about)
            for name, unit, about in (
                ("loaded", "{skill}", "Skills that were activated."),
                ("searched", "{search}", "Searches of the catalog."),
                ("read", "{file}", "Files of skills that were read."),
                ("runs", "{run}", "Scripts of skills that were started."),
                ("refused", "{refusal}", "Operations that policy, a path check or a sandbox refused."),
            )
        }
        duration = meter.create_histogram
        self._operations = duration("metier.operation.duration", "s", "How long operations and scans took.")
        self._tools = duration("gen_ai.execute_tool.duration", "s", "How long tool calls took.")
        self._scripts = duration("metier.run.duration", "s", "How long scripts ran.")

    def count(self, what: str, attributes: Mapping[str, Any]) -> None:
        self._counters[what].add(1, dict(attributes))

    def script_ended(self, seconds: float, attributes: Mapping[str, Any]) -> None:
        self._scripts.record(seconds, dict(attributes))

    # --- scans ---

    def discovery(self, look: "Callable[[Any], Catalog]", progress: Any) -> "Catalog":
        """A look at the disk with a span around it that says what was found."""
        with self._timed("discover", {"metier.operation": "discover"}) as span:
            found = look(progress)
            span.set_attribute("metier.profile", found.profile.name)
            span.set_attribute("metier.roots", len(found.roots))
            for name, number in found.counts.as_dict().items():
                span.set_attribute(f"metier.skills.{name}", number)
        return found

    # --- operations of a session ---

    @contextmanager
    def operation(
        self, recorder: "EventWriter", profile: "Profile", operation: str, given: Mapping[str, Any]
    ) -> Generator[None, None, None]:
        """The span of one operation, current while it lasts. A replay, whose time is not ours, has none."""
        if not recorder.live:
            yield
            return
        tool = _tool(profile, given) if operation == "call" else ""
        attributes: dict[str, Any] = {"metier.operation": operation, "gen_ai.conversation.id": recorder.session_id}
        attributes["metier.profile"] = profile.name
        name = operation
        if tool:
            attributes |= {"gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
            # A framework that traces its tools has opened the span of this call; two would be counted as two calls.
            name = f"call {tool}" if self._inside_tool() else f"execute_tool {tool}"
            if not self._inside_tool():
                attributes["gen_ai.operation.name"] = "execute_tool"
        with self._timed(name, attributes) as span:
            watcher = _Watcher(self, span, operation)
            recorder.watch = watcher
            try:
                yield
            finally:
                recorder.watch = None
                watcher.close()

    def _inside_tool(self) -> bool:
        attributes: Any = getattr(self._trace.get_current_span(), "attributes", None) or {}
        return attributes.get("gen_ai.operation.name") == "execute_tool"

    @contextmanager
    def _timed(self, name: str, attributes: Mapping[str, Any]) -> "Generator[_Outcome, None, None]":
        """A span that is current while the block runs, and its duration in the metrics with how it ended."""
        started = time.perf_counter()
        span = self._tracer.start_span(name, attributes=attributes)
        outcome = _Outcome(span)
        # The API would write the exception's text into the span, which may quote what a user wrote.
        quiet: Any = {"record_exception": False, "set_status_on_exception": False}
        try:
            with self._trace.use_span(span, **quiet):
                yield outcome
        except BaseException as error:
            outcome.fail(type(error).__name__)
            raise
        finally:
            if outcome.error:
                span.set_status(self._trace.StatusCode.ERROR)
                span.set_attribute("error.type", outcome.error)
            span.end()
            self._measure(time.perf_counter() - started, attributes, outcome.error)

    def _measure(self, seconds: float, attributes: Mapping[str, Any], error: str) -> None:
        kept = ("metier.operation", "gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.operation.name")
        labels = {key: attributes[key] for key in kept if key in attributes} | ({"error.type": error} if error else {})
        self._operations.record(seconds, labels)
        if "gen_ai.operation.name" in labels:
            self._tools.record(seconds, labels)


def _tool(profile: "Profile", given: Mapping[str, Any]) -> str:
    """The tool that is called, if it is one; a model may write anything there, and a span's name is no place for it."""
    rules = profile.tools
    asked = given.get("tool")
    known = (rules.load, rules.search, rules.read, rules.output, rules.run)
    return str(asked) if asked in [name for name in known if name] else "unknown"


class _Outcome:
    """A span and the class of the error with which it ends; the first one said counts."""

    def __init__(self, span: "Span") -> None:
        self._span, self.error = span, ""

    def set_attribute(self, name: str, value: Any) -> None:
        self._span.set_attribute(name, value)

    def fail(self, error: str) -> None:
        self.error = self.error or error


class _Watcher:
    """Sees the events of one operation as they are noted, and writes what they say into its span and the counters."""

    def __init__(self, telemetry: Telemetry, span: _Outcome, operation: str) -> None:
        self._telemetry, self._span, self._operation = telemetry, span, operation
        self._loaded: dict[str, Any] = {}
        self._script: dict[str, Any] = {}
        self._refusal = ""

    def __call__(self, event: "Event", artifacts: Mapping[str, bytes]) -> None:
        handler = getattr(self, f"_{event.type}", None)
        if handler is not None:
            handler(event.data(), artifacts)

    def close(self) -> None:
        """Count a refusal once, however many events speak of it."""
        if self._refusal:
            self._span.set_attribute("metier.refusal.reason", self._refusal)
            labels = {"metier.operation": self._operation, "metier.refusal.reason": self._refusal}
            self._telemetry.count("refused", labels)

    def _say(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            self._span.set_attribute("metier." + name.replace("_", ".", 1), value)

    def _reveal(self, name: str, value: object) -> None:
        """What somebody wrote, where content was asked for."""
        if self._telemetry.content and value not in (None, "", {}, []):
            text = value if isinstance(value, str) else _json(value)
            more = len(text) - CONTENT_CHARACTERS
            self._span.set_attribute(name, text if more <= 0 else f"{text[:-more]} [{more} characters left out]")

    # --- one method for each type of event that says something; the names are those of the types ---

    def _session_called(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        given = cast("Mapping[str, Any]", data.get("args", {}))
        if "by" in given:
            self._say(operation_by=given["by"])
        if self._operation == "call":
            self._reveal("gen_ai.tool.call.arguments", given.get("arguments"))
        else:
            self._reveal("metier.operation.arguments", given)

    def _session_returned(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        code = str(data.get("code", ""))
        if data["status"] == "error":
            self._span.fail(code or "error")
            if code in _REFUSALS:
                self._refusal = self._refusal or code
        text = from_utf8(artifacts.get(data["output"], b""))
        self._reveal("gen_ai.tool.call.result" if self._operation == "call" else "metier.operation.result", text)

    def _skill_loaded(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        self._loaded = {"metier.skill.name": data["name"], "metier.skill.again": data.get("already_loaded", False)}
        self._say(skill_name=data["name"], skill_digest=data["digest"], skill_size=data.get("size", 0))
        self._say(skill_again=data.get("already_loaded", False), skill_truncated=data.get("truncated", False))
        self._reveal("metier.skill.path", data["path"])

    def _skill_invoked(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        self._say(skill_name=data["name"], skill_mode=data["mode"])
        if self._loaded:  # a host that leaves loading to the model only names the skill
            self._telemetry.count("loaded", {**self._loaded, "metier.skill.mode": data["mode"]})

    def _skill_resource_read(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        self._say(skill_name=data["name"], resource_size=data["size"], resource_truncated=data.get("truncated", False))
        self._reveal("metier.resource.path", data["path"])
        self._telemetry.count("read", {"metier.skill.name": data["name"]})

    def _skill_resource_refused(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        self._refusal = data["reason"]
        self._say(skill_name=data["name"])
        self._reveal("metier.resource.path", data["path"])

    def _skills_searched(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        self._say(search_count=data["count"], search_truncated=data.get("truncated", False))
        self._reveal("metier.search.query", data.get("query"))
        self._telemetry.count("searched", {"metier.search.found": data["count"] > 0})

    def _tool_started(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        self._script = {"metier.skill.name": data["name"], "metier.run.sandbox": data["sandbox"]}
        self._say(skill_name=data["name"], run_sandbox=data["sandbox"], run_digest=data["digest"])
        self._say(run_grants=list(data.get("grants", ())))
        self._reveal("metier.run.script", data["script"])
        self._telemetry.count("runs", self._script)

    def _tool_ended(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        self._say(run_exit_code=data["exit_code"], run_ended=data.get("ended", "exit"))
        ended = {**self._script, "metier.run.ended": data.get("ended", "exit")}
        self._telemetry.script_ended(data["duration_ms"] / 1000, ended)

    def _tool_failed(self, data: Mapping[str, Any], artifacts: Mapping[str, bytes]) -> None:
        self._say(skill_name=data["name"])
        if not self._script:  # else it ran, and was ended at a limit
            self._refusal = data["reason"]


def _json(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, default=str)
