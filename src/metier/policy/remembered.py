"""Rules that answers added: in the user's file, which every session and process shares, or in memory.

The file is read again whenever it changed, so that an answer given or taken back in one process holds in all others at
their next operation. It is only ever replaced as a whole, under a lock: a reader never sees half a rule, and two equal
answers leave one rule. A file that cannot be read is an error, because a deny rule may be in it.
"""

import contextlib
import itertools
import os
import re
import threading
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from metier import limits
from metier.catalog.build import Catalog
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.files.replace import replacing
from metier.files.shapes import is_list
from metier.hosts.profiles import Profile, parse_toml
from metier.hosts.settings import Settings
from metier.policy.rules import LISTS, Rule, RuleLists, as_answer, as_toml_lines, read_lists, read_rule, unknown_names
from metier.values.skill import Diagnostic

_HEADING: Final = "# Answers that were to be remembered. `metier policy revoke` takes one back.\n"
_TABLE: Final = re.compile(r"\s*\[")
_ALLOW: Final = re.compile(r"\s*\[\[\s*allow\s*\]\]\s*(#.*)?$")
_SETTLED_NS: Final = 100_000_000
"""Two changes within this time can leave the same modification time; a file that is older has only one content."""

Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Reading:
    """The file as it was read. `settled` says that it cannot have changed since without another signature."""

    signature: Signature | None = None
    settled: bool = False
    data: bytes = b""
    lists: RuleLists = RuleLists()  # noqa: RUF009 - it is frozen


class _Held(threading.local):
    """The rules that a thread goes by until the end of its operation."""

    depth: int = 0
    lists: RuleLists | None = None


class RememberedRules:
    """See the module. Without a file, the rules live in `memory`, which several objects may share."""

    def __init__(self, file: str = "", profile: Profile | None = None, memory: list[Rule] | None = None) -> None:
        self.file, self._profile = file, profile
        self._memory: list[Rule] = [] if memory is None else memory
        self._reading = _Reading()
        self._together: tuple[RuleLists, tuple[Rule, ...], RuleLists] = (RuleLists(), (), RuleLists())
        self._held = _Held()

    def in_file(self, file: str, profile: Profile) -> "RememberedRules":
        """The same rules, and those of a file, to which new ones are added."""
        return RememberedRules(file, profile, self._memory)

    def current(self) -> RuleLists:
        """The rules that hold now: the same object as long as nothing changed. Raises `ConfigError`."""
        held = self._held
        if held.lists is not None:
            return held.lists
        together = self._current()
        if held.depth:
            held.lists = together
        return together

    @contextlib.contextmanager
    def held(self) -> Generator[None, None, None]:
        """Go by one reading of the file in this thread: an operation that only computes takes no time to speak of.

        What this thread adds or takes back meanwhile holds at once.
        """
        self._held.depth += 1
        try:
            yield
        finally:
            self._held.depth -= 1
            if not self._held.depth:
                self._held.lists = None

    def look_again(self) -> None:
        """Read the file again at the next decision, also within an operation."""
        self._held.lists = None

    def _current(self) -> RuleLists:
        written, memory = self._read(), tuple(self._memory)
        before, then, together = self._together
        if written is not before or memory != then:
            together = written
            if memory:
                together = replace(written, allow=(*(as_answer(rule) for rule in memory), *written.allow))
            self._together = (written, memory, together)
        return together

    def add(self, rule: Rule) -> None:
        """Allow what the rule covers, from now on. Nothing changes if an equal rule is there."""
        self.look_again()
        if not self.file:
            if rule not in self._memory:
                self._memory.append(rule)
            return
        with self._exclusive():
            if as_answer(rule) in self._read().allow:
                return
            text = self._reading.data.decode()
            added = f"\n[[allow]]\n{as_toml_lines(rule)}"
            whole = f"{text}{'' if text.endswith(chr(10)) else chr(10)}{added}" if text else f"{_HEADING}{added}"
            try:
                read_lists(parse_toml(whole.encode(), self.file), self._known_profile)
            except ConfigError as error:
                hint = error.hint or "write its rules as [[allow]] tables, or delete it"
                raise ConfigError(f"the answer cannot be added: {error.message}", file=self.file, hint=hint) from error
            self._replace(whole)

    def written(self) -> dict[str, tuple[Rule, ...]]:
        """The rules of the file by list, as they are written there."""
        self._read()
        return _written(self._reading.data, self.file)

    def revoke(self, ids: Collection[str] | None = None) -> list[Rule]:
        """Take remembered rules back, at once for every process: those whose id begins with one of `ids`, or all.

        Raises `ConfigError`, and changes nothing, if an id names no rule or several.
        """
        self.look_again()
        with self._exclusive():
            self._read()
            data = self._reading.data
            rules = list(dict.fromkeys(_written(data, self.file)["allow"]))
            chosen = rules if ids is None else [_named(rules, one) for one in ids]
            if chosen:
                self._replace(_without(data.decode(), chosen, self.file))
            return chosen

    # --- the file ---

    @property
    def _known_profile(self) -> Profile:
        if self._profile is None:
            raise ValueError("the rules of a file are read for a profile")
        return self._profile

    def _read(self) -> RuleLists:
        known = self._reading
        if not self.file:
            return known.lists
        try:
            signature = _signature(os.stat(self.file))
            if known.settled and known.signature == signature:
                return known.lists
            started = time.time_ns()
            data = read_regular(self.file, limits.REGISTRY_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            if known.signature is not None:
                self._reading = _Reading()
            return self._reading.lists
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=self.file) from error
        same = known.signature is not None and known.data == data
        lists = known.lists if same else _parse(data, self.file, self._known_profile)
        # What was written after `stat` has another signature, and so is read again.
        self._reading = _Reading(signature, started - signature[0] > _SETTLED_NS, data, lists)
        return lists

    @contextlib.contextmanager
    def _exclusive(self) -> Generator[None, None, None]:
        """Let only one process at a time change the file."""
        import fcntl

        folder = os.path.dirname(self.file)
        try:
            os.makedirs(folder, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=self.file) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _replace(self, text: str) -> None:
        target = os.path.realpath(self.file)  # a link to a file elsewhere stays a link
        try:
            with replacing(target) as stream:
                stream.write(text)
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(stream.fileno(), os.stat(target).st_mode & 0o777)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=self.file) from error


def dropped_rules(config: Settings) -> tuple[Diagnostic, ...]:
    """The rules of the settings and of the remembered answers that are dropped, and the first wrong one of each.

    A rule whose `skill_name` no skill of the host can have matches nothing. A deny rule with a misspelled name is no
    protection, so it is said on every surface and not only where rules are shown. A wrong rule is an error of every
    session, and a diagnostic where no session is needed.
    """
    hint = "write the name of the skill exactly as the skill has it"
    found: list[Diagnostic] = []
    for read in (
        lambda: read_lists(config.permissions, config.profile, origins=config.rule_origins, names_for=config.names_for),
        lambda: RememberedRules(config.answers_file, config.own_profile).current(),
    ):
        try:
            found += (
                Diagnostic("rule-dropped", "warning", why, file, hint=hint if "skill_name" in why else "")
                for why, file in read().dropped
            )
        except ConfigError as error:
            at = (error.file, error.line, min(error.line, 1))
            found.append(Diagnostic("rule-wrong", "error", error.message, *at, error.hint))
    return tuple(found)


def rules_without_skill(config: Settings, catalog: Catalog) -> tuple[Diagnostic, ...]:
    """The rules of the settings and of the remembered answers whose `skill_name` no skill here has."""
    known = {*catalog.by_name, *(entry.skill.name for entry in catalog.shadowed), *(e.name for e in catalog.skipped)}
    found: list[Diagnostic] = []
    with contextlib.suppress(ConfigError):  # `dropped_rules` has it
        for file, lists in (
            ("", read_lists(config.permissions, config.profile, names_for=config.names_for)),
            (config.answers_file, RememberedRules(config.answers_file, config.own_profile).current()),
        ):
            hint = "it may be about a skill of another project"
            why = unknown_names(lists, known)
            found += (Diagnostic("rule-without-skill", "warning", one, file, hint=hint) for one in why)
    return tuple(found)


def _signature(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _parse(data: bytes, file: str, profile: Profile) -> RuleLists:
    try:
        lists = read_lists(_tables(data, file), profile)
        dropped = tuple((why, file) for why, _ in lists.dropped)
        return replace(lists, allow=tuple(as_answer(rule) for rule in lists.allow), dropped=dropped)
    except ConfigError as error:
        raise error.at(file) from None


def _tables(data: bytes, file: str) -> Mapping[str, object]:
    tables = parse_toml(data, file)
    unknown = next((key for key in tables if key not in LISTS), None)
    if unknown is not None:
        hint = "this file has only the rules allow, deny and ask; other settings belong into config.toml"
        raise ConfigError(f"unknown key {unknown}", file=file, key=unknown, hint=hint)
    return tables


def _written(data: bytes, file: str) -> dict[str, tuple[Rule, ...]]:
    tables = _tables(data, file)
    found: dict[str, tuple[Rule, ...]] = {}
    for key in LISTS:
        rules = tables.get(key)
        found[key] = tuple(read_rule(one, key) for one in rules) if is_list(rules) else ()
    return found


def _named(rules: Sequence[Rule], wanted: str) -> Rule:
    found = [rule for rule in rules if wanted and rule.id.startswith(wanted.lower())]
    if not found:
        hint = "see `metier policy list`"
        raise ConfigError(f"no remembered answer has the id {wanted!r}", key="ID", hint=hint)
    if len(found) > 1:
        raise ConfigError(f"{len(found)} remembered answers have ids that begin with {wanted!r}", key="ID")
    return found[0]


def _without(text: str, rules: Collection[Rule], file: str) -> str:
    """The text without the tables of these rules. The comment right above a table goes with it, all others stay."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    heads = [number for number, line in enumerate(lines) if _TABLE.match(line)]
    dropped: set[int] = set()
    for head, following in itertools.pairwise([*heads, len(lines)]):
        if not _ALLOW.match(lines[head]):
            continue
        end = following
        while end > head + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
            end -= 1
        with contextlib.suppress(ConfigError, ValueError):
            (rule,) = _written("".join(lines[head:end]).encode(), file)["allow"]
            if rule in rules:
                start = head
                while start and lines[start - 1].lstrip().startswith("#"):
                    start -= 1
                if start and not lines[start - 1].strip():
                    start -= 1
                dropped.update(range(start, end))
    left = "".join(line for number, line in enumerate(lines) if number not in dropped)
    before, after = _written(text.encode(), file), _written(left.encode(), file)
    expected = before | {"allow": tuple(rule for rule in before["allow"] if rule not in rules)}
    if after != expected:
        hint = "take it out by hand"
        raise ConfigError("a rule is written in a form that cannot be taken out safely", file=file, hint=hint)
    return left
