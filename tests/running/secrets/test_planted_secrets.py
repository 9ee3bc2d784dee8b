"""200 planted secrets, given to a real script that gives them away in many ways: none is in anything that is left."""

import json
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import forking
import parts
from every_surface import Http, Python
from metier.record import telemetry
from secrets_of_tests import SKILL, all_bytes, found, plant, values
from worlds import World

VALUES = values()
ARGUMENT = VALUES["PLANTED_001"]
GIVEN: Mapping[str, Any] = {
    "name": SKILL,
    "script": "scripts/leak.py",
    "arguments": ["--token", ARGUMENT, f"a={VALUES['PLANTED_002']}"],
    "stdin": f"input {VALUES['PLANTED_003']}",
}


@pytest.fixture
def store(world: World) -> str:
    parts.require_sandbox()
    plant(world, VALUES)
    folder = world.home / "store"
    folder.mkdir()
    return str(folder / "record.db")


def check(store: str, *shown: str | bytes) -> None:
    """Nothing that was shown or kept has a value in it, and what was shown says that there were values."""
    told = b"\n".join(one.encode() if isinstance(one, str) else one for one in shown)
    kept = all_bytes(store)
    for name in VALUES:
        assert f"[secret {name}]".encode() in told, name
    assert b"given 200" in told
    assert found(VALUES, told) == []
    assert found(VALUES, kept) == []


def test_the_search_finds_what_is_not_masked() -> None:
    value = VALUES["PLANTED_002"]
    for text in (value, json.dumps({"a": [value]}), value.encode().hex(), f"a {value[:9]}\n   {value[9:]}"):
        assert found({"X": value}, text.encode())


@pytest.mark.system
def test_a_session_and_its_logs(world: World, store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    surface = Python(world, store)
    try:
        result = surface.session.run(**GIVEN)
        assert result.exit_code == 3
        assert [artifact.path for artifact in result.artifacts] == ["values.txt"], "a file that is not text is not kept"
        assert any("values.bin: it is not text" in note for note in result.notes)
        frames = json.dumps(surface.session.events, ensure_ascii=False)
        check(store, result.text, json.dumps(result.as_dict()), repr(result), frames, caplog.text)
        assert '"--token", "[secret PLANTED_001]", "a=[secret PLANTED_002]"' in frames
    finally:
        surface.close()


@pytest.mark.system
def test_spans_with_their_content(world: World, store: str) -> None:
    exported, traces = InMemorySpanExporter(), TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(exported))
    surface = Python(world, store)
    telemetry.enable(content=True, tracer_provider=traces)
    try:
        surface.session.load(SKILL)
        called = surface.session.call("skill_run", GIVEN)
        spans = "".join(span.to_json() for span in exported.get_finished_spans())
    finally:
        telemetry.disable()
        traces.shutdown()
        surface.close()
    assert "[secret PLANTED_001]" in spans, "the spans have the arguments, masked"
    assert found(VALUES, spans.encode()) == []
    check(store, called.text, spans)


@pytest.mark.system
def test_the_command_line_and_what_other_processes_find(world: World, store: str) -> None:
    env = {**os.environ, "HOME": str(world.home)}
    where: dict[str, Any] = {"cwd": world.project, "env": env, "capture_output": True}

    def call(*words: str) -> bytes:
        done = forking.run([*forking.METIER, *words, "--store", store, "--session", "s"], input=b"", **where)
        return done.stdout + done.stderr

    plain = ["run", SKILL, GIVEN["script"], "--stdin", "--", *GIVEN["arguments"]]
    line = [*forking.METIER, "--store", store, "--session", "s", *plain]
    done = forking.run(line, input=GIVEN["stdin"].encode(), **where)
    assert done.returncode == 3
    replayed = call("replay")
    check(store, done.stdout, done.stderr, replayed, call("events", "--json"))
    assert b"identical, byte for byte" in replayed


@pytest.mark.system
def test_http_its_stream_of_events_and_its_logs(world: World, store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    surface = Http(world, store)
    streamed: list[str] = []
    path = f"/api/sessions/{surface.session}/events"

    def follow() -> None:
        with surface.client.stream("GET", path, headers={"accept": "text/event-stream"}) as answer:
            for line in answer.iter_lines():
                streamed.append(line)
                if "session_returned" in line:
                    return

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        answer = surface.client.post(f"/api/sessions/{surface.session}/run", json=GIVEN)
        assert answer.status_code == 200
        thread.join()
        assert not thread.is_alive()
        listed = surface.client.get(path).text
    finally:
        surface.close()
    check(store, answer.text, listed, "\n".join(streamed), caplog.text)
    assert found(VALUES, "\n".join(streamed).encode()) == []
    assert "[secret PLANTED_001]" in "\n".join(streamed)
