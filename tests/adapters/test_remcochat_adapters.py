"""RemcoChat in every adapter: tools by names that providers accept, results as JSON, and each skill once."""

import json
import re

import pytest
from driver_base import Driver
from drivers import DRIVERS
from framework_drivers import PydanticAI
from scenario import Model

from worlds import World

KINDS = [driver for driver in DRIVERS if not driver.__name__.endswith("Async")]
CASES = [
    *(pytest.param(driver, False, id=driver.__name__) for driver in KINDS),
    pytest.param(PydanticAI, True, id="PydanticAI-session"),
]
"""Every adapter with skills, and one also with a session of the caller."""
PROVIDERS_ACCEPT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
BODY = "# Steps\n\nBODY-MARKER: do this first, Größe.\n"


@pytest.mark.behaviour("N-101", "N-102", "N-104", "N-110")
@pytest.mark.parametrize(("driver", "given_session"), CASES)
def test_the_prompt_names_the_tools_that_the_model_has_and_results_are_json(
    driver: type[Driver], given_session: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    world.skill(".skills/probe", body=BODY, files={"references/a.md": "REFERENCE-MARKER"})
    found = world.discover("remcochat", settings={"enabled": True})
    model = Model(
        [
            ("skills_activate", {"name": "probe"}),
            ("skills_readResource", {"name": "probe", "path": "references/a.md"}),
            ("skills_readResource", {"name": "probe", "path": "../x"}),
            "Done.",
        ]
    )
    assert driver(found.session() if given_session else found, model).say("Begin.") == "Done."
    for shown in model.shown:
        assert shown.tools == ("skills_activate", "skills_readResource")
        assert all(PROVIDERS_ACCEPT.fullmatch(tool) for tool in shown.tools)
        assert set(re.findall(r"`(skills\W?\w+)`", shown.system)) == set(shown.tools)
    results = [json.loads(text) for text in model.shown[-1].texts if text.startswith("{")]
    assert (list(results[0]), results[0]["body"]) == (["name", "frontmatter", "body", "truncated"], BODY)
    assert results[0]["frontmatter"]["name"] == results[0]["name"] == "probe"
    assert results[1] == {
        "name": "probe",
        "path": "references/a.md",
        "content": "REFERENCE-MARKER",
        "truncated": False,
    }
    assert results[2]["error"]["code"] == "ACCESS_DENIED"
    assert "traversal" in results[2]["error"]["message"]
    assert [shown.count("BODY-MARKER") for shown in model.shown] == [0, 1, 1, 1], "once, and not again in the prompt"
