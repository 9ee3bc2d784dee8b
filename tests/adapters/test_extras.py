"""Each framework is an extra: the core needs none of them, and a missing one is an error with its install command."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ADAPTERS = {
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "openai_agents": ("agents", "openai-agents"),
    "langchain": ("langchain", "langchain"),
}
"""Adapter to its framework's package and its extra."""


def project() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.system
def test_a_framework_that_is_missing_names_its_install_line_and_a_bug_is_none() -> None:
    cases = {f"sys.modules[{package!r}] = None": (adapter, extra) for adapter, (package, extra) in ADAPTERS.items()}
    for broken in (
        "sys.modules['metier.adapters.conversation'] = None",  # a module of our own that cannot be imported
        "import agents; del agents.FunctionTool",  # a name that the installed framework lacks
        "import agents; sys.modules['agents.tool_context'] = None",  # and a module
    ):
        cases[broken] = ("openai_agents", "")
    for broken, (adapter, extra) in cases.items():
        code = f"import sys\n{broken}\ntry:\n    import metier.adapters.{adapter}\n"
        said = run(f"{code}except Exception as error:\n    print(type(error).__name__, error)\n")
        if extra:
            assert said.startswith("MissingExtra ")
            assert said.endswith(f"install it with: pip install 'metier[{extra}]'")
        else:
            assert said.startswith(("ImportError cannot import name", "ModuleNotFoundError import of")), said


@pytest.mark.system
def test_neither_the_core_nor_the_other_adapters_load_a_framework() -> None:
    frameworks = [package for package, _ in ADAPTERS.values()]
    code = "import sys, metier, metier.adapters.conversation\n"
    assert run(f"{code}print([name for name in {frameworks} if name in sys.modules])") == "[]"
    stated = " ".join(project()["dependencies"])
    assert not re.search("pydantic|openai|lang|anthropic", stated)


def test_the_oldest_versions_that_are_tested_are_the_ones_that_are_stated() -> None:
    extras = project()["optional-dependencies"]
    stated = {re.sub(">=", "==", extras[extra][0]) for _, extra in ADAPTERS.values()}
    lines = (REPOSITORY / "tests/adapters/oldest.txt").read_text().splitlines()
    tested = {line.removesuffix(".0") if line.count(".") > 1 else line for line in lines if not line.startswith("#")}
    assert tested == stated
