"""What the programs on the terminal share: their colours, tables of keys, and the bar that shows keys."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.theme import Theme

ResultT = TypeVar("ResultT")


class ThemedApp(App[ResultT]):
    """A program in a dark or a light theme, as the terminal is, or in the colours of the terminal."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        # Only native colours can be switched off completely.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        themes = tomllib.loads(Path(__file__).with_name("themes.toml").read_text("utf-8"))
        for name, colours in themes.items():
            self.register_theme(Theme(name, **colours))
        # Few terminals report anything about their background.
        is_light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
        self.theme = "metier-light" if is_light else "metier-dark"


def bindings(actions: Mapping[str, str], *, priority: bool = False) -> Iterator[Binding]:
    """The bindings of keys to actions. With `priority`, they hold whatever has the focus."""
    return (Binding(keys, action, show=False, priority=priority) for keys, action in actions.items())


def key_bar(keys: Mapping[str, str]) -> Text:
    bar = Text(no_wrap=True)
    for key, does in keys.items():
        bar.append(f" {key} ", "bold")
        bar.append(f"{does}  ")
    return bar
