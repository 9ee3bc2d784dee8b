"""Writes the reference pages from the code, so that they cannot say anything else: run it with `make docs`.

A test compares what it would write with what is there.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import click

from metier.catalog import check, validate
from metier.cli import cli
from metier.hosts import profiles, settings
from metier.record import events

DOCS = Path(__file__).parent
HOSTS = DOCS.parent / "tests" / "hosts"
NOT_SETTABLE = (
    "fingerprint", "aliases", "environment", "ranges", "roots", "name", "summary", "documented", "documentation",
)  # fmt: skip
NAMES = {"C": "Codelia", "O": "oh-my-pi", "M": "MyCodeAgent", "R": "rip", "K": "RemcoChat"}


def diagnostics() -> str:
    lines = ["# Diagnostics", "", "Every code that the runtime reports. Codes are stable; messages are not.", ""]
    lines += ["| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in validate.CODES.items()]
    lines += ["", "## In a host", "", "What `metier check` says besides, and what SARIF has as rules.", ""]
    lines += ["| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in check.FINDINGS.items()]
    return "\n".join(lines) + "\n"


def event_types() -> str:
    lines = ["# Events", "", _paragraph(events), ""]
    lines += [
        "Every frame begins with `id`, `session_id`, `stream_kind`, `stream_id`, `timestamp_ms`, `seq`, `type`.",
        "",
    ]
    for kind in events.TYPES:
        lines += [f"## `{kind.type}`", "", _paragraph(kind), ""]
        lines += [f"- `{item.name}`" for item in fields(kind)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _paragraph(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def settings_page() -> str:
    lines = ["# Settings", "", " ".join((settings.__doc__ or "").strip().split()), ""]
    lines += ["| key | meaning |", "|---|---|"]
    lines += [f"| `{key}` | {meaning} |" for key, meaning in settings.RUNTIME_KEYS.items()]
    lines += ["", "## Settings of a profile", "", "With the values of `standard`.", "", "| key | default | meaning |"]
    lines += ["|---|---|---|"]
    standard = profiles.describe(profiles.build(profiles.load("standard")))
    lines += [
        f"| `{name}` | `{_shown(value)}` | {about} |"
        for name, value, about in _settings(profiles.Profile, standard, "")
    ]
    return "\n".join(lines) + "\n"


def _settings(cls: type, values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any, str]]:
    about = _field_docs(cls)
    for item in fields(cls):  # pyright: ignore[reportArgumentType]
        if item.name in NOT_SETTABLE:
            continue
        factory: Any = item.default_factory
        if isinstance(factory, type) and is_dataclass(factory):
            yield from _settings(factory, values[item.name], f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", values[item.name], about.get(item.name, "")


def _field_docs(cls: type) -> dict[str, str]:
    """The string below each field of a class."""
    source = inspect.getsource(cls)
    found = re.findall(r"^    (\w+):[^\n]*\n    \"\"\"(.*?)\"\"\"", source, re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


def _shown(value: Any) -> str:
    text = repr(value).replace("|", "\\|")
    return text if len(text) < 60 else text[:57] + "..."


def profiles_page() -> str:
    built = [profiles.build(profiles.load(name)) for name in profiles.BUILT_IN]
    lines = ["# Profiles", "", _paragraph(profiles), "", "| profile | what it is | described in |", "|---|---|---|"]
    lines += [f"| `{p.name}` | {p.summary} | {p.documented} |" for p in built]
    public = [p for p in built if p.documentation]
    lines += ["", "## Where they differ", "", *_differences([p for p in built if p not in public])]
    lines += ["", "The hosts that are described from their public documentation:", ""]
    lines += _differences([built[0], *public])
    lines += ["", "## Where they look", ""]
    for profile in built:
        lines.append(f"**{profile.name}**: " + "; ".join(_places(profile)) + ".")
        lines.append("")
    lines += [
        "## Where the rules come from",
        "",
        "A table's page holds for each of its settings that has none itself.",
        "",
    ]
    for profile in public:
        lines += [f"**{profile.name}**", ""]
        lines += [f"- `{rule}`: <{page}>" for rule, page in profile.documentation.items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _differences(built: list[profiles.Profile]) -> Iterator[str]:
    """A table of the settings in which the profiles are not all the same."""
    described = [dict(_flat(profiles.describe(p), "")) for p in built]
    yield f"| setting | {' | '.join(p.name for p in built)} |"
    yield "|---" * (len(built) + 1) + "|"
    for key in dict.fromkeys(key for one in described for key in one):
        values = [one.get(key) for one in described]
        if key.split(".")[0] not in (*NOT_SETTABLE, "toggles") and any(value != values[0] for value in values):
            yield f"| `{key}` | {' | '.join(_shown(value) for value in values)} |"


def _places(profile: profiles.Profile) -> Iterator[str]:
    yield from (f"`{folder}`" for folder in profile.directories)
    for root in profile.roots:
        toggle = f", while `{root.toggle}` is on" if root.toggle and root.toggle != "any" else ""
        yield f"`{root.path}` at {root.at} ({root.source}{toggle})"


def _flat(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield f"{prefix}{key}", value


def commands() -> str:
    lines = ["# Commands", "", _paragraph(sys.modules["metier.cli"]), ""]
    root = click.Context(cli, info_name="metier", **cli.context_settings)
    pending: list[tuple[click.Command, click.Context]] = [(cli, root)]
    while pending:
        command, context = pending.pop(0)
        lines += [f"## `{context.command_path}`", "", "```text", command.get_help(context), "```", ""]
        if isinstance(command, click.Group):
            names = command.list_commands(context)
            pending = [
                (inner, click.Context(inner, parent=context, info_name=name, max_content_width=80))
                for name in names
                if (inner := command.get_command(context, name)) is not None
            ] + pending
    return "\n".join(lines).rstrip() + "\n"


def hosts() -> str:
    sys.path.insert(0, str(HOSTS))
    from test_behaviour_coverage import covered  # the one place that reads the marks

    tests = covered()
    rows = [line.split("\t") for line in (HOSTS / "behaviours.tsv").read_text().splitlines()[1:]]
    done = sum(1 for one, _, _ in rows if one in tests)
    lines = ["# Hosts: every behaviour and its tests", "", f"{done} of {len(rows)} behaviours have a test.", ""]
    part = ("", "")
    for one, section, text in rows:
        if (one[0], section) != part:
            part = (one[0], section)
            lines += ["", f"## {NAMES[one[0]]}: {section}", "", "| id | behaviour | tests |", "|---|---|---|"]
        listed = "<br>".join(f"`{test}`" for test in tests.get(one, [])[:4]) or "not yet"
        lines.append(f"| {one} | {text.replace('|', chr(92) + '|')} | {listed} |")
    return "\n".join(lines) + "\n"


PAGES = {
    "diagnostics.md": diagnostics,
    "events.md": event_types,
    "settings.md": settings_page,
    "profiles.md": profiles_page,
    "commands.md": commands,
    "hosts.md": hosts,
}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (DOCS / page).write_text(write())
