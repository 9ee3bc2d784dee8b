"""How long tests wait. A wait ends with its condition; this only says when to give up, whatever the machine does."""

from typing import Final

PATIENCE: Final = 300.0
"""Seconds after which a wait was in vain. A whole test has three times as long."""
