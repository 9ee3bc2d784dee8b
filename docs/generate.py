"""Writes the generated reference pages from the code: run it with `make docs`.

A test compares the pages with what this script would write, so they cannot differ from the code.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import cast

import click

from metier.catalog import validate
from metier.hosts import documentation, profiles, roots
from metier.hosts.documentation import CERTAINTIES, Documentation
from metier.hosts.schema import RuntimeSettings
from metier.record import events
from metier.record.store import ENVELOPE
from metier.surfaces.cli import cli, failure

DOCS = Path(__file__).parent
HOSTS = DOCS.parent / "tests" / "hosts"
NOT_SETTABLE = (
    "fingerprint",
    "aliases",
    "environment",
    "ranges",
    "roots",
    "name",
    "summary",
)
EVENTS = """\
Each step of a session is recorded as an event. A frame is an event as it is stored and sent, as a JSON object. Every
surface records the same events.
"""
SETTINGS = """\
Settings come from these sources. A later one overrides an earlier one.

1. the profile
2. `~/.config/metier/config.toml`
3. `<project>/.metier/config.toml`
4. `[tool.metier]` in the `pyproject.toml` of the project
5. the environment: `METIER_*`, and the variables of the host
6. options and arguments of the caller

A key is either one of the [keys](#keys) below or a setting of the profile. `metier doctor` shows where each value
comes from.

## What a project may set

A repository is as foreign as the skills in it. Until you trust a project with `metier trust`, only these settings of
its files (3 and 4) count: `permissions.deny`, `permissions.ask`, and `check.hosts` with hosts that Metier knows by
name. All others wait. They are checked, so a wrong value is an error, and one warning names them.

`metier trust` prints the settings that count from then on. It covers what the files say at that moment, and what a
profile file says that they choose: if a setting changes later, all of them wait again, and the warning has the
difference. Comments, and other tables of `pyproject.toml`, may change.

These settings are yours alone; no project sets them, trusted or not: `permissions` except for `deny` and `ask`,
`model`, `mcp`, `store_days`, `store_megabytes`, `run.sandbox` and `run.image`.

Rules in your own files use the names for tools of your profile and your own settings. A project that renames a tool in
`[tools]` does not change what your rules mean.

A project's `.metier/skills.json` can hide skills from the model or turn them off, but not turn them on or pin them.

## Keys
"""
PROFILES = """\
A profile has the rules of one host. Choose one with `--profile NAME`, with the setting `profile`, or in Python with
`Skills.discover(profile=...)`. To write your own, create a TOML file that `extends` a profile and changes some values.
Give its path instead of a name.
"""
COMPARISON = """\
`name` says how a skill's name relates to its folder, `wins` says whose skill is used if two have one name, and `sure`
is how many of the rules that a profile sets have a source.
"""
DIFFERENCES = """\
Each table has the settings of one subject in which the profiles differ. Every setting is described in
[Settings](settings.md).
"""
SOURCES = """\
Every rule that a profile sets has a source, or says why it is assumed. The other rules are those of `standard`. How
sure `metier check` is of a verdict depends on the rules that the verdict rests on:
"""
LINKS = """\
Profiles differ in whether they follow links (`discovery.folder_links`, `discovery.file_links`). Some rules hold in all
of them, because a link must not bring in what nobody chose:

- A link in a project leads to another place of the same project. A link out of the project is followed only if you
  trust the project.
- A link in your own folders leads anywhere: to a single skill, or to a folder with several. It does not lead to a
  folder that contains the folder it is in, such as `/`, and not to the folder in which the host looks for the skills of
  another project. Other repositories below its target are not searched.
- A root has at most `discovery.max_skills` skills. The search of a larger one stops there.
- An AGENTS.md is a regular text file of at most 1 MiB. It may be a link to another Markdown file of its project.

What is not followed or not read is reported (see [Diagnostics](diagnostics.md)).
"""
COMMANDS = """\
The options of `metier` itself work before and after the name of a command. A pipe gets whole lines, one record per
line; only a terminal gets text that is cut and wrapped to its width.
"""
JSON = """\
With `--json`, a command prints one JSON document on standard output; `events`, `list --watch` and
`session store export` print one object per line. A program must accept keys that it does not know, because later
versions may add some.

Standard error then has JSON objects only, one per line: `{"warning": {"message": ...}}` any number of times, and at
most one error, as the last line:

```json
{"error": {"code": "NOT_FOUND", "message": "no skill 'pfd'", "exit_code": 1, "wanted": "pfd", "close": ["pdf"]}}
```

The keys after `exit_code` are the attributes of the [error](reference/errors.md). Codes and keys are stable, messages
are not.
"""
NAMES = {"C": "Codelia", "O": "oh-my-pi", "M": "MyCodeAgent", "R": "rip", "K": "RemcoChat"}


def diagnostics() -> str:
    lines = ["# Diagnostics", "", "Metier reports these codes. Codes are stable, messages are not.", ""]
    lines += ["| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in validate.codes()["diagnostics"].items()]
    lines += ["", "## Hosts", "", "`metier check` reports these codes as well. In SARIF they are rules.", ""]
    lines += ["| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in validate.codes()["findings"].items()]
    return "\n".join(lines) + "\n"


def event_types() -> str:
    lines = ["# Events", "", EVENTS]
    envelope = ", ".join(f"`{key}`" for key in ENVELOPE)
    lines += [f"Every frame begins with {envelope}. The fields of the event follow.", ""]
    lines += [
        "In the stream of a session, each frame also has `op`, the id of the `session_called` or `session_started`",
        "that caused it, and `chain`, a hash over the frame and the `chain` of the frame before it.",
        "",
    ]
    for kind in events.TYPES:
        lines += [f"## `{kind.type}`", "", _paragraph(kind), ""]
        about = _field_docs(kind)
        lines += [f"- `{item.name}`{f': {about[item.name]}' if item.name in about else ''}" for item in fields(kind)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _paragraph(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def settings_page() -> str:
    lines = ["# Settings", "", SETTINGS]
    lines += ["| key | meaning |", "|---|---|"]
    lines += [f"| `{key}` | {meaning} |" for key, meaning in _field_docs(RuntimeSettings).items()]
    lines += [
        "",
        "## Settings of a profile",
        "",
        "The defaults are those of `standard`.",
        "",
        "| key | default | meaning |",
    ]
    lines += ["|---|---|---|"]
    standard = profiles.describe(profiles.build(profiles.load("standard")))
    lines += [
        f"| `{name}` | `{_shown(value)}` | {about} |"
        for name, value, about in _settings(profiles.Profile, standard, "")
    ]
    return "\n".join(lines) + "\n"


def _settings(cls: type, values: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object, str]]:
    """Each setting of a class with its value and its docstring; a table is entered."""
    about = _field_docs(cls)
    for name, value in values.items():
        if name in NOT_SETTABLE:
            continue
        table = inspect.get_annotations(cls, eval_str=True).get(name)
        if isinstance(table, type) and is_dataclass(table):
            yield from _settings(table, cast("Mapping[str, object]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, about.get(name, "")


def _field_docs(cls: type) -> dict[str, str]:
    """The docstring of each field of a class."""
    source = inspect.getsource(cls)
    found = re.findall(r"^    (\w+):[^\n]*\n    \"\"\"(.*?)\"\"\"", source, re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


def _shown(value: object) -> str:
    text = repr(value).replace("|", "\\|")
    return text if len(text) < 60 else text[:57] + "..."


def profiles_page() -> str:
    built = [profiles.build(profiles.load(name)) for name in profiles.BUILT_IN]
    sources = {p.name: told for p in built if (told := documentation.load(p.name)) is not None}
    lines = ["# Profiles", "", PROFILES, "| profile | host | documentation | version of it |", "|---|---|---|---|"]
    lines += [
        f"| `{p.name}` | {p.summary} | {_page(sources[p.name].page)} | {sources[p.name].version} |" for p in built
    ]
    lines += ["", "## Comparison", "", COMPARISON, *_comparison(built, sources)]
    lines += ["", "## Differences", "", DIFFERENCES]
    for table in dict.fromkeys(rule.rpartition(".")[0] for rule in profiles.rules()):
        lines += _differences(table, built)
    lines += ["## Folders", ""]
    for profile in built:
        lines.append(f"**{profile.name}**: " + "; ".join(_places(profile)) + ".")
        lines.append("")
    lines += ["## Links", "", LINKS]
    lines += ["## Sources of the rules", "", SOURCES]
    lines += [f"- **{certainty}**: {meaning}" for certainty, meaning in CERTAINTIES.items()]
    lines.append("")
    for name, told in sources.items():
        lines += [f"**{name}**", "", *_sources(told), ""]
    return "\n".join(lines).rstrip() + "\n"


def _page(page: str) -> str:
    return f"<{page}>" if page.startswith("https://") else page


def _comparison(built: list[profiles.Profile], sources: Mapping[str, Documentation]) -> Iterator[str]:
    """A table with a row for each host."""
    yield "| host | folder | home | depth | name | wins | called | sure |"
    yield "|---" * 8 + "|"
    for profile in built:
        yield f"| {' | '.join(f'`{value}`' for value in _row(profile, sources[profile.name]))} |"


def _row(profile: profiles.Profile, told: Documentation) -> Iterator[str]:
    """The main rules of a host; `COMPARISON` says what the columns mean."""
    project, home = roots.usual(profile)
    forms, counts = profile.invocation.forms, told.counts()
    total = sum(counts.values())
    wins = "user" if profile.roots and roots.by_priority(profile)[0].at == "home" else "project"
    yield from (profile.name, project or "-", home or "-", str(profile.discovery.depth or "any"))
    if profile.validation.name_source == "folder":
        yield "label"
    else:
        yield "=folder" if profile.validation.name_mismatch == "error" else "free"
    yield {"last": "last", "ambiguous": "both"}.get(profile.collisions.rule, wins)
    yield forms[0] if forms else "-"
    yield f"{total - counts.get('assumed', 0)}/{total}"


def _sources(told: Documentation) -> Iterator[str]:
    """Each source once, with the rules that come from it."""
    rules: dict[str, list[str]] = {}
    for rule, source in told.rules.items():
        where = _page(source.at) if source.at else source.why
        rules.setdefault(f"{source.certainty}: {where}", []).append(f"`{rule}`")
    yield from (f"- {about}: {', '.join(names)}" for about, names in rules.items())


def _differences(table: str, built: list[profiles.Profile]) -> Iterator[str]:
    """The settings of one table in which the profiles differ: a row for each host, at most six settings at a time."""
    rules = [rule for rule in profiles.settings() if rule.rpartition(".")[0] == table and rule not in NOT_SETTABLE]
    described = [{rule: profiles.value(p, rule) for rule in rules if rule != "toggles"} for p in built]
    names = [rule for rule in described[0] if any(one[rule] != described[0][rule] for one in described)]
    for start in range(0, len(names), 6):
        some = names[start : start + 6]
        yield f"| profile | {' | '.join(f'`{name}`' for name in some)} |"
        yield "|---" * (len(some) + 1) + "|"
        for profile, values in zip(built, described, strict=True):
            yield f"| {profile.name} | {' | '.join(_plain(values[name]) for name in some)} |"
        yield ""


def _plain(value: object) -> str:
    return _shown(list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value)


def _places(profile: profiles.Profile) -> Iterator[str]:
    yield from (f"`{folder}`" for folder in profile.directories)
    for root in profile.roots:
        toggle = f", if `{root.toggle}` is on" if root.toggle and root.toggle != "any" else ""
        yield f"`{root.path}` at {root.at} ({root.source}{toggle})"


def commands_page() -> str:
    lines = ["# Commands", "", COMMANDS, "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in failure.EXIT_CODES.items()]
    lines += ["", "`metier run` exits with the code of the script, once it runs.", "", "## JSON", "", JSON]
    lines += ["| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in failure.CODES.items()]
    lines.append("")
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
    sys.path[:0] = [str(HOSTS), str(HOSTS.parent)]
    from test_behaviour_coverage import covered  # it reads the marks of the tests

    tests = covered()
    rows = [line.split("\t") for line in (HOSTS / "behaviours.tsv").read_text().splitlines()[1:]]
    done = sum(1 for one, _, _ in rows if one in tests)
    lines = [
        "# Host behaviours",
        "",
        f"These are the documented behaviours of five hosts, with their tests. {done} of {len(rows)} have a test.",
        "",
    ]
    part = ("", "")
    for one, section, text in rows:
        if (one[0], section) != part:
            part = (one[0], section)
            heading = f"{NAMES[one[0]]}: {section}" if one[0] in NAMES else section
            lines += ["", f"## {heading}", "", "| id | behaviour | tests |", "|---|---|---|"]
        listed = "<br>".join(f"`{test}`" for test in tests.get(one, [])[:4]) or "none"
        lines.append(f"| {one} | {text.replace('|', chr(92) + '|')} | {listed} |")
    return "\n".join(lines) + "\n"


PAGES = {
    "diagnostics.md": diagnostics,
    "events.md": event_types,
    "settings.md": settings_page,
    "profiles.md": profiles_page,
    "commands.md": commands_page,
    "hosts.md": hosts,
}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (DOCS / page).write_text(write())
