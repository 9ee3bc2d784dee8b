"""`metier` as a user calls it in a project: what it printed, and how it ended."""

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from metier.surfaces.cli import main, output
from worlds import World


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is printed fit a terminal of 80 columns, as if there were one."""
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")


def caller(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in the project of a world; a traceback or a bug is never an answer."""
    monkeypatch.chdir(world.project)
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["metier", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err + shown.out
        assert "this is a bug" not in shown.err, shown.err
        return Result(int(stop.value.code or 0), shown.out, shown.err)

    return call
