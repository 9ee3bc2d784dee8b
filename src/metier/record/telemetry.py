"""OpenTelemetry spans for operations and scans, and how long they took, once `enable` was called.

Each operation of a session has a span in the caller's context, so it is a child of the span of the agent that called.
Its attributes come only from the frames of that operation. Without `content` they are names of skills and tools, counts
and reasons, and nothing that a user, a model or a skill wrote. While telemetry is off, `active` is `None` and nothing
of OpenTelemetry is imported.
"""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from metier.errors import report_missing
from metier.files.text import from_utf8
from metier.values.grants import recorded_tools

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from metier.catalog.build import Catalog
    from metier.hosts.profiles import Profile
    from metier.record.events import Event
    from metier.record.store import Frame
    from metier.record.writer import EventWatcher, EventWriter

ScanProgress: TypeAlias = "Callable[[int], None] | None"

CONTENT_CHARACTERS: Final = 16_000
"""The longest argument or result in a span; backends drop or charge for more."""

REFUSALS: Final = ("PolicyDenied", "PathEscape", "ScriptRefused", "ACCESS_DENIED", "PERMISSION_DENIED")
"""The error codes for something that is not allowed, in Python and in the answer to a model."""

_ATTRIBUTES: Final = {
    "skill_loaded": "skill.name=name skill.digest skill.size skill.again=already_loaded skill.truncated +skill.path",
    "skill_unloaded": "skill.name=name",
    "skill_invoked": "skill.name=name skill.mode",
    "skill_resource_read": "skill.name=name resource.size resource.truncated +resource.path",
    "skill_resource_refused": "skill.name=name refusal.reason +resource.path",
    "skills_searched": "search.count search.truncated +search.query",
    "tool_started": "skill.name=name run.sandbox run.digest +run.script",
    "tool_ended": "run.exit_code run.ended",
    "tool_failed": "skill.name=name",
}
"""What the frames of an operation say of it: each attribute, with its field where that has another name.
What begins with `+` somebody wrote, so it is content."""

_LABELS: Final = ("metier.operation", "gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.operation.name")
"""The attributes that metrics have, too."""

active: "Telemetry | None" = None
"""What `enable` created. Sessions and scans use it."""


def enable(
    *,
    content: bool = False,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
) -> "Telemetry":
    """Trace every session of this process from now on. The default providers are those that the process has set.

    `content` adds arguments, queries, paths and results, except where policy redacts them.
    """
    global active
    try:
        active = Telemetry(content, tracer_provider, meter_provider)
    except ImportError as error:
        report_missing(error, "telemetry", "otel")
    return active


def disable() -> None:
    """Stop tracing. Operations that are running still end their spans."""
    global active
    active = None


class Telemetry:
    """The tracer and the instruments that sessions and scans use while telemetry is on."""

    def __init__(
        self, content: bool, tracer_provider: "TracerProvider | None", meter_provider: "MeterProvider | None"
    ) -> None:
        from importlib.metadata import version

        from opentelemetry import metrics, trace

        self.content, self._trace = content, trace
        self.dropped = tracer_provider is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        """Whether the spans are dropped because the process has set no provider yet."""
        self._tracer = trace.get_tracer("metier", version("metier"), tracer_provider)
        histogram = metrics.get_meter("metier", version("metier"), meter_provider).create_histogram
        self._operations = histogram("metier.operation.duration", "s", "How long operations and scans took.")
        self._tools = histogram("gen_ai.execute_tool.duration", "s", "How long tool calls took.")

    def discovery(self, scan: "Callable[[ScanProgress], Catalog]", progress: ScanProgress) -> "Catalog":
        """Scan the disk inside a span with the counts of what was found."""
        with self._timed("discover", {"metier.operation": "discover"}) as outcome:
            found = scan(progress)
            outcome.set("metier.profile", found.profile.name)
            outcome.set("metier.roots", len(found.roots))
            for name, number in found.counts.as_dict().items():
                outcome.set(f"metier.skills.{name}", number)
        return found

    @contextmanager
    def operation(
        self, recorder: "EventWriter", profile: "Profile", operation: str, given: Mapping[str, object]
    ) -> "Generator[EventWatcher, None, None]":
        """The span of one operation, which is current while it runs. The answer is to be shown each of its events."""
        attributes: dict[str, AttributeValue] = {"metier.operation": operation, "metier.profile": profile.name}
        name, attributes["gen_ai.conversation.id"] = operation, recorder.session_id
        if operation == "call":
            # A model can write any text there.
            asked = given.get("tool")
            tool = str(asked) if asked in profile.tools.by_role().values() else "unknown"
            attributes |= {"gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
            # A framework that traces its tools has already opened a span for this call. A second one would count twice.
            around: Mapping[str, object] = getattr(self._trace.get_current_span(), "attributes", None) or {}
            if around.get("gen_ai.operation.name") == "execute_tool":
                name = f"call {tool}"
            else:
                name, attributes["gen_ai.operation.name"] = f"execute_tool {tool}", "execute_tool"
        with self._timed(name, attributes) as outcome:
            yield outcome.watch

    @contextmanager
    def _timed(self, name: str, attributes: "dict[str, AttributeValue]") -> "Generator[_Outcome, None, None]":
        """A span that is current while the block runs. Its duration and its error are recorded as metrics."""
        started = time.perf_counter()
        # Without the flags, the text of an exception goes into the span, and it may quote what a user wrote.
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            outcome = _Outcome(span, "gen_ai.tool.name" in attributes, self.content)
            try:
                yield outcome
            except BaseException as error:
                outcome.error = outcome.error or type(error).__name__
                raise
            finally:
                labels = {key: value for key, value in attributes.items() if key in _LABELS}
                if outcome.error:
                    span.set_status(self._trace.StatusCode.ERROR)
                    span.set_attribute("error.type", outcome.error)
                    labels["error.type"] = outcome.error
                for histogram in (self._operations, *([self._tools] if "gen_ai.operation.name" in labels else [])):
                    histogram.record(time.perf_counter() - started, labels)


class _Outcome:
    """What the frames of an operation say of it, in its span. The first error is that of the operation."""

    def __init__(self, span: "Span", of_tool: bool, content: bool) -> None:
        self.set, self._of_tool, self._content = span.set_attribute, of_tool, content
        self._prefix = "gen_ai.tool.call" if of_tool else "metier.operation"
        self.error, self._refused = "", False

    def watch(self, event: "Event", frame: "Frame", artifacts: Mapping[str, bytes]) -> None:
        kind = event.type
        self._refused |= kind == "skill_resource_refused"
        for attribute, _, field in (entry.partition("=") for entry in _ATTRIBUTES.get(kind, "").split()):
            value = frame.get(field or attribute.rpartition(".")[2])
            if attribute.startswith("+"):
                self._add(f"metier.{attribute[1:]}", value)
            else:
                self.set(f"metier.{attribute}", value)
        if kind == "tool_started":
            self.set("metier.run.grants", recorded_tools(frame.get("grants")))
        elif kind == "session_called":
            given: Mapping[str, object] = frame["args"]
            if "by" in given:
                self.set("metier.operation.by", str(given["by"]))
            self._add(f"{self._prefix}.arguments", given.get("arguments") if self._of_tool else given)
        elif kind == "session_returned":
            if frame["status"] == "error":
                self.error = self.error or str(frame.get("code") or "error")
                if self.error in REFUSALS and not self._refused:
                    self.set("metier.refusal.reason", self.error)
            self._add(f"{self._prefix}.result", from_utf8(artifacts.get(frame["output"], b"")))

    def _add(self, name: str, value: object) -> None:
        """Set an attribute that a user, a model or a skill wrote, if content is enabled."""
        if self._content and value not in (None, "", {}, []):
            import json  # only a process that traces needs it

            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            more = len(text) - CONTENT_CHARACTERS
            self.set(name, text if more <= 0 else f"{text[:-more]} [{more} characters left out]")
