"""Chooses a runner by its name: a built-in one, or one that an installed package has in the group `metier.runners`.

The invariant: a runner without a sandbox is returned only if its name was given, and the name `none` is never a
package's.
"""

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from metier.errors import SandboxUnavailable
from metier.files import plugins
from metier.hosts.schema import CONTAINER_IMAGE, RunRules
from metier.running.sandbox import Runner

_BUILT_IN: Final = {
    "bubblewrap": "metier.running.sandbox.bubblewrap:BubblewrapRunner",
    "container": "metier.running.sandbox.container:ContainerRunner",
    "none": "metier.running.sandbox.unsandboxed:UnsandboxedRunner",
}


@runtime_checkable
class _Remedied(Protocol):
    """A runner that can tell what the user can do about its `problem`."""

    def remedy(self) -> str: ...


def choose(names: Sequence[str] | None = None, *, image: str = CONTAINER_IMAGE) -> Runner:
    """Return the first of the named runners that works here; without names, as the settings do by default.

    `none`, without a sandbox, must be named explicitly. `image` is for the runner `container`.
    """
    if names is not None and not names:
        raise SandboxUnavailable("the setting run.sandbox is empty, so no script runs")
    tried: list[str] = []
    remedy = ""
    for name in RunRules().sandbox if names is None else names:
        runner = _make(name, image)
        reason = runner.problem()
        if reason is None:
            return runner
        tried.append(f"{name}: {reason}")
        remedy = remedy or (runner.remedy() if isinstance(runner, _Remedied) else "")
    raise SandboxUnavailable("no sandbox works on this machine", install=remedy, tried=tried)


def _make(name: str, image: str) -> Runner:
    kind = plugins.find("metier.runners", name, _BUILT_IN)
    if kind is None:
        raise plugins.unknown("runner", name, [*_BUILT_IN, *plugins.installed("metier.runners")], key="run.sandbox")
    return kind(image) if name == "container" else kind()
