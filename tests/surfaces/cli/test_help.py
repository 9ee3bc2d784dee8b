"""Every example in a help text works, and every command describes itself and its options in 80 columns."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import forking
import parts
from metier.hosts.trust import trust
from metier.running.secrets.storage import SecretStorage
from metier.surfaces.cli import cli
from metier.testing import write_skill

REPOSITORY = Path(__file__).parents[3]
ELSEWHERE = {
    "https://": "it asks a server on the network",
    "metier pick": "a person chooses at a terminal; tests/surfaces/tui does it",
}
"""Examples that cannot run here, by a part of their text."""
STAYS = ("--watch", "--follow", "metier serve")
"""Examples that run until they are interrupted."""


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command and subcommand, by its path."""
    root = click.Context(cli, info_name="metier", **cli.context_settings)
    pending: list[tuple[click.Command, click.Context]] = [(cli, root)]
    while pending:
        command, context = pending.pop()
        yield context.command_path, command, context
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                pending.append((inner, click.Context(inner, parent=context, info_name=name)))


ALL = {path: (command, context) for path, command, context in commands()}


def examples(command: click.Command) -> list[str]:
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


EXAMPLES = sorted(
    {
        example
        for command, _ in ALL.values()
        for example in examples(command)
        if not any(part in example for part in ELSEWHERE)
    }
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home and a project with everything that the examples need, and an earlier session."""
    base = tmp_path_factory.mktemp("help") / "live"
    home, project = base / "home", base / "project"
    (project / ".git").mkdir(parents=True)
    for folder in ("site", "project/.git", ".config/fish/completions", ".config/metier"):
        (home / folder).mkdir(parents=True)
    shutil.copytree(REPOSITORY / "examples/skills", project / ".agents/skills")
    for place in ("skills/pdf", "pdf"):
        write_skill(project / place, "pdf", "Fills PDF forms.")
    (project / ".metier").mkdir()
    (project / ".metier/config.toml").write_text('custom_directories = ["skills", "pdf"]\n')
    trust(str(home / ".config/metier"), str(project))
    (home / ".config/metier/config.toml").write_text('[permissions]\nallow = [{ tool = "skill_run" }]\n')
    answer = '[[allow]]\ntool = "skill_load"\nskill_name = "release-notes"\n'  # its id begins with 7b95d83f
    (home / ".config/metier/permissions.toml").write_text(answer)
    (project / "token.txt").write_text("ghp_0123456789abcdef\n")
    SecretStorage(str(home / ".config/metier")).set("GITHUB_TOKEN", "ghp_0123456789abcdef", in_file=True)
    (project / "args.json").write_text('{"query": "pdf"}')
    for table in (project / "data.csv", home / "q3.csv"):
        table.write_text("name,age\nada,36\n")
    with zipfile.ZipFile(project / "pdf.skill", "w") as archive:
        archive.write(project / "pdf/SKILL.md", "pdf/SKILL.md")
    loaded = call(base, "metier load csv-profile --session demo --json")
    assert loaded.returncode == 0, loaded.stderr
    (base / "ref").write_text(json.loads(loaded.stdout)["ref"])
    exported = call(base, "metier session store export --session demo > record.jsonl")
    assert exported.returncode == 0, exported.stderr
    shutil.copytree(base, base.with_name("kept"), symlinks=True)
    return base


def surroundings(base: Path) -> dict[str, str]:
    folders = [os.path.dirname(forking.install(base.with_name("bin"))), str(Path(sys.executable).parent)]
    python_path = os.pathsep.join(path for path in sys.path if path)  # the same package as in this process
    return {
        "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
        "PYTHONPATH": python_path,
        "HOME": str(base / "home"),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }


def call(base: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line],
        cwd=base / "project",
        env=surroundings(base),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.system
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_works_as_it_stands(example: str, prepared: Path) -> None:
    base = prepared  # the same path every time, because the earlier session refers to it
    shutil.rmtree(base)
    shutil.copytree(base.with_name("kept"), base, symlinks=True)
    line = re.sub(r"\bskill-0a1b2c3d4e5f\b", (base / "ref").read_text(), example)
    line = re.sub(r"(?<=--session )ID\b|\bSESSION\b", "demo", line).replace("--port 8765", "--port 0")
    if any(part in line for part in STAYS):
        stays(base, line)
        return
    if line == "metier secret set GITHUB_TOKEN":
        line += " < token.txt"  # instead of the prompt
    if "--verify" in line and "install" in line:
        call(base, "metier install ./pdf --yes")
    if re.match(r"metier install (\./pdf|pdf\.skill)|metier mcp add (?!.*--yes)", line):
        line += " --yes"  # instead of the question
    if "completion zsh" in line:
        parts.require("zsh")
        line = f"zsh -fc {shlex.quote('autoload -Uz compinit; compinit -u -D; ' + line.partition('#')[0])}"
    done = call(base, line)
    if done.returncode == 4 and "metier run" in line:
        parts.require_sandbox()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    redirected = re.search(r"> (\S+)$", line)
    target = Path(os.path.expanduser(redirected[1].replace("~", str(base / "home")))) if redirected else None
    written = (base / "project" / target).read_text() if target else ""
    quiet = example.startswith(
        ("eval", "metier mcp")
    )  # these print nothing: the shell evaluates it, and an MCP client speaks first
    assert done.stdout or done.stderr or written or quiet, "an example must print something"


def stays(base: Path, line: str) -> None:
    """Start a command, wait for its first output, and interrupt it."""
    process = subprocess.Popen(
        shlex.split(line),
        cwd=base / "project",
        env={**surroundings(base), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert isinstance(process.stdout, io.TextIOBase)
        assert process.stdout.readline(), "it ended without output"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
        assert process.returncode in (0, 130, -signal.SIGINT)
        assert "Traceback" not in said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_every_command_has_an_example_and_says_what_it_and_its_options_do() -> None:
    wrong: list[str] = []
    for path, (command, context) in ALL.items():
        if max(map(len, command.get_help(context).splitlines())) > 80:
            wrong.append(f"{path}: wider than 80 columns")
        if not (command.help or "").split("\n")[0].rstrip().endswith((".", ":")):
            wrong.append(f"{path}: says nothing in a sentence")
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        silent = [one.opts[0] for one in options if not (one.help or "").endswith(".")]
        wrong += [f"{path} {option}: has no help, or it is not a sentence" for option in silent]
        named = [example for example in examples(command) if re.search(rf"\b{re.escape(path)}\b", example)]
        if not named and not isinstance(command, click.Group):
            wrong.append(f"{path}: has no example")
    assert wrong == []
