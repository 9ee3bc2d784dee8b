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
    env = {"HOME": str(world.home), "PYTHONPATH": ":".join(sys.path)}
    command = [*METIER, "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=world.project, env=env, stdout=subprocess.PIPE, text=True) as process:
        lines = reading(process.stdout)
        text = ""
        while not text.endswith("}\n"):
            text += lines.get()
        process.send_signal(signal.SIGINT)
    told = json.loads(text)
    assert told["address"].startswith("http://127.0.0.1:")
    assert told["link"].startswith(told["address"])
