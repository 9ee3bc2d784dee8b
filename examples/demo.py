"""Serves the web app with the bundled skills, without a key or an account: `make demo`.

All data (chats, events, modes of skills) is kept in `.demo`, or in the folder given as an argument. Remove the folder
to start over. Your home folder is neither read nor written.
"""

import os
import socket
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PORT = 8765

HINTS = """
Metier with the six skills of examples/skills. Try these in the chat:

  is there anything wrong with this csv file?
  (add a csv file with the clip) /csv-profile run scripts/profile_csv.py
  /skills-system-validation read assets/fixture.json
  /skills-system-validation run scripts/echo.sh hello

Open the link below to sign in. It works once; the page says what to do after
that. No model is configured, so an offline guide answers. Use the button above
the chat to choose a model. Press Ctrl-C to stop.

In another terminal, `make tour` shows the command line, and this is yours:

  .venv/bin/metier --skills examples/skills list
"""


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def main() -> None:
    home = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / ".demo").resolve()
    project = home / "project"
    (project / ".metier").mkdir(parents=True, exist_ok=True)  # so that no enclosing folder is taken as the project
    print(HINTS, flush=True)
    metier = Path(sys.executable).with_name("metier")
    line = [str(metier), "serve", "--skills", str(HERE / "skills"), "--cwd", str(project), "--home", str(home)]
    line += ["--port", str(PORT if free(PORT) else 0)]
    if any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")) or sys.platform == "darwin":
        line.append("--open")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("METIER_", "XDG_"))}
    os.execve(metier, line, {**kept, "HOME": str(home)})


if __name__ == "__main__":
    main()
