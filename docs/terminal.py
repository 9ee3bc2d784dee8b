"""Makes the moving picture of the terminal in the README: `make screenshots`.

It runs the commands on the bundled skills in a temporary home folder and draws what they print, so the picture cannot
show what the program does not do. The picture is one SVG file without scripts. Where people ask for less motion, it
shows the last scene and stands still.
"""

import contextlib
import fcntl
import html
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SKILLS = ROOT / "examples" / "skills"
PICTURE = HERE / "pictures" / "terminal.svg"
SCENES = (
    "metier list",
    'metier search "duplicate rows in this csv"',
    "metier read skill://csv-profile/../../../etc/passwd",
    "metier run skills-system-validation scripts/echo.sh --yes -- hello",
    "metier replay",
    "metier check examples/skills/csv-profile",
)
COLUMNS, ROWS = 80, 15
CELL, LINE, MARGIN, BAR = 8.4, 20, 16, 32
TYPING, READING = 0.045, 2.6  # seconds for a character, and for a scene

STYLE = """\
svg { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.back { fill: #16181d } .bar { fill: #23262d } .dot { fill: #4a4f5a }
text { fill: #d7dae0; white-space: pre } .prompt { fill: #7aa2f7 } .typed { fill: #ffffff; font-weight: 600 }
.bold { font-weight: 700; fill: #ffffff }
.scene { visibility: hidden; animation: var(--shown) var(--all) step-end infinite }
.cover { fill: #16181d; animation: var(--moved) var(--all) linear infinite }
.output { visibility: hidden; animation: var(--told) var(--all) step-end infinite }
@media (prefers-reduced-motion: reduce) {
  .scene, .output, .cover { animation: none }
  .scene:last-of-type, .scene:last-of-type .output { visibility: visible }
  .cover { visibility: hidden }
}
"""


def printed(commands: tuple[str, ...]) -> list[list[str]]:
    """The lines that each command prints on a terminal of 80 columns."""
    with tempfile.TemporaryDirectory(prefix="metier-") as home:
        surroundings = {**os.environ, "HOME": home, "NO_COLOR": "1", "TERM": "xterm"}
        surroundings.pop("COLUMNS", None)
        return [on_a_terminal(shlex.split(command)[1:], surroundings) for command in commands]


def on_a_terminal(arguments: list[str], surroundings: dict[str, str]) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    line = [sys.executable, "-m", "metier", "--skills", str(SKILLS), *arguments]
    process = subprocess.Popen(line, cwd=ROOT, env=surroundings, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # the last process closed the terminal
        while more := os.read(ours, 65_536):
            text += more
    os.close(ours)
    process.wait()
    return text.decode().replace("\r\n", "\n").rstrip().splitlines()


def shown_of(lines: list[str]) -> list[str]:
    """What fits: long lines and long outputs end with dots."""
    plain = [re.sub(r"\x1b\[\d*m", "", line) for line in lines]
    cut = [line if len(bare) <= COLUMNS else f"{bare[: COLUMNS - 1]}…" for line, bare in zip(lines, plain, strict=True)]
    return cut if len(cut) < ROWS else [*cut[: ROWS - 2], "…"]


def with_bold(line: str) -> str:
    return html.escape(line).replace("\x1b[1m", '<tspan class="bold">').replace("\x1b[0m", "</tspan>")


def draw(commands: tuple[str, ...], scenes: list[list[str]]) -> str:
    seconds = [len(command) * TYPING + READING for command in commands]
    whole = sum(seconds)
    width, height = COLUMNS * CELL + 2 * MARGIN, ROWS * LINE + 2 * MARGIN + BAR
    frames, drawn = [], []
    start = 0.0
    for number, (command, lines, length) in enumerate(zip(commands, scenes, seconds, strict=True)):
        typed = start + len(command) * TYPING
        begin, told, end = (f"{100 * moment / whole:.2f}%" for moment in (start, typed, start + length))
        hidden, visible = "{ visibility: hidden }", "{ visibility: visible }"
        frames.append(f"@keyframes shown{number} {{ 0% {hidden} {begin} {visible} {end}, 100% {hidden} }}")
        frames.append(f"@keyframes told{number} {{ 0% {hidden} {told} {visible} {end}, 100% {hidden} }}")
        there = f"{{ transform: translateX({len(command) * CELL:.1f}px) }}"
        frames.append(
            f"@keyframes moved{number} {{ 0%, {begin} {{ transform: none }} {told}, {end} {there} 100% {there} }}"
        )
        top = BAR + MARGIN + LINE
        drawn.append(
            f'<g class="scene" style="--all: {whole:.1f}s; --shown: shown{number}; --told: told{number}; '
            f'--moved: moved{number}">'
        )
        typed_line = f'<tspan class="prompt">$ </tspan><tspan class="typed">{html.escape(command)}</tspan>'
        drawn.append(f'<text x="{MARGIN}" y="{top}">{typed_line}</text>')
        left = MARGIN + 2 * CELL
        drawn.append(
            f'<rect class="cover" x="{left:.1f}" y="{top - 15}" width="{(COLUMNS - 2) * CELL:.1f}" height="{LINE}"/>'
        )
        drawn.append('<g class="output">')
        drawn += [
            f'<text x="{MARGIN}" y="{top + LINE * row}">{with_bold(line)}</text>'
            for row, line in enumerate(shown_of(lines), 1)
            if line
        ]
        drawn.append("</g></g>")
        start += length
    dots = "".join(f'<circle class="dot" cx="{20 + 20 * dot}" cy="{BAR / 2}" r="6"/>' for dot in range(3))
    size = f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
    label = 'role="img" aria-label="Metier on the command line"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>',
            f"<style>\n{STYLE}" + "\n".join(frames) + "\n</style>",
            '<rect class="back" width="100%" height="100%" rx="8"/>',
            f'<rect class="bar" width="100%" height="{BAR}" rx="8"/>',
            dots,
            f'<svg y="0" width="{width - MARGIN:.0f}" height="{height}">',
            *drawn,
            "</svg></svg>\n",
        ]
    )


def main() -> None:
    PICTURE.write_text(draw(SCENES, printed(SCENES)))


if __name__ == "__main__":
    main()
