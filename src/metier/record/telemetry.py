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
    "skill_loaded": ("skill.name=name", "skill.digest", "skill.size", "skill.again=already_loaded", "skill.truncated"),
    "skill_invoked": ("skill.name=name", "skill.mode"),
    "skill_resource_read": ("skill.name=name", "resource.size", "resource.truncated"),
    "skill_resource_refused": ("skill.name=name", "refusal.reason"),
    "skills_searched": ("search.count", "search.truncated"),
    "tool_started": ("skill.name=name", "run.sandbox", "run.digest"),
    "tool_ended": ("run.exit_code", "run.ended"),
    "tool_failed": ("skill.name=name",),
}
"""What the frames of an operation say of it, each attribute with its field where that has another name."""
_CONTENT: Final = {
    "skill_loaded": "skill.path",
    "skill_resource_read": "resource.path",
    "skill_resource_refused": "resource.path",
    "skills_searched": "search.query",
    "tool_started": "run.script",
}
"""What somebody wrote: the field of a frame that is named as the attribute ends."""

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
            outcome.set(**{"metier.profile": found.profile.name, "metier.roots": len(found.roots)})
            outcome.set(**{f"metier.skills.{name}": number for name, number in found.counts.as_dict().items()})
        return found

    @contextmanager
    def operation(
        self, recorder: "EventWriter", profile: "Profile", operation: str, given: Mapping[str, object]
    ) -> "Generator[EventWatcher, None, None]":
        """The span of one operation, which is current while it runs. The answer is to be shown each of its events."""
        attributes: dict[str, AttributeValue] = {"metier.operation": operation, "metier.profile": profile.name}
        attributes["gen_ai.conversation.id"] = recorder.session_id
        name = operation
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
        span = self._tracer.start_span(name, attributes=attributes)
        outcome = _Outcome(span, "gen_ai.tool.call" if "gen_ai.tool.name" in attributes else "metier.operation", self)
        try:
            # Without the flags, the text of an exception goes into the span, and it may quote what a user wrote.
            with self._trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield outcome
        except BaseException as error:
            outcome.error = outcome.error or type(error).__name__
            raise
        finally:
            kept = ("metier.operation", "gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.operation.name")
            labels = {key: attributes[key] for key in kept if key in attributes}
            if outcome.error:
                span.set_status(self._trace.StatusCode.ERROR)
                span.set_attribute("error.type", outcome.error)
                labels["error.type"] = outcome.error
            span.end()
            for histogram in (self._operations, *([self._tools] if "gen_ai.operation.name" in labels else [])):
                histogram.record(time.perf_counter() - started, labels)


class _Outcome:
    """What the frames of an operation say of it, in its span. The first error is that of the operation."""

    def __init__(self, span: "Span", prefix: str, telemetry: Telemetry) -> None:
        self._span, self._prefix, self._content = span, prefix, telemetry.content
        self.error, self._refused = "", False

    def set(self, **attributes: "AttributeValue") -> None:
        self._span.set_attributes(attributes)

    def watch(self, event: "Event", frame: "Frame", artifacts: Mapping[str, bytes]) -> None:
        kind = event.type
        self._refused |= kind == "skill_resource_refused"
        for attribute, _, field in (entry.partition("=") for entry in _ATTRIBUTES.get(kind, ())):
            self._span.set_attribute(f"metier.{attribute}", frame[field or attribute.rpartition(".")[2]])
        if kind in _CONTENT:
            self._add(f"metier.{_CONTENT[kind]}", frame.get(_CONTENT[kind].rpartition(".")[2]))
        if kind == "tool_started":
            self._span.set_attribute("metier.run.grants", recorded_tools(frame.get("grants")))
        elif kind == "session_called":
            given: Mapping[str, object] = frame["args"]
            if "by" in given:
                self._span.set_attribute("metier.operation.by", str(given["by"]))
            self._add(f"{self._prefix}.arguments", given.get("arguments") if "tool" in self._prefix else given)
        elif kind == "session_returned":
            if frame["status"] == "error":
                self.error = self.error or str(frame.get("code") or "error")
                if self.error in REFUSALS and not self._refused:
                    self._span.set_attribute("metier.refusal.reason", self.error)
            self._add(f"{self._prefix}.result", from_utf8(artifacts.get(frame["output"], b"")))

    def _add(self, name: str, value: object) -> None:
        """Set an attribute that a user, a model or a skill wrote, if content is enabled."""
        if self._content and value not in (None, "", {}, []):
            import json

            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            more = len(text) - CONTENT_CHARACTERS
            self._span.set_attribute(name, text if more <= 0 else f"{text[:-more]} [{more} characters left out]")
