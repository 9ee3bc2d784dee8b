"""The GitHub Action and the pre-commit hooks, run as GitHub and pre-commit run them."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml12

import forking
from authoring.test_check_command import SARIF
from worlds import World

REPOSITORY = Path(__file__).parents[3]
GOOD = "Use when asked."


def read(name: str) -> Any:
    file = REPOSITORY / name
    if not file.is_file():
        pytest.skip("an installed package has no such file")
    return yaml12.parse_yaml(file.read_text())


class Action:
    """Runs the steps of action.yml with bash, in the order and with the environment that GitHub gives them."""

    def __init__(self, world: World, tmp_path: Path) -> None:
        self.project, self.temp = world.project, tmp_path / "runner"
        forking.install(self.temp / "metier/bin")  # what the step that installs would put there
        self.steps = read("action.yml")["runs"]["steps"]
        self.defaults = {name: given["default"] for name, given in read("action.yml")["inputs"].items()}
        self.log = ""

    def __call__(self, **inputs: str) -> int:
        values = {f"inputs.{name}": text for name, text in {**self.defaults, **inputs}.items()}
        self.log = ""
        for step in self.steps:
            if step.get("name") == "Install Metier" or "run" not in step:
                continue
            env = {key: re.sub(r"\$\{\{ (.+?) \}\}", lambda m: values[m[1]], text) for key, text in step["env"].items()}
            outputs = self.temp / "outputs"
            outputs.write_text("")
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.project,
                env={**os.environ, **env, "RUNNER_TEMP": str(self.temp), "GITHUB_OUTPUT": str(outputs)},
                capture_output=True,
                text=True,
            )
            self.log += done.stdout + done.stderr
            if done.returncode:
                return done.returncode
            for line in outputs.read_text().splitlines():
                key, _, value = line.partition("=")
                values[f"steps.{step['id']}.outputs.{key}"] = value
        return 0

    def sarif(self, name: str) -> list[str]:
        content = json.loads((self.temp / f"metier-sarif/{name}.sarif").read_text())
        jsonschema.validate(content, SARIF)
        return [result["ruleId"] for result in content["runs"][0]["results"]]


@pytest.fixture
def action(world: World, tmp_path: Path) -> Action:
    return Action(world, tmp_path)


@pytest.mark.system
def test_the_action_fails_or_passes_with_the_skills_and_no_input_is_ever_a_command(
    world: World, action: Action
) -> None:
    world.skill(".agents/skills/good", description=GOOD)
    assert action(hosts="codex gemini-cli") == 0
    assert (action.sarif("validate"), action.sarif("check")) == ([], [])
    world.skill("other skills/bad", description="TODO")
    assert action(hosts="codex\n", paths=".agents\nother skills\n") == 1
    assert "::error::metier check" in action.log
    assert "::error::metier validate" in action.log
    assert (action.sarif("validate"), action.sarif("check")) == (["description-placeholder"], ["host-elsewhere"])
    evil = "$(touch pwned) `touch pwned`; touch pwned #\n--help\n'\"; touch pwned; \"'\n*"
    for inputs in ({"paths": evil}, {"hosts": evil, "strict": evil}):
        assert (action(**inputs), "Usage:" in action.log) == (2, False)
        assert not (world.project / "pwned").exists()


def test_expressions_stand_only_where_no_shell_reads_them() -> None:
    for step in read("action.yml")["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == ("shell" in step) != ("uses" in step)
        assert re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step.get("uses", "a/b@v1"))


def hook(world: World, name: str, files: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call a hook as pre-commit does: entry, arguments, and the files that match, in the root of the repository."""
    (given,) = [one for one in read(".pre-commit-hooks.yaml") if one["id"] == name]
    matching = [file for file in files if re.search(given.get("files", ""), file)]
    program, *entry = shlex.split(given["entry"])
    assert program == "metier"
    command = [*entry, *(arguments or given["args"]), *(matching if given.get("pass_filenames", True) else [])]
    return forking.run([*forking.METIER, *command], cwd=world.project, capture_output=True, text=True)


@pytest.mark.system
def test_the_hooks_check_the_changed_files_and_the_hosts_of_the_configuration(world: World) -> None:
    assert {given["language"] for given in read(".pre-commit-hooks.yaml")} == {"python"}, "pre-commit installs it"
    world.skill("skills/good", description=GOOD, body="[a](references/a.md)", files={"references/a.md": ""})
    world.skill("skills/bad", description="TODO", files={"scripts/x.py": ""})
    (world.project / "README.md").write_text("x")
    fine = hook(world, "metier-validate", ["README.md", "skills/good/references/a.md", "skills/good/SKILL.md"])
    assert (fine.returncode, fine.stdout) == (0, "1 checked, 0 invalid\n")
    failed = hook(world, "metier-validate", ["README.md", "skills/bad/scripts/x.py"])
    assert (failed.returncode, "description-placeholder" in failed.stdout) == (1, True)
    assert hook(world, "metier-validate", ["README.md"], "--ascii").stdout == "0 checked, 0 invalid\n"

    world.skill(".agents/skills/good")
    assert hook(world, "metier-check", [".agents/skills/good/SKILL.md"]).returncode == 0
    (world.project / "pyproject.toml").write_text('[tool.metier]\ncheck.hosts = ["claude-code"]\n')
    failed = hook(world, "metier-check", ["pyproject.toml"])
    assert (failed.returncode, "failed: claude-code does not find" in failed.stderr) == (1, True)
