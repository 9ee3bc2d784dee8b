"""Spans and metrics: their content, their parents, and what they must not contain."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    DataPointT,
    HistogramDataPoint,
    InMemoryMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util.types import AttributeValue

from metier import MissingExtra, PolicyDenied, SkillNotFound, replay, usage
from metier.app import App
from metier.record import telemetry
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.options import SessionOptions
from metier.session.session import Session
from worlds import World

SKILLS = ".agents/skills"
SECRETS = ("secret-query", "secret-argument", "secret-body", "secret-path", "secret-output", "secret-name")


class Seen:
    """Everything that was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])
        self.tracer = self.traces.get_tracer("the agent")

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}

    def attributes(self, name: str) -> dict[str, AttributeValue]:
        return dict(self.spans[name].attributes or {})

    def metrics(self) -> dict[str, list[DataPointT]]:
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}

    def histogram(self, name: str) -> list[HistogramDataPoint]:
        return [point for point in self.metrics()[name] if isinstance(point, HistogramDataPoint)]

    def everything(self) -> str:
        spans = "".join(span.to_json() for span in self._exporter.get_finished_spans())
        points = [point for points in self.metrics().values() for point in points]
        return spans + repr(points)

    def close(self) -> None:
        self.traces.shutdown()
        self.meters.shutdown()


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    telemetry.disable()
    made.close()


def watch(seen: Seen, content: bool = False) -> None:
    telemetry.enable(content=content, tracer_provider=seen.traces, meter_provider=seen.meters)


def opened(world: World, **given: Unpack[SessionOptions]) -> Session:
    world.skill(
        f"{SKILLS}/notes",
        description="Writes notes.",
        body="# secret-body\n",
        files={"references/secret-path.md": "secret-body", "scripts/say.sh": "#!/bin/sh\n"},
    )
    runner = FakeRunner(default=Outcome(3, "exit", 250, b"secret-output", b""))
    policy = {"allow": [{"tool": "skill_run"}], "deny": [{"tool": "skill_read", "path": "denied/*"}]}
    options: SessionOptions = {"policy": policy, "runner": runner, "id": "talk-1", **given}
    return world.discover().session(**options)


def use(session: Session) -> None:
    """One of everything."""
    session.search("notes secret-query")
    session.load("notes", arguments="secret-argument")
    session.read("notes", "references/secret-path.md")
    with pytest.raises(PolicyDenied):
        session.read("notes", "denied/secret-path.md")
    session.run("notes", "scripts/say.sh", ["secret-argument"])
    session.call("skill_load", {"name": "notes"})
    session.call("secret-name", {"secret-argument": 1})
    with pytest.raises(SkillNotFound):
        session.load("secret-name")


def test_every_step_of_a_session_has_a_span_that_says_what_came_of_it(world: World, seen: Seen) -> None:
    watch(seen)
    session = opened(world)
    session.search("notes")
    session.load("notes")
    session.read("notes", "references/secret-path.md")
    session.run("notes", "scripts/say.sh")
    found = seen.attributes("discover")
    assert (found["metier.skills.found"], found["metier.skills.loaded"], found["metier.skills.errors"]) == (1, 1, 0)
    assert found["metier.profile"] == "standard"
    assert seen.attributes("search")["metier.search.count"] == 1
    load = seen.attributes("load")
    assert (load["metier.skill.name"], load["metier.skill.mode"], load["metier.skill.again"]) == (
        "notes",
        "manual",
        False,
    )
    assert load["gen_ai.conversation.id"] == "talk-1"
    assert seen.attributes("read")["metier.resource.size"] == len("secret-body")
    run = seen.attributes("run")
    assert (run["metier.run.exit_code"], run["metier.run.ended"], run["metier.run.sandbox"]) == (3, "exit", "fake")
    assert all(span.status.is_unset for span in seen.spans.values())


def test_a_tool_call_is_an_execute_tool_span_by_the_conventions(world: World, seen: Seen) -> None:
    watch(seen)
    assert opened(world).call("skill_load", {"name": "notes"}).ok
    found = seen.attributes("execute_tool skill_load")
    assert found["gen_ai.operation.name"] == "execute_tool"
    assert found["gen_ai.tool.name"] == "skill_load"
    assert found["gen_ai.tool.type"] == "function"
    assert found["gen_ai.conversation.id"] == "talk-1"
    assert (found["metier.skill.name"], found["metier.skill.mode"]) == ("notes", "auto")
    assert seen.spans["execute_tool skill_load"].kind is trace.SpanKind.INTERNAL
    assert "load" not in seen.spans, "what happens inside of a call belongs to it"
    assert [point.count for point in seen.histogram("gen_ai.execute_tool.duration")] == [1]


def test_what_another_process_did_or_is_counted_later_has_no_span_here(world: World, seen: Seen) -> None:
    store = MemoryStore()
    there = opened(world, store=store)
    there.load("notes")
    here = opened(world, store=store)
    watch(seen)
    assert there.activated == here.activated == ["notes"]
    here.call("skill_read", {"name": "notes", "path": "references/secret-path.md"})
    assert usage(store).skills[0].read == 1
    assert replay.replay(replay.from_store(store, here.id)).identical
    assert list(seen.spans) == ["execute_tool skill_read"]


def test_a_span_stands_below_the_one_that_is_current_also_across_threads(world: World, seen: Seen) -> None:
    watch(seen)
    session = opened(world)
    with seen.tracer.start_as_current_span("agent") as agent:
        session.load("notes")
        asyncio.run(session.acall("skill_search", {"query": "notes"}))
    for name in ("load", "execute_tool skill_search"):
        parent = seen.spans[name].parent
        assert parent is not None
        assert parent.span_id == agent.get_span_context().span_id
    assert seen.spans["discover"].parent is None


def test_what_an_operation_does_stands_below_its_span(world: World, seen: Seen) -> None:
    watch(seen)

    def approve(_: object) -> bool:
        with seen.tracer.start_as_current_span("question"):
            return True

    session = opened(world, policy={"ask": [{"tool": "skill_load"}]}, approve=approve)
    session.load("notes")
    parent = seen.spans["question"].parent
    load = seen.spans["load"].context
    assert parent is not None
    assert load is not None
    assert parent.span_id == load.span_id
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_framework_that_traces_the_call_itself_is_not_counted_twice(world: World, seen: Seen) -> None:
    watch(seen)
    session = opened(world)
    with seen.tracer.start_as_current_span("theirs", attributes={"gen_ai.operation.name": "execute_tool"}):
        session.call("skill_load", {"name": "notes"})
    found = seen.attributes("call skill_load")
    assert found["gen_ai.tool.name"] == "skill_load"
    assert "gen_ai.operation.name" not in found
    assert "gen_ai.execute_tool.duration" not in seen.metrics()


def test_refusals_and_errors_have_a_status_and_a_reason_but_no_words(world: World, seen: Seen) -> None:
    watch(seen)
    session = opened(world)
    with pytest.raises(PolicyDenied):
        session.read("notes", "denied/secret-path.md")
    denied = seen.spans["read"]
    assert denied.status.status_code is trace.StatusCode.ERROR
    assert denied.status.description is None
    assert denied.events == ()
    assert seen.attributes("read")["error.type"] == "PolicyDenied"
    assert seen.attributes("read")["metier.refusal.reason"] == "PolicyDenied"
    assert not session.call("skill_read", {"name": "notes", "path": "../../etc/passwd"}).ok
    outside = seen.attributes("execute_tool skill_read")
    assert (outside["error.type"], outside["metier.refusal.reason"]) == ("ACCESS_DENIED", "traversal")


def test_a_script_that_policy_refuses_is_a_refusal_and_one_that_ran_out_of_time_is_none(
    world: World, seen: Seen
) -> None:
    watch(seen)
    slow = FakeRunner(default=Outcome(137, "timeout", 60_000, b"", b""))
    session = opened(world, runner=slow)
    session.run("notes", "scripts/say.sh")
    assert seen.attributes("run")["metier.run.ended"] == "timeout"
    assert "metier.refusal.reason" not in seen.attributes("run")
    careful = world.discover().session(policy={"profile": "read-only"}, runner=slow)
    with pytest.raises(PolicyDenied):
        careful.run("notes", "scripts/say.sh")
    assert seen.attributes("run")["metier.refusal.reason"] == "PolicyDenied"


def test_durations_are_measured_by_operation(world: World, seen: Seen) -> None:
    watch(seen)
    use(opened(world))
    durations = seen.histogram("metier.operation.duration")
    operations = {str((point.attributes or {})["metier.operation"]) for point in durations}
    assert operations == {"discover", "search", "load", "read", "run", "call"}


def test_nothing_that_somebody_wrote_leaves_unless_it_was_asked_for(world: World, seen: Seen) -> None:
    watch(seen)
    use(opened(world))
    everything = seen.everything()
    assert [secret for secret in SECRETS if secret in everything] == []
    assert str(world.home) not in everything
    assert str(world.project) not in everything
    assert "execute_tool unknown" in seen.spans


def test_content_is_there_where_it_was_asked_for(world: World, seen: Seen) -> None:
    watch(seen, content=True)
    session = opened(world)
    session.search("secret-query")
    session.call("skill_load", {"name": "notes", "arguments": "secret-argument"})
    assert seen.attributes("search")["metier.search.query"] == "secret-query"
    found = seen.attributes("execute_tool skill_load")
    assert "secret-argument" in str(found["gen_ai.tool.call.arguments"])
    assert "secret-body" in str(found["gen_ai.tool.call.result"])
    assert str(found["metier.skill.path"]).endswith("notes/SKILL.md")
    session.search("x" * (telemetry.CONTENT_CHARACTERS + 5))
    assert str(seen.attributes("search")["metier.search.query"]).endswith("x [5 characters left out]")


def test_what_policy_redacts_stays_redacted(world: World, seen: Seen) -> None:
    watch(seen, content=True)
    redacting = {"redact": True, "allow": [{"tool": "skill_run"}], "deny": [{"tool": "skill_read", "path": "denied/*"}]}
    use(opened(world, policy=redacting))
    everything = seen.everything()
    assert [s for s in ("secret-query", "secret-argument", "secret-output", "secret-body") if s in everything] == []


def test_an_error_that_is_no_answer_ends_the_span_too(world: World, seen: Seen) -> None:
    watch(seen)

    broken = True

    def approve(_: object) -> bool:
        if broken:
            raise RuntimeError("secret-output")
        return True

    session = opened(world, policy={"ask": [{"tool": "skill_load"}]}, approve=approve)
    with pytest.raises(RuntimeError):
        session.load("notes")
    assert seen.attributes("load")["error.type"] == "RuntimeError"
    assert "secret-output" not in seen.everything()
    broken = False
    session.load("notes")
    assert seen.attributes("load")["metier.skill.name"] == "notes"


def test_nothing_is_traced_before_and_after(world: World, seen: Seen) -> None:
    session = opened(world)
    session.load("notes")
    watch(seen)
    session.search("notes")
    telemetry.disable()
    session.search("notes")
    session.load("notes")
    assert (list(seen.spans), telemetry.active) == (["search"], None)


def test_tracing_changes_no_event(world: World, seen: Seen) -> None:
    def events() -> list[tuple[str, object]]:
        session = opened(world)
        use(session)
        return [(frame["type"], frame.get("output")) for frame in session.events]

    before = events()
    watch(seen)
    assert events() == before


def test_the_page_names_every_span_attribute_and_metric(world: World, seen: Seen) -> None:
    page = (Path(__file__).parents[2] / "docs/telemetry.md").read_text()
    watch(seen, content=True)
    use(opened(world))
    names = {key for span in seen.spans.values() for key in span.attributes or {}} | set(seen.metrics())
    assert sorted(name for name in names if f"`{name}`" not in page) == []
    assert f"{telemetry.CONTENT_CHARACTERS:,} characters" in page


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"metier\[otel\]"):
        telemetry.enable()
    assert telemetry.active is None


@pytest.mark.system
def test_a_session_that_is_not_traced_loads_nothing_of_it(world: World) -> None:
    world.skill(f"{SKILLS}/notes")
    code = (
        "import sys; from metier import Skills; Skills.discover().session().load('notes');"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=world.project, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_server_traces_where_the_setting_says_so_and_warns_without_an_sdk(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        App(world.project, home=world.home, store="memory:").close()
        assert telemetry.active is None
        App(world.project, home=world.home, store="memory:", settings={"telemetry": True}).close()
        assert telemetry.active is not None
        assert not telemetry.active.content
        assert "no OpenTelemetry SDK" in caplog.text
    finally:
        telemetry.disable()
