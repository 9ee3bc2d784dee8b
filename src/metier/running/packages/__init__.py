"""The packages that scripts of skills import: what is wanted, exact versions of it, and a folder with them.

A skill says what its script needs, or the imports of the script do (`declared`, `inferred`). An installer of the user
resolves that to exact versions with hashes (`resolve`), which are kept as a lock beside Metier's other state (`lock`)
and installed into a folder that is cached by the digest of the lock (`environment`). The invariant: no code of a
package runs outside a sandbox. Only wheels are taken, nothing is imported, and a skill names packages of a registry and
nothing else: no index, address, repository or path.
"""

from typing import Final, Literal

from metier.values.value import Value

Ecosystem = Literal["python", "node"]

MANIFEST_BYTES: Final = 4 * 1024 * 1024
"""The largest file of a skill that is read for what it declares."""


class PackagesUnavailable(Exception):
    """What a script wants cannot be had. The message is one sentence for a person, with the way out if there is one."""


class Wanted(Value, kw_only=True):
    """What a script needs, before anything is looked up."""

    unshown = (
        "manifest",
        "locked",
    )

    kind: Ecosystem = "python"
    requirements: tuple[str, ...] = ()
    """Names with their bounds, as in a requirements file, sorted. For Node, as `name@range`."""
    source: str = ""
    """Where this is said, such as `requirements.txt`, or `imports of scripts/run.py`."""
    inferred: tuple[str, ...] = ()
    """The requirements that nobody declared. One that is on no index is left out."""
    python: str = ""
    """The versions of Python that are declared, such as `>=3.12`."""
    notes: tuple[str, ...] = ()
    """What was declared and does not count, and why."""
    refused: tuple[str, ...] = ()
    """What was declared and is no package of a registry. A script that needs it does not run."""
    manifest: bytes = b""
    locked: bytes = b""
    """The package.json and the package-lock.json that npm gets for a Node script."""


class Environment(Value):
    """What a run gets besides its sandbox: a folder with packages, and the interpreter they are for."""

    kind: Ecosystem
    folder: str = ""
    """The folder with the modules. Empty if there are none."""
    python: str = ""
    """The path of the interpreter. Empty for the usual one."""
    version: str = ""
    """The version of that interpreter, as `3.11`."""
    root: bool = False
    """Whether the script imports modules from the skill's own folder, as with `python -m scripts.name` there."""
