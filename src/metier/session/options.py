"""The options of a session as one type, for code that passes them on to `Skills.session`.

`Unpack[SessionOptions]` gives a function the same keyword arguments, so that a type checker refuses a misspelled one
there, too. A test compares the keys with the parameters of `Skills.session`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from metier.files.source import Files
    from metier.policy.asking import Approve
    from metier.policy.decide import Policy
    from metier.record.state import OpenedState
    from metier.record.store import Store
    from metier.running.sandbox import Runner


class SharedOptions(TypedDict, total=False):
    """The options that several sessions can share: all but the id. See `Skills.session` for their meaning."""

    policy: "Policy | Mapping[str, object] | None"
    store: "str | Store | None"
    approve: "Approve | None"
    tools: bool | None
    preload: Sequence[str]
    only: Sequence[str] | None
    has_read_tool: bool | None
    state: "Mapping[str, object] | OpenedState | None"
    files: "Files | None"
    runner: "Runner | None"
    surface: str
    cwd: str | None
    store_required: bool
    applies: Collection[str] | None
    clock: Callable[[], int] | None
    ids: Callable[[], str] | None


class SessionOptions(SharedOptions, total=False):
    """The options of one session."""

    id: str | None
