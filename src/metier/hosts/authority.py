"""Who may set which setting: the one table that decides what the files of a project can change.

A project's files can only narrow. What counts as narrower is a function for each setting, and a setting without one is
neither narrower nor wider: for it, the project needs trust as soon as the user requires trust. What the user, the
environment or the caller sets is not looked up here, and neither are the files of a project that the user trusts,
except for what is the user's alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from metier.quick_dataclass import dataclass

Who = Literal["user", "trusted", "project", "any"]
"""Who may set something: the user alone; a trusted project, too; a project unless trust is required; any project."""

Narrower = Callable[[Any, Any], bool]
"""Whether a new value allows nothing that the old one does not."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Who may set a setting to any value, and which values any project may set."""

    who: Who
    narrower: Narrower | None = None

    def counts(self, old: object, new: object, *, required: bool, set_by_user: bool) -> bool:
        """Whether the value of an untrusted project counts.

        `required`: the user requires trust. `set_by_user`: the old value stands in the user's own file.
        """
        if new == old or self.who == "any" or (self.narrower is not None and self.narrower(old, new)):
            return True
        return self.who == "project" and not required and not (set_by_user and self.narrower is not None)

    @property
    def description(self) -> str:
        """The rule in words, for the reference."""
        words = {
            "user": "the user",
            "trusted": "a trusted project",
            "project": "a project, unless trust is required",
            "any": "any project",
        }[self.who]
        return f"{words}; any project to narrow it" if self.narrower is not None else words


def _lower(old: int, new: int) -> bool:
    return 0 <= new <= old


def _lower_limit(old: int, new: int) -> bool:
    """For limits that 0 lifts."""
    return new > 0 and (old == 0 or new <= old)


def _fewer(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    return all(item in old for item in new)


def _fewer_but_some(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    """For lists that mean something else, and more, if they are empty."""
    return bool(new) and _fewer(old, new)


def _fewer_than_all(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    """For lists that mean everything if they are empty."""
    return bool(new) and (not old or _fewer(old, new))


def _more(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    return all(item in new for item in old)


def _off(old: object, new: object) -> bool:
    return new is False


def _on(old: object, new: object) -> bool:
    return new is True


def _only(value: object) -> Narrower:
    return lambda _, new: new == value


def _towards(*values: str) -> Narrower:
    """For values from the widest to the narrowest."""
    return lambda old, new: values.index(new) >= values.index(old)


def _hides_more(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """More keys of the frontmatter that hide a skill. `alwaysApply` puts its text into the prompt instead."""
    return _more(old, new) and ("alwaysApply" in old or "alwaysApply" not in new)


def _restricts(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Rules that allow nothing."""
    return all(key in ("deny", "ask") for key in new)


_USER: Final = Authority("user")
_TRUSTED: Final = Authority("trusted")
_PROJECT: Final = Authority("project")
_ANY: Final = Authority("any")


def _project(narrower: Narrower) -> Authority:
    return Authority("project", narrower)


def _trusted(narrower: Narrower) -> Authority:
    return Authority("trusted", narrower)


_LINKS: Final = _towards("follow", "inside", "never")
_BREACH: Final = _towards("ignore", "warn", "error")

AUTHORITIES: Final[Mapping[str, Authority]] = {
    # --- the keys that are not settings of a profile ---
    "profile": _PROJECT,  # by its name; a file needs trust
    "cache": _project(_off),
    "store": _TRUSTED,
    "store_required": _TRUSTED,
    "store_days": _USER,  # they delete the records of other projects, too
    "store_megabytes": _USER,
    "telemetry": _TRUSTED,
    "model": _USER,  # it receives the conversation
    "mcp": _USER,  # servers are programs that are started
    "check": _ANY,  # by names; a file needs trust
    "permissions": Authority("user", _restricts),
    # --- the profile ---
    "name": _TRUSTED,
    "summary": _ANY,
    "enabled": _project(_off),
    "directories": _project(_fewer_but_some),
    "custom_directories": _project(_fewer),
    "custom_toggle": _PROJECT,
    "extra_scope": _PROJECT,
    "custom_scope": _PROJECT,
    "project.markers": _PROJECT,
    "project.markers_env": _PROJECT,
    "project.root_env": _PROJECT,
    "roots": _project(_fewer),
    "toggles": _project(_off),
    "discovery.depth": _project(_lower_limit),
    "discovery.nested": _project(_off),
    "discovery.folder_links": _trusted(_LINKS),
    "discovery.file_links": _trusted(_LINKS),
    "discovery.hidden": _project(_off),
    "discovery.root_is_skill": _project(_off),
    "discovery.ignore": _project(_more),
    "discovery.max_depth": _trusted(_lower),
    "discovery.max_directories": _trusted(_lower),
    "discovery.max_linked_directories": _trusted(_lower),
    "discovery.max_skills": _trusted(_lower),
    "discovery.missing_root": _ANY,
    "validation.name_pattern": _project(_towards("any", "unicode", "ascii")),
    "validation.name_length": _project(_lower_limit),
    "validation.name_breach": _project(_BREACH),
    "validation.name_source": _PROJECT,
    "validation.name_mismatch": _project(_BREACH),
    "validation.name_missing": _project(_only("error")),
    "validation.description_length": _project(_lower_limit),
    "validation.description_breach": _project(_BREACH),
    "validation.description_missing": _project(_only("error")),
    "validation.optional_breach": _project(_BREACH),
    "validation.unknown_keys": _project(_only("error")),
    "validation.known_keys": _project(_fewer),
    "validation.list_fields": _PROJECT,
    "validation.flag_fields": _PROJECT,
    "validation.allowed_tools_forms": _PROJECT,
    "validation.repair": _project(_off),
    "validation.simple_lines": _project(_off),
    "validation.frontmatter_required": _project(_on),
    "validation.frontmatter_broken": _project(_only("error")),
    "collisions.rule": _PROJECT,
    "collisions.copies": _PROJECT,
    "collisions.switched_off": _project(_only("count")),
    "filters.include": _project(_fewer_than_all),
    "filters.ignore": _project(_more),
    "catalog.order": _ANY,
    "catalog.max_skills": _project(_lower_limit),
    "catalog.honours": _project(_hides_more),
    "catalog.reads": _ANY,
    "catalog.flag_words": _project(_on),
    "catalog.policy_file": _PROJECT,
    "catalog.refresh": _PROJECT,
    "prompt.format": _PROJECT,
    "prompt.max_entries": _project(_lower_limit),
    "prompt.max_bytes": _project(_lower_limit),
    "prompt.max_chars": _project(_lower_limit),
    "prompt.order": _ANY,
    "prompt.zero_chars": _project(_only("nothing")),
    "prompt.needs_read_tool": _project(_on),
    "prompt.preloaded_replace": _PROJECT,
    "prompt.fields": _trusted(_fewer),
    "prompt.description_fields": _project(_fewer),
    "prompt.description_chars": _project(_lower_limit),
    "context.agents_files": _project(_towards("ancestors", "project", "none")),
    "context.max_levels": _project(_lower),
    "context.activated": _project(_off),
    "invocation.forms": _project(_fewer),
    "invocation.commands": _project(_off),
    "invocation.loads": _PROJECT,
    "load.wrap": _PROJECT,
    "load.reload": _PROJECT,
    "load.max_bytes": _project(_lower_limit),
    "load.max_files": _project(_lower),
    "load.max_file_bytes": _project(_lower),
    "load.arguments": _PROJECT,
    "load.refresh_on_call": _PROJECT,
    "resources.max_bytes": _project(_lower_limit),
    "resources.parents": _project(_towards("normalise", "refuse")),
    "resources.hide_paths": _project(_on),
    "search.default_limit": _project(_lower),
    "search.max_limit": _project(_lower),
    "search.scoring": _ANY,
    "search.expand": _ANY,
    "search.synonyms": _ANY,
    "tools.load": _PROJECT,
    "tools.search": _project(_only("")),
    "tools.read": _project(_only("")),
    "tools.output": _project(_only("")),
    "tools.run": _project(_only("")),
    "tools.shape": _PROJECT,
    "tools.host_read": _project(_on),
    "tools.enumerate_names": _ANY,
    "run.folders": _trusted(_fewer),
    "run.seconds": _trusted(_lower),
    "run.memory_mib": _trusted(_lower),
    "run.processes": _trusted(_lower),
    "run.output_bytes": _trusted(_lower),
    "run.work_mib": _trusted(_lower),
    "run.folder": _trusted(_towards("read", "none")),
    "run.env": _trusted(_fewer),
    "run.sandbox": Authority("user", _fewer),
    "run.image": _USER,  # its programs run the scripts
    "run.private_hosts": _trusted(_off),
    "run.packages": _trusted(_only("never")),
    "run.build_packages": _trusted(_off),
    "policy.confirm_loads": _trusted(_on),
    "policy.unasked": _trusted(_towards("allow", "loads", "refuse")),
    "policy.enforce_hints": _trusted(_on),
    "policy.trust": _trusted(_only("required")),
    "policy.edits": _trusted(_off),
}
"""Every setting, by the name that it has in `metier.hosts.schema` or in `RUNTIME_KEYS`."""


def authority(name: str) -> Authority:
    """Who may set a setting, by our name for it."""
    return AUTHORITIES["toggles" if name.startswith("toggles.") else name]
