"""The attack suite: it attacks Metier from outside, with real processes, until its time is over.

`python -m bench.attack` takes the families of attacks in turn, as root and as an ordinary user, in rounds of some
seconds. A round has its own folder, with secrets in it, and its own random numbers, so it can be repeated. What counts
is what is found outside: a secret in an answer, a file that should not be there, memory that was taken, a process that
is left. The families are also run for a moment by tests/attack, with a protection taken out, which they must notice.
Tests use the attempts, archives and messages, too.
"""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parents[2] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)  # which programs are here, and how long to wait, is known there
