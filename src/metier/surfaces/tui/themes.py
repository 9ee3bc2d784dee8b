"""The colours of the programs on the terminal: a dark and a light theme, or those of the terminal."""

import os
from typing import Final, TypeVar

from textual.app import App
from textual.theme import Theme

ResultT = TypeVar("ResultT")

_DARK: Final = Theme(
    name="metier-dark",
    primary="#7aa2c9",
    secondary="#8fb39a",
    accent="#d6a35c",
    warning="#d6a35c",
    error="#d97b6c",
    success="#8fb39a",
    foreground="#d5d8dc",
    background="#15181c",
    surface="#1b1f24",
    panel="#242a31",
    dark=True,
    variables={"muted": "#8d959e"},
)
_LIGHT: Final = Theme(
    name="metier-light",
    primary="#2f5f8f",
    secondary="#3d6b4c",
    accent="#8a5a12",
    warning="#8a5a12",
    error="#a8392a",
    success="#3d6b4c",
    foreground="#22262b",
    background="#fbfaf7",
    surface="#f3f1ec",
    panel="#e6e3dc",
    dark=False,
    variables={"muted": "#6b6f75"},
)


class ThemedApp(App[ResultT]):
    """A program in the theme for the terminal."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        # Only native colours can be switched off completely.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.register_theme(_DARK)
        self.register_theme(_LIGHT)
        self.theme = "metier-light" if _light_terminal() else "metier-dark"


def _light_terminal() -> bool:
    """Whether the terminal reports a light background. Few terminals report anything."""
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
