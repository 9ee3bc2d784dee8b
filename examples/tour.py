"""Runs the main commands on the bundled skills and prints what they print, in a temporary home folder: `make tour`."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEPS = (
    ("List the six skills, by name and description.", "list"),
    ("Search names, descriptions and bodies, ranked.", 'search "duplicate rows in this csv"'),
    ("Show what a model sees with a budget of 900 characters.", 'prompt --message "write release notes" --budget 900'),
    ("Show what the model gets when it loads a skill (the first lines).", "load skills-system-validation"),
    (
        "Read a file of a skill, by URL. Files outside of its folder cannot be read.",
        "read skill://skills-system-validation/assets/fixture.json",
    ),
    ("This path is refused.", "read skill://skills-system-validation/../../README.md"),
    ("Run a script in a sandbox.", "run skills-system-validation scripts/echo.sh --yes -- hello"),
    ("Show the events.", "events --type skill_loaded --type tool_started --type tool_ended"),
    ("Run the last session again from its record and compare every byte.", "replay"),
)


def main() -> None:
    metier = Path(sys.executable).with_name("metier")
    with tempfile.TemporaryDirectory(prefix="metier-demo-") as home:
        environment = {**os.environ, "HOME": home, "COLUMNS": "80"}
        for about, command in STEPS:
            print(f"\n# {about}\n$ metier {command}", flush=True)
            line = [str(metier), "--skills", str(HERE / "skills"), *shlex.split(command)]
            done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
            shown = (done.stdout + done.stderr).rstrip().split("\n")
            print("\n".join(shown[:24] + (["..."] if len(shown) > 24 else [])))
    print("\nTo do the same in Python, see docs/embed.md. For the web app, run `make demo`.")


if __name__ == "__main__":
    main()
