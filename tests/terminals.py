"""A real terminal for a test: a shell in tmux, keys that go in, and what a person sees."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from watching import wait_for
from worlds import World


class Terminal:
    """A terminal of a given size in which a shell runs one line."""

    def __init__(self, world: World, socket: Path) -> None:
        self.world, self.socket = world, socket

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def run(self, line: str, columns: int = 80, rows: int = 24, colour: bool = True, before: str = "") -> None:
        """Run a line of shell, in which `metier` is this package, after the Python statements `before`."""
        kept = {"PATH": os.environ["PATH"], "HOME": str(self.world.home), "LANG": "C.UTF-8"}
        kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # the same package as in this process
        program, script = self.world.home / "program.py", self.world.home / "line.sh"
        program.write_text(f"{before}\nfrom metier.surfaces.cli import main\nmain()\n")
        metier = f"{shlex.quote(sys.executable)} -P {shlex.quote(str(program))}"
        script.write_text(
            f'metier() {{ {metier} "$@"; }}\ncd {shlex.quote(str(self.world.project))}\n{line}\nsleep 600\n'
        )
        variables = kept | ({} if colour else {"NO_COLOR": "1"})
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        command = f"env -i TERM=tmux-256color {settings} sh {shlex.quote(str(script))}"
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), command)

    def shown(self, *how: str) -> str:
        return self.tmux("capture-pane", "-p", *how)

    def until(self, text: str) -> str:
        try:
            wait_for(lambda: text in self.shown(), f"{text!r} on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.shown()}") from None
        return self.shown()

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def close(self) -> None:
        subprocess.run(["tmux", "-S", str(self.socket), "kill-server"], capture_output=True, check=False)
