"""The commands of a page, and running them as a reader would: in one shell, from the first to the last.

A block that cannot run here has `<!-- no-run: reason -->` above it; one of Python that cannot run alone, but with the
others of its page, has the reason that it "runs with them". `...` in an output matches any text. A command that
serves until it is stopped runs beside the others, and what it prints is compared, too.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import forking
import parts

REPOSITORY = Path(__file__).parents[2]
STEP = re.compile(
    r"^(?P<reason><!-- no-run:.*?-->\n)?(?P<indent> *)```(?P<language>console|python)\n(?P<block>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
SERVES = re.compile(r"""(?:\w+=(?:"[^"]*"|\S+) )*metier serve\b(?!.*[&|])""")

WAIT = "for i in $(seq 600); do jobs %% >/dev/null && ! grep -q '{word}' {told} && sleep 0.1 || break; done; cat {told}"


@dataclass(frozen=True)
class Step:
    command: str
    shown: str


def steps(text: str) -> list[Step]:
    """Each command of the page with the output that the page shows, in order. A block of Python is a command, too."""
    found: list[Step] = []
    for match in STEP.finditer(text):
        block = re.sub(rf"^{match['indent']}", "", match["block"], flags=re.MULTILINE)
        if match["reason"] and "runs with them" not in match["reason"]:
            continue
        if match["language"] == "python":
            found.append(Step(f"python - <<'END-OF-BLOCK'\n{block}END-OF-BLOCK", ""))
        else:
            for command, shown in re.findall(r"^\$ (.*\n(?:> ?.*\n|>\n)*)((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                found.append(Step(re.sub(r"^> ?", "", command, flags=re.MULTILINE).rstrip("\n"), shown))
    return found


def has_commands(text: str) -> bool:
    return any(not step.command.startswith("python - <<") for step in steps(text))


def matches(shown: str, printed: str) -> bool:
    """Whether the output is what the page shows. `...` matches any text."""
    pieces = [re.escape(part) for part in shown.strip().split("...")]
    return re.fullmatch(r"[\s\S]*".join(pieces), printed.strip()) is not None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_page(text: str, folder: Path, scripts: Path, fails: tuple[str, ...] = ()) -> str:
    """Run the commands of a page in a folder and compare what they print. `scripts` is where the programs are that its
    reader has installed. A command of Metier with one of the words in `fails` must exit with 1. The result is all that
    was printed."""
    wanted = steps(text)
    port = free_port()
    (folder / "served").mkdir()
    script = ["set -m", "exec 2>&1"]
    for number, step in enumerate(wanted):
        runnable = step.command.replace("8765", str(port)).replace("curl ", "curl --retry 60 --retry-connrefused ")
        if "metier/token" in runnable:  # the server that makes it was started a moment ago
            runnable = f"until [ -s ~/.config/metier/token ]; do sleep 0.1; done; {runnable}"
        if SERVES.match(step.command):
            told = folder / "served" / str(number)
            command, _, _ = runnable.partition(" #")
            command += "" if "--port" in command else f" --port {free_port()}"
            word = "listening" if "METIER_TOKEN" in command else "login"  # with a token of one's own there is no link
            # One server at a time, which goes on while the next commands use it.
            told.touch()  # it is read before the server may have made it
            runnable = f"kill %% 2>/dev/null; wait; {command} >{told} 2>&1 &\n{WAIT.format(told=told, word=word)}"
        script += [f"echo '@@ {number}'", runnable, f'echo "@@ ended $? {number}"']
    folders = [os.path.dirname(forking.install(folder / "served" / "bin"))] if scripts == PROGRAMS else []
    path = os.pathsep.join([*folders, str(scripts), os.environ["PATH"]])
    surroundings = {"PATH": path, "HOME": str(folder / "home"), "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}
    surroundings |= {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    script += ["kill %% 2>/dev/null; wait"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    for number, step in enumerate(wanted):
        found = re.search(rf"@@ {number}\n(.*?)@@ ended (\d+) {number}$", done.stdout, re.MULTILINE | re.DOTALL)
        assert found, f"{step.command}: {done.stdout[-2000:]}"
        if int(found[2]) == 4 and "metier" in step.command and " run " in step.command and parts.no_sandbox():
            continue  # without a sandbox a script does not run, as the pages say
        wrong = step.command.startswith("metier") and any(word in step.command for word in fails)
        assert found[2] == ("1" if wrong else "0"), f"{step.command}: {found[1]}"
        assert not step.shown or matches(step.shown, re.sub(str(port), "8765", found[1])), f"{step.command}: {found[1]}"
    return done.stdout


def a_project(folder: Path) -> None:
    """What the pages take as given: a repository with the bundled skills, and some skills to install."""
    (folder / ".git").mkdir(parents=True)
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home" / "project").symlink_to(folder)
    skills = REPOSITORY / "examples" / "skills"
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    left = shutil.ignore_patterns("accessible-html")  # the page on installing installs it
    shutil.copytree(skills, folder / ".agents" / "skills", ignore=left)
    pdf = folder / "pdf"
    pdf.mkdir()
    (pdf / "SKILL.md").write_text("---\nname: pdf\ndescription: Fills forms. Use when there is a PDF.\n---\nRead it.\n")
    word = folder / "word"
    word.mkdir()
    (word / "SKILL.md").write_text("---\nname: word\ndescription: Writes letters. Use for a .docx.\n---\nWrite it.\n")
    shutil.make_archive(str(folder / "word"), "zip", folder, "word")
    (folder / "word.zip").rename(folder / "word.skill")


PROGRAMS = Path(sys.executable).parent
"""The programs of this environment, but `metier` is a fork: `make test-install` runs the pages with the real one."""
