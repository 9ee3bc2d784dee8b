"""The locks and environments of one user, and the way from a script to them."""

import os
import re
from typing import Final

from metier.files.tree import SkillTree
from metier.running.packages import Wanted, programs
from metier.running.packages.declared import declared
from metier.running.packages.environment import Environments
from metier.running.packages.inferred import inferred
from metier.running.packages.interpreters import Interpreter
from metier.running.packages.lock import Lock, Locks, key

_PYTHON: Final = re.compile(r"#!.*\b(python[0-9.]*|uv)\b")


def wanted_by(tree: SkillTree, script: str, head: str) -> Wanted | None:
    """What a script wants, by what is declared for it or by its imports; `None` if nothing."""
    suffix = os.path.splitext(script)[1].lower()
    if suffix in (".js", ".mjs", ".cjs"):
        return declared(tree, script)
    if suffix != ".py" and not _PYTHON.match(head.split("\n", 1)[0]):
        return None
    return declared(tree, script) or inferred(tree, script)


class PackageState:
    """Locks in the data folder of the user, and environments, which can be made again, in the cache folder."""

    def __init__(self, data_folder: str, cache_folder: str) -> None:
        self.locks = Locks(os.path.join(data_folder, "locks"))
        self.environments = Environments(os.path.join(cache_folder, "environments"))

    def lock(
        self,
        wanted: Wanted,
        interpreter: Interpreter | None,
        *,
        builds: bool,
        anew: bool = False,
        offline: bool = False,
    ) -> Lock | None:
        """The lock for what is wanted, made if there is none or `anew` is set. Raises `PackagesUnavailable`.

        `offline`: the index is not asked, so there may be none.
        """
        from metier.running.packages.resolve import resolve  # only where the index is asked

        python = f"{interpreter.path} {interpreter.version}" if interpreter is not None else ""
        name = key(wanted, python, builds=builds)
        found = None if anew else self.locks.find(name)
        if found is None and not offline:
            with programs.workplace(self.environments.folder) as workplace:
                found = resolve(wanted, interpreter, workplace, builds=builds)
            self.locks.keep(name, found)
        return found
