"""Completion in bash, zsh and fish: what the Tab key completes, and what is never offered."""

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import parts
from calling import Run
from patience import PATIENCE
from worlds import World

SHELLS = {
    # the command, and what makes it ready
    "bash": ("bash --norc --noprofile -i", "PS1='> '; bind 'set enable-bracketed-paste off' 2>/dev/null"),
    "zsh": (
        "zsh -f -i",
        "PS1='> '; unsetopt zle_bracketed_paste prompt_cr prompt_sp; autoload -Uz compinit; compinit -u -D",
    ),
}
KEYS = [
    # the typed line, and its words after the Tab key
    ("metier chec", ["metier", "check"]),
    ("metier replay --dri", ["metier", "replay", "--drift"]),
    ("metier list --profile vsc", ["metier", "list", "--profile", "vscode-copilot"]),
    ("metier show rel", ["metier", "show", "release-notes"]),
    ("metier --skills more show fr", ["metier", "--skills", "more", "show", "from-more"]),
    ("metier read release-notes ref", ["metier", "read", "release-notes", "references/style.md"]),
    ("metier run release-notes scr", ["metier", "run", "release-notes", "scripts/notes.py"]),
    ("metier enable release-notes --mode pin", ["metier", "enable", "release-notes", "--mode", "pinned"]),
    ("metier mcp add gem", ["metier", "mcp", "add", "gemini-cli"]),
    ("metier validate ./.age", ["metier", "validate", "./.agents"]),  # a folder: the shell decides about the slash
]


@pytest.fixture
def skilled(world: World) -> World:
    files = {"references/style.md": "", "scripts/notes.py": "", "assets/a.txt": ""}
    world.skill(".agents/skills/release-notes", description="Writes notes: of a release, in short.", files=files)
    world.skill(".agents/skills/triage")
    world.skill("more/from-more")
    return world


@pytest.fixture
def surroundings(world: World) -> dict[str, str]:
    """The variables of a simple terminal, with the command on PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    python_path = os.pathsep.join(path for path in sys.path if path)  # the same package as in this process
    return {"PATH": path, "PYTHONPATH": python_path, "HOME": str(world.home), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


class Terminal:
    """A shell in its own terminal. Keys go in, and its output comes out."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str]) -> None:
        code = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
        line = [sys.executable, "-c", code, *command]
        self.process = subprocess.Popen(
            line, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.keys, self.output, self.asked = self.process.stdin, self.process.stdout, 0

    def ask(self, line: str) -> str:
        """Run a line, and return everything that is printed until it has ended."""
        self.asked += 1
        self.keys.write(f"{line}; echo end-$((1000 + {self.asked}))\n".encode())
        self.keys.flush()
        seen, deadline = "", time.monotonic() + PATIENCE
        while f"end-{1000 + self.asked}" not in seen:
            ready, _, _ = select.select([self.output], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.output.fileno(), 65536) if ready else b""
            assert data, f"it never ended: {seen!r}"
            seen += data.decode(errors="replace")
        return seen

    def close(self) -> None:
        self.keys.close()
        self.process.kill()
        self.process.wait()
        self.output.close()


@pytest.fixture(params=list(SHELLS))
def terminal(request: pytest.FixtureRequest, skilled: World, surroundings: dict[str, str]) -> Iterator[Terminal]:
    parts.require(request.param)
    command, ready = SHELLS[request.param]
    with contextlib.closing(Terminal(command.split(), skilled.project, surroundings)) as shell:
        shell.ask(ready)
        shell.ask(f'eval "$(metier completion {request.param})"')
        yield shell


@pytest.mark.system
def test_a_tab_completes_commands_options_profiles_skills_and_files(terminal: Terminal) -> None:
    for typed, expected in KEYS:
        # Control-A and -E add a command before the line, so that its words are printed and it does not run.
        printed = terminal.ask(f"{typed}\t\x01printf '<%s>' \x05")
        words = re.findall(r"<([^<>%]+)>", printed[printed.rindex("\n<") :])
        assert [word.removesuffix("/") for word in words] == expected, typed


@pytest.mark.system
def test_fish_completes_the_same_with_what_each_is_for(skilled: World, surroundings: dict[str, str]) -> None:
    parts.require("fish")
    asked = "; ".join(f"echo '#'; complete -C '{typed}'" for typed, _ in KEYS)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"metier completion fish | source; {asked}"],
        cwd=skilled.project,
        env=surroundings,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [block.strip("\n").split("\n") for block in done.stdout.split("#\n")[1:]]
    found = [[line.split("\t")[0].removesuffix("/") for line in block] for block in answers]
    assert found == [[words[-1]] for _, words in KEYS]
    assert answers[3] == ["release-notes\tWrites notes: of a release"], "the script for fish cuts at the comma"


Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(run: Run, monkeypatch: pytest.MonkeyPatch) -> Complete:
    monkeypatch.setenv("_METIER_COMPLETE", "bash_complete")

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        result = run()
        assert result.err == ""
        return [item.removeprefix("plain,") for item in result.out.splitlines() if item]

    return ask


def test_names_come_from_the_place_and_the_options_of_the_line(skilled: World, complete: Complete) -> None:
    for line, names in {
        "show ": "release-notes triage",
        "--cwd more show ": "release-notes triage",  # the folder is in the same project
        "--profile claude-code show ": "",
        "show --skills more ": "from-more release-notes triage",
        "enable tr": "triage",
        "profiles o": "omp opencode",
        "check --host g": "gemini-cli goose",
        "run release-notes ": "scripts/notes.py",  # only scripts
        "--profile nowhere show ": "",
        "--cwd /nowhere show ": "",
        "read nothing ": "",
    }.items():
        assert complete(f"metier {line}") == names.split(), line
    (skilled.project / ".metier").mkdir()
    (skilled.project / ".metier/config.toml").write_text("broken = = ")
    assert complete("metier show ") == []


def test_a_name_that_means_something_to_a_shell_is_not_offered(world: World, complete: Complete) -> None:
    world.skill(".agents/skills/good")
    files: dict[str, str | bytes] = {"references/ok.md": "", "-rf": ""}
    for number, name in enumerate(("x;touch y", "$(id)", "a b", "`id`", "x*", "-rf", "a'b", "x|y", "x>y", "~x", "!x")):
        world.skill(f".agents/skills/bad-{number}", name=name)
        files.update({f"references/{name}.md": ""} if name != "-rf" else {})
    world.skill(".agents/skills/files", files=files)
    assert complete("metier --profile omp show ") == ["files", "good"]
    assert complete("metier read files ") == ["references/ok.md"]


def test_completion_prints_the_script_of_each_shell_it_knows(run: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        result = run("completion", shell)
        assert (result.code, result.err, f"_METIER_COMPLETE={shell}_complete" in result.out) == (0, "", True)
    assert run("completion", "tcsh").code == 2
