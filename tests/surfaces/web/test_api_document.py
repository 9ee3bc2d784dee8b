"""The OpenAPI document matches the server: generated requests, valid and invalid, are answered as documented."""

import contextlib
from collections.abc import Generator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from processes import Process, serve
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from metier.surfaces.web.api import endpoints
from patience import PATIENCE
from worlds import World

pytestmark = pytest.mark.system

DOCUMENT = "/openapi.json"
NAMES = [f"{one.method} {one.path}" for one in endpoints() if one.path != DOCUMENT]
EXAMPLES = 6
"""Valid and invalid requests per operation."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Generator[Process, None, None]:
    folder = tmp_path_factory.mktemp("document")
    world = World(folder / "home", folder / "project")
    (world.project / ".git").mkdir(parents=True)
    world.home.mkdir()
    world.skill(".agents/skills/notes", files={"references/a.md": "the reference", "scripts/x.sh": "echo"})
    with serve(world) as running:
        yield running


@pytest.fixture(scope="module")
def described(process: Process) -> Any:
    schema: Any = schemathesis.openapi.from_url(
        f"{process.url}{DOCUMENT}", headers=process.headers, config=SchemathesisConfig()
    )
    return {(found.ok().method.upper(), found.ok().path): found.ok() for found in schema.get_all_operations()}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_as_documented(process: Process, described: Any, name: str, mode: Any) -> None:
    method, path = name.split()
    operation = described[method, path]
    session = process.begin()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    def check(case: Any) -> None:
        if "session_id" in (case.path_parameters or {}):
            case.path_parameters["session_id"] = session
        answer = case.call_and_validate(
            timeout=PATIENCE, headers=process.headers, excluded_checks=[positive_data_acceptance]
        )
        # A request that fits the schema may name a missing skill or folder, but it is never malformed.
        assert mode is GenerationMode.NEGATIVE or answer.status_code != 400, answer.text

    with contextlib.suppress(Unsatisfiable):  # a request without parameters cannot be invalid
        check()
