"""A walk through Metier on the bundled skills: what each command prints, in a home of its own that ends with it."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEPS = (
    ("What is there: six skills, by name and description.", "list"),
    ("Which one fits? Ranked search over names, descriptions and bodies.", 'search "duplicate rows in this csv"'),
    ("What a model sees when 900 characters must do.", 'prompt --message "write release notes" --budget 900'),
    ("What it gets when it loads a skill (the first lines).", "load skills-system-validation"),
    ("A file of a skill, by URL; nothing outside of its folder can be read.", "read skill://skills-system-validation/assets/fixture.json"),
    ("So this is refused.", "read skill://skills-system-validation/../../README.md"),
    ("A script, in a sandbox.", "run skills-system-validation scripts/echo.sh --yes -- hello"),
    ("Everything that happened, as events.", "events --type skill_loaded --type tool_started --type tool_ended"),
    ("And the last session again, from its record alone, compared byte for byte.", "replay"),
)  # fmt: skip


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
    print("\nThe same in Python: docs/embed.md. In the browser: `make demo`.")


if __name__ == "__main__":
    main()
