"""Replay: a record is checked, run again offline, and compared byte for byte; or held against today's files."""

from metier.replay.record import (
    Difference,
    Record,
    from_file,
    from_store,
    looks_like_file,
    redacted,
    unrunnable,
    verify,
)
from metier.replay.run import ReplayOutcome, drift, perform, replay

__all__ = [
    "Difference",
    "Record",
    "ReplayOutcome",
    "drift",
    "from_file",
    "from_store",
    "looks_like_file",
    "perform",
    "redacted",
    "replay",
    "unrunnable",
    "verify",
]
