"""OpenTelemetry spans and metrics for operations and scans, once `enable` was called.

Each operation of a session has a span in the caller's context, so it is a child of the span of the agent that called.
Its attributes come only from the events of that operation. Without `content` they are names of skills and tools, counts
and reasons, and nothing that a user, a model or a skill wrote. While telemetry is off, `active` is `None` and nothing
of OpenTelemetry is imported. The attributes `gen_ai.skill.*` are not stable yet, so they have a switch of their own.
"""

import os
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
    from metier.record import events
    from metier.record.writer import EventWatcher, EventWriter

ScanProgress: TypeAlias = "Callable[[int], None] | None"
Attributes: TypeAlias = "Mapping[str, AttributeValue]"

CONTENT_CHARACTERS: Final = 16_000
"""The longest argument or result in a span; backends drop or charge for more."""

_REFUSALS: Final = ("PolicyDenied", "PathEscape", "ScriptRefused", "ACCESS_DENIED", "PERMISSION_DENIED")
"""The error codes for something that is not allowed, in Python and in the answer to a model."""

_OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
_LATEST: Final = "gen_ai_latest_experimental"
"""The variable of OpenTelemetry that asks for conventions which are not stable, and its value for generative AI."""

active: "Telemetry | None" = None
"""What `enable` created. Sessions and scans use it."""


def enable(
    *,
    content: bool = False,
    latest: bool | None = None,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
) -> "Telemetry":
    """Trace every session of this process from now on. The default providers are those that the process has set.

    `content` adds arguments, queries, paths and results, except where policy redacts them. `latest` follows the
    conventions for skills, which may still change; by default, if `OTEL_SEMCONV_STABILITY_OPT_IN` has
    `gen_ai_latest_experimental`.
    """
    global active
    if latest is None:
        latest = _LATEST in [one.strip() for one in os.environ.get(_OPT_IN, "").split(",")]
    try:
        active = Telemetry(content, latest, tracer_provider, meter_provider)
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
        self,
        content: bool,
        latest: bool,
        tracer_provider: "TracerProvider | None",
        meter_provider: "MeterProvider | None",
    ) -> None:
        from importlib.metadata import version

        from opentelemetry import metrics, trace

        self.content, self.latest = content, latest
        self._trace = trace
        self.unheard = tracer_provider is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        """Whether the spans are dropped because the process has set no provider yet."""
        self._tracer = trace.get_tracer("metier", version("metier"), tracer_provider)
        meter = metrics.get_meter("metier", version("metier"), meter_provider)
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

    def count(self, what: str, attributes: Attributes) -> None:
        self._counters[what].add(1, dict(attributes))

    def script_ended(self, seconds: float, attributes: Attributes) -> None:
        self._scripts.record(seconds, dict(attributes))

    # --- scans ---

    def discovery(self, scan: "Callable[[ScanProgress], Catalog]", progress: ScanProgress) -> "Catalog":
        """Scan the disk inside a span with the counts of what was found."""
        with self._timed("discover", {"metier.operation": "discover"}) as span:
            found = scan(progress)
            span.set_attribute("metier.profile", found.profile.name)
            span.set_attribute("metier.roots", len(found.roots))
            for name, number in found.counts.as_dict().items():
                span.set_attribute(f"metier.skills.{name}", number)
        return found

    # --- operations of a session ---

    @contextmanager
    def operation(
        self, recorder: "EventWriter", profile: "Profile", operation: str, given: Mapping[str, object]
    ) -> "Generator[EventWatcher, None, None]":
        """The span of one operation, which is current while it runs. The answer is to be shown each of its events."""
        tool = _tool(profile, given) if operation == "call" else ""
        attributes: dict[str, AttributeValue] = {
            "metier.operation": operation,
            "gen_ai.conversation.id": recorder.session_id,
        }
        attributes["metier.profile"] = profile.name
        name, executes = operation, False
        if tool:
            attributes |= {"gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
            # A framework that traces its tools has already opened a span for this call. A second one would count twice.
            executes = not self._inside_tool()
            name = f"execute_tool {tool}" if executes else f"call {tool}"
            if executes:
                attributes["gen_ai.operation.name"] = "execute_tool"
        with self._timed(name, attributes) as span:
            watcher = _SpanWatcher(self, span, operation, name if executes and self.latest else "")
            try:
                yield watcher
            finally:
                watcher.close()

    def _inside_tool(self) -> bool:
        attributes: Mapping[str, object] = getattr(self._trace.get_current_span(), "attributes", None) or {}
        return attributes.get("gen_ai.operation.name") == "execute_tool"

    @contextmanager
    def _timed(self, name: str, attributes: Attributes) -> "Generator[_SpanOutcome, None, None]":
        """A span that is current while the block runs. Its duration and its error are recorded as metrics."""
        started = time.perf_counter()
        span = self._tracer.start_span(name, attributes=attributes)
        outcome = _SpanOutcome(span)
        try:
            # Without the flags, the text of an exception goes into the span, and it may quote what a user wrote.
            with self._trace.use_span(span, record_exception=False, set_status_on_exception=False):
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

    def _measure(self, seconds: float, attributes: Attributes, error: str) -> None:
        kept = ("metier.operation", "gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.operation.name")
        labels = {key: attributes[key] for key in kept if key in attributes} | ({"error.type": error} if error else {})
        self._operations.record(seconds, labels)
        if "gen_ai.operation.name" in labels:
            self._tools.record(seconds, labels)


def _tool(profile: "Profile", given: Mapping[str, object]) -> str:
    """Return the name of the called tool, or "unknown": a model can write any text there."""
    rules = profile.tools
    asked = given.get("tool")
    known = (rules.load, rules.search, rules.read, rules.output, rules.run)
    return str(asked) if asked in [name for name in known if name] else "unknown"


class _SpanOutcome:
    """A span and the error with which it ends; only the first one is kept."""

    def __init__(self, span: "Span") -> None:
        self._span, self.error = span, ""

    def set_attribute(self, name: str, value: "AttributeValue") -> None:
        self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, error: str) -> None:
        self.error = self.error or error


class _SpanWatcher:
    """Receives the events of one operation as they are recorded, and sets the attributes of its span from them."""

    def __init__(self, telemetry: Telemetry, span: _SpanOutcome, operation: str, base: str) -> None:
        """`base` is the beginning of a name that goes on with the skill; empty for a span that keeps its name."""
        self._telemetry, self._span, self._operation, self._base = telemetry, span, operation, base
        self._loaded: dict[str, AttributeValue] = {}
        self._script: dict[str, AttributeValue] = {}
        self._refusal = ""

    def __call__(self, event: "events.Event", frame: object, artifacts: Mapping[str, bytes]) -> None:
        handle = getattr(self, f"_{event.type}", None)
        if handle is not None:
            handle(event, artifacts)

    def close(self) -> None:
        """Count a refusal once, however many events report it."""
        if self._refusal:
            self._span.set_attribute("metier.refusal.reason", self._refusal)
            labels = {"metier.operation": self._operation, "metier.refusal.reason": self._refusal}
            self._telemetry.count("refused", labels)

    def _set(self, **attributes: "AttributeValue") -> None:
        """Set attributes: `skill_name` becomes `metier.skill.name`."""
        for name, value in attributes.items():
            self._span.set_attribute("metier." + name.replace("_", ".", 1), value)

    def _set_content(self, name: str, value: object) -> None:
        """Set an attribute that a user, a model or a skill wrote, if content is enabled."""
        if self._telemetry.content and value not in (None, "", {}, []):
            text = value if isinstance(value, str) else _json(value)
            more = len(text) - CONTENT_CHARACTERS
            self._span.set_attribute(name, text if more <= 0 else f"{text[:-more]} [{more} characters left out]")

    def _set_skill(self, name: str, resource: str = "") -> None:
        """Say which skill it is about and which of its files, both as they were found and not as they were asked for.

        By the conventions, the name of a span of a tool call goes on with them.
        """
        self._set(skill_name=name)
        if not self._telemetry.latest:
            return
        self._span.set_attribute("gen_ai.skill.name", name)
        if resource:
            self._span.set_attribute("gen_ai.skill.resource.name", resource)
        if self._base:
            self._span.rename(" ".join(part for part in (self._base, name, resource) if part))

    # --- one method for each type of event, which it is named for ---

    def _session_called(self, event: "events.SessionCalled", _: Mapping[str, bytes]) -> None:
        if "by" in event.args:
            self._set(operation_by=str(event.args["by"]))
        if self._operation == "call":
            self._set_content("gen_ai.tool.call.arguments", event.args.get("arguments"))
        else:
            self._set_content("metier.operation.arguments", event.args)

    def _session_returned(self, event: "events.SessionReturned", artifacts: Mapping[str, bytes]) -> None:
        if event.status == "error":
            self._span.fail(event.code or "error")
            if event.code in _REFUSALS:
                self._refusal = self._refusal or event.code
        text = from_utf8(artifacts.get(event.output, b""))
        self._set_content("gen_ai.tool.call.result" if self._operation == "call" else "metier.operation.result", text)

    def _skill_loaded(self, event: "events.SkillLoaded", _: Mapping[str, bytes]) -> None:
        self._loaded = {"metier.skill.name": event.name, "metier.skill.again": event.already_loaded}
        self._set_skill(event.name)
        self._set(skill_digest=event.digest, skill_size=event.size)
        self._set(skill_again=event.already_loaded, skill_truncated=event.truncated)
        self._set_content("metier.skill.path", event.path)
        if self._telemetry.latest:
            self._set_content("gen_ai.skill.description", event.frontmatter.get("description"))
            self._set_content("gen_ai.skill.source.uri", _source(event.directory))

    def _skill_invoked(self, event: "events.SkillInvoked", _: Mapping[str, bytes]) -> None:
        self._set_skill(event.name)
        self._set(skill_mode=event.mode)
        if self._loaded:  # a host that leaves loading to the model only names the skill
            self._telemetry.count("loaded", {**self._loaded, "metier.skill.mode": event.mode})

    def _skill_resource_read(self, event: "events.ResourceRead", _: Mapping[str, bytes]) -> None:
        self._set_skill(event.name, event.path)
        self._set(resource_size=event.size, resource_truncated=event.truncated)
        self._set_content("metier.resource.path", event.path)
        self._telemetry.count("read", {"metier.skill.name": event.name})

    def _skill_resource_refused(self, event: "events.ResourceRefused", _: Mapping[str, bytes]) -> None:
        self._refusal = event.reason
        self._set_skill(event.name)
        self._set_content("metier.resource.path", event.path)

    def _skills_searched(self, event: "events.SkillsSearched", _: Mapping[str, bytes]) -> None:
        self._set(search_count=event.count, search_truncated=event.truncated)
        self._set_content("metier.search.query", event.query)
        self._telemetry.count("searched", {"metier.search.found": event.count > 0})

    def _tool_started(self, event: "events.ToolStarted", _: Mapping[str, bytes]) -> None:
        self._script = {"metier.skill.name": event.name, "metier.run.sandbox": event.sandbox}
        self._set_skill(event.name, event.script)
        self._set(run_sandbox=event.sandbox, run_digest=event.digest, run_grants=recorded_tools(event.grants))
        self._set_content("metier.run.script", event.script)
        self._telemetry.count("runs", self._script)

    def _tool_ended(self, event: "events.ToolEnded", _: Mapping[str, bytes]) -> None:
        self._set(run_exit_code=event.exit_code, run_ended=event.ended)
        if self._telemetry.latest:
            self._span.set_attribute("process.exit.code", event.exit_code)
        self._telemetry.script_ended(event.duration_ms / 1000, {**self._script, "metier.run.ended": event.ended})

    def _tool_failed(self, event: "events.ToolFailed", _: Mapping[str, bytes]) -> None:
        if not self._script:  # otherwise the script ran, and was stopped at a limit
            self._set_skill(event.name)
            self._refusal = event.reason


def _source(directory: str) -> str:
    """The URI of a skill's folder, without a password or a query if it has one already."""
    from urllib.parse import quote, urlsplit

    if "://" not in directory:
        return f"file://{quote(directory)}"
    parts = urlsplit(directory)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _json(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, default=str)
