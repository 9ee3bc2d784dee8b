"""`serve --json` prints where it listens, as JSON."""

import json
import signal
import subprocess
import sys

import pytest

from forking import METIER
from piping import reading
from worlds import World

pytestmark = pytest.mark.system


def test_the_address_and_the_link_are_one_object(world: World) -> None:
    process = subprocess.Popen(
        [*METIER, "serve", "--port", "0", "--json"],
        cwd=world.project,
        env={"HOME": str(world.home), "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = reading(process.stdout)
        text = ""
        while not text.endswith("}\n"):
            text += lines.get()
        told = json.loads(text)
        assert told["address"].startswith("http://127.0.0.1:")
        assert told["link"].startswith(told["address"])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
