"""For any file and any folder: a scan ends, raises nothing, and accounts for every file."""

import json
import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from metier import Skills, limits
from metier.catalog.frontmatter import Parsed, parse
from metier.catalog.validate import STRICT, check, codes
from metier.files.text import is_printable
from metier.hosts.profiles import BUILT_IN
from metier.hosts.schema import DiscoveryRules, Rules


def examples(number: int) -> settings:
    return settings(max_examples=number, suppress_health_check=[HealthCheck.too_slow])


# --- bytes

WORDS = [
    "---", "\n", "\r\n", "\r", " ", "  ", "\t", ": ", ":", "- ", "? ", "#", " #", "|", ">-", "[", "]", "{", "}", ",",
    "'", '"', "&a", "*a", "!t", "<<", "%", "@", "`", "name", "description", "metadata", "1.10", "0x1F", "null",
    "true", "~", "é", "\u202e", "\u200b", "\ufeff", "\ue000", "\x00", "\x1b", "\x85", "\u2028", "日本", "a", "\\",
    "\\n", "...",
]  # fmt: skip
YAMLISH = st.lists(st.sampled_from(WORDS), max_size=60).map("".join)
FILES = st.one_of(
    st.binary(max_size=300),
    YAMLISH.map(lambda text: text.encode()),
    YAMLISH.map(lambda text: f"---\n{text}\n---\nbody".encode()),
    YAMLISH.map(lambda text: f"---\nname: a\ndescription: {text}\n---\n".encode()),
    st.tuples(YAMLISH, st.binary(max_size=9)).map(lambda both: b"---\n" + both[0].encode() + both[1] + b"\n---\n"),
)


@examples(500)
@given(st.one_of(YAMLISH, st.text(), st.text(st.characters(max_codepoint=127))))
def test_printable_text_is_told_as_python_tells_it(text: str) -> None:
    assert is_printable(text) == text.isprintable()
    assert is_printable(text, lines=True) == text.replace("\n", "").isprintable()


def whole(data: bytes, **given: bool) -> Parsed:
    parsed = parse(data, "SKILL.md", **given)
    assert parsed is not None
    return parsed


@examples(500)
@given(FILES)
def test_any_bytes_are_fields_or_an_error_and_never_an_exception(data: bytes) -> None:
    for repair in (True, False):
        parsed = whole(data, repair=repair)
        errors = [d for d in parsed.diagnostics if d.severity == "error"]
        assert (parsed.fields is None) == bool(errors)
        assert parsed == whole(data, repair=repair), "the same bytes must give the same result"
        lines = data.count(b"\n") + data.count(b"\r") + 1
        for note in parsed.diagnostics:
            assert note.code in codes()["diagnostics"]
            assert 1 <= note.line <= lines
            assert note.column >= 1
        json.dumps(parsed.fields)
        for rules in (Rules(), STRICT):
            verdict = check(parsed, "folder", rules, "SKILL.md")
            assert verdict.valid == all(d.severity != "error" for d in verdict.diagnostics)
            if verdict.valid:
                assert verdict.name
                assert not set(verdict.name) & set("/\\\n\r\x00\x1b\u202e")


@examples(200)
@given(FILES, st.integers(0, 400))
def test_a_partial_read_either_asks_for_more_or_knows_the_answer(data: bytes, size: int) -> None:
    assume(len(data) < limits.HEAD_BYTES)
    early = parse(data[:size], "SKILL.md", complete=False)
    if early is not None and early.fields is not None:
        assert early == whole(data)


@examples(200)
@given(st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=40), min_size=1, max_size=5))
def test_what_json_writes_is_read_back_as_it_was(fields: dict[str, str]) -> None:
    assume(not any(0xD800 <= ord(char) < 0xE000 for pair in fields.items() for text in pair for char in text))
    lines = "\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in fields.items())
    parsed = whole(f"---\n{lines}\n---\n".encode())
    assert parsed.fields == fields


# --- trees

NAMES = st.sampled_from(["a", "b", "c", "SKILL.md", "skill.md", "build", ".git", ".x", "ä", "a\nb", "x" * 70])
VALID = "---\nname: a\ndescription: x\n---\n"
TEXT = st.sampled_from(
    [
        VALID,
        "---\nname: b\ndescription: y\n---\n",
        "",
        "---\nname: a\n",
        "---\na: &b c\n---\n",
    ]
)
KINDS = st.sampled_from(["file", "file", "file", "folder", "link", "fifo", "socket", "locked"])
NODES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), KINDS, TEXT, st.integers(0, 9)), max_size=25)
Node = tuple[list[str], str, str, int]


def make(root: Path, nodes: list[Node]) -> None:
    """Write the nodes to disk, as far as they are compatible."""
    for number, (parts, kind, text, target) in enumerate(nodes):
        path = root.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
                with os.fdopen(os.open(path, flags), "w") as stream:
                    stream.write(text)
            elif kind == "folder":
                path.mkdir()
            elif kind == "fifo":
                os.mkfifo(path)
            elif kind == "link":
                aims = [
                    root,
                    root.parent,
                    Path("/dev/null"),
                    Path("/nowhere"),
                    path,
                    *(root.joinpath(*n[0]) for n in nodes),
                ]
                path.symlink_to(aims[(target + number) % len(aims)])
            elif kind == "socket":
                with socket.socket(socket.AF_UNIX) as server:
                    server.bind(str(path))
            elif not path.is_symlink():
                path.chmod(0o000 if target % 2 else 0o400)
        except (OSError, ValueError):
            continue


def reachable(root: Path, refused: set[str]) -> set[str]:
    """The real path of every SKILL.md that a scan of all folders and links must account for.

    Of what is behind a `refused` link, that is the SKILL.md of the folder alone. Nobody can say whether there is one in
    a folder that this user may not search, so there it must be accounted for, too.
    """
    ignored = DiscoveryRules().ignore
    found: set[str] = set()
    seen: set[str] = set()
    pending = [str(root)]
    while pending:
        folder = os.path.realpath(pending.pop())
        if folder in seen:
            continue
        seen.add(folder)
        if not os.access(folder, os.X_OK):
            found.add(os.path.join(folder, "SKILL.md"))
        try:
            entries = list(os.scandir(folder))
        except PermissionError:
            continue
        for entry in entries:
            if entry.name == "SKILL.md":
                found.add(entry.path)
            if not os.path.isdir(entry.path) and not entry.is_dir(follow_symlinks=False):
                continue
            if entry.name not in ignored and entry.path not in refused:
                pending.append(entry.path)
            elif os.path.lexists(os.path.join(entry.path, "SKILL.md")):
                found.add(os.path.join(os.path.realpath(entry.path), "SKILL.md"))
    return found


def refused_links(skills: Skills) -> set[str]:
    """The real places of the links that a scan says it did not follow, and of projects behind links."""
    paths = [note.path for note in skills.diagnostics if note.code == "link-not-followed"]
    return {os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in paths}


def discover(root: Path, **rules: object) -> Skills:
    return Skills.discover(root, roots=["."], home="/nowhere", settings={"cache": False, "discovery": rules})


def met(skills: Skills) -> set[str]:
    paths = [s.path for s in skills] + [s.skill.path for s in skills.shadowed] + [s.path for s in skills.skipped]
    return {
        os.path.join(os.path.realpath(os.path.dirname(path)), "SKILL.md") for path in (*paths, *skills.catalog.failed)
    }


BEHIND_THE_PARENT: list[Node] = [(["a"], "link", "", 1), (["a", "a", "SKILL.md"], "file", VALID, 0)]
"""The root has a link to the folder around it, which has another skill."""
LINK_TO_A_FOLDER_WITH_A_PROJECT: list[Node] = [
    (["b", "a", "SKILL.md"], "file", VALID, 0),
    (["b", "a", ".git"], "file", "", 0),
    (["b"], "folder", "", 0),
    (["a", "b"], "link", "", 4),
]
"""The folder that the link leads to is in the root itself."""
LINK_TO_AN_IGNORED_FOLDER_WITH_A_PROJECT: list[Node] = [
    ([".git", "a", "SKILL.md"], "file", VALID, 0),
    ([".git", "a", ".git"], "file", "", 0),
    ([".git"], "folder", "", 0),
    (["c"], "link", "", 4),
]
PIPE_BEHIND_THE_PARENT: list[Node] = [(["a"], "link", "", 1), (["a", "SKILL.md"], "fifo", "", 0)]


@pytest.mark.system
@examples(100)
@given(NODES)
@example(BEHIND_THE_PARENT)
@example(PIPE_BEHIND_THE_PARENT)
@example(LINK_TO_A_FOLDER_WITH_A_PROJECT)
@example(LINK_TO_AN_IGNORED_FOLDER_WITH_A_PROJECT)
@example([(["a"], "folder", "", 0), (["a"], "locked", "", 1)])
@example([(["a", "b", "SKILL.md"], "file", VALID, 0), (["a"], "locked", "", 0)])
def test_any_tree_is_searched_to_an_end_and_every_skill_file_accounted_for(nodes: list[Node]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "tree").resolve()
        root.mkdir()
        make(root, nodes)
        skills = discover(root, nested=True)
        counts = skills.counts
        assert counts.found == counts.loaded + counts.shadowed + counts.skipped + counts.errors
        assert counts.errors == len(skills.errors)
        refused = refused_links(skills)
        links = [Path(path).resolve() for path in refused if os.path.islink(path) and os.path.isdir(path)]
        assert not any(link.is_relative_to(root) for link in links), "links that stay in the project are followed"
        assert met(skills) == reachable(root, refused)


@pytest.mark.system
@examples(60)
@given(NODES, st.sampled_from(BUILT_IN))
def test_any_tree_is_accounted_for_under_every_profile(nodes: list[Node], profile: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), nodes)
        found = Skills.discover(folder, profile=profile, roots=["."], home="/nowhere", settings={"cache": False})
        fates = [*found, *found.shadowed, *found.skipped, *found.catalog.failed]
        assert found.counts.found == len(fates)
        assert len(found.errors) == found.counts.errors
