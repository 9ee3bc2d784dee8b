"""Small files that are expensive to parse or crash a parser: each is handled within 50 MB and one second."""

import json
import sys
from collections.abc import Callable

import pytest

from limited import run_bounded
from metier import limits

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds are set through /proc"),
]

PARSE = """
for data in json.load(sys.stdin):
    parsed = parse(data.encode())
    validate.check(parsed, "x", validate.Rules())
    print(json.dumps([[d.code for d in parsed.diagnostics][:3], parsed.fields is not None]), flush=True)
"""
IMPORTS = "import json, sys\nfrom metier.catalog import validate\nfrom metier.catalog.frontmatter import parse"


def answers(*yamls: str) -> list[tuple[list[str], bool]]:
    """The codes for each frontmatter, and whether it is usable. One process parses all and must survive."""
    files = [f"---\n{yaml}\n---\n" for yaml in yamls]
    assert all(len(file.encode()) < limits.FRONTMATTER_BYTES for file in files)
    done = run_bounded(IMPORTS, PARSE, json.dumps(files).encode())
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"died of number {len(told)}: {done.returncode} {done.stderr.decode()[-500:]}"
    return [(codes, usable) for codes, usable in told]


def answer(yaml: str) -> tuple[list[str], bool]:
    return answers(yaml)[0]


def bomb(line: str, levels: int = 12) -> str:
    """Each line grows ninefold: 9 to the power of `levels` if aliases were copied."""
    lists = ["[" + ", ".join(["x"] * 9) + "]"]
    lists += ["[" + ", ".join([f"*a{n}"] * 9) + "]" for n in range(levels)]
    return "\n".join(line.format(n=n, value=value) for n, value in enumerate(lists))


@pytest.mark.parametrize(
    "yaml",
    [
        bomb("k{n}: &a{n} {value}"),
        bomb("- &a{n} {value}"),
        bomb('"k{n}" : &a{n} {value}'),
        bomb("k#{n}: &a{n} {value}"),
        bomb("[k{n}]: &a{n} {value}"),
        "x: it's\n" + bomb("k{n}: &a{n} {value}"),
        'x: "a\n  \\\n  b"\n' + bomb("k{n}: &a{n} {value}"),
        "x:\n- - |\n    text\n" + bomb("  - &a{n} {value}"),
        "x: y\r" + bomb("k{n}: &a{n} {value}").replace("\n", "\r"),
        "x: {y: [\n" + bomb("  &a{n} {value},") + "\n  ]}",
    ],
)
def test_an_alias_bomb_is_refused_for_its_anchors(yaml: str) -> None:
    assert answer(yaml) == (["yaml-anchor"], False)


@pytest.mark.parametrize(
    "yaml",
    [
        bomb('? "k{n}\n  z"\n: &a{n} {value}'),
        bomb("? k{n}\n  z\n: &a{n} {value}"),
        bomb("? [k{n}]\n: &a{n} {value}"),
        "%YAML 1.2\n---\n" + bomb("k{n}: &a{n} {value}"),
        "x: '''\n" + bomb("k{n}: &a{n} {value}"),
    ],
)
def test_an_alias_bomb_grows_nowhere_even_when_no_scan_sees_it(yaml: str) -> None:
    answer(yaml)


def test_a_merge_key_bomb_is_refused() -> None:
    lines = ["a0: &a0 {x0: 1, y0: 2}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}], x{n}: 1}}" for n in range(1, 12)]
    assert answer("\n".join(lines)) == (["yaml-merge-key"], False)


@pytest.mark.parametrize("tag", ["!x", "!!python/object/apply:os.system [id]", "!<tag:yaml.org,2002:str>", "!!binary"])
def test_a_tag_is_refused(tag: str) -> None:
    assert answers(f"a: {tag} b", f"a: [b, {tag} c]") == [(["yaml-tag"], False)] * 2


STAIRS: dict[str, Callable[[int], str]] = {
    "flow lists": lambda n: "a: " + "[" * n + "]" * n,
    "flow maps": lambda n: "a: " + "{a: " * n + "}" * n,
    "flow, mixed": lambda n: "a: " + "[{a: " * (n // 2) + "}]" * (n // 2),
    "flow over lines": lambda n: "a: " + "[\n " * n + "]\n " * n,
    "flow with explicit keys": lambda n: "a: " + "[? " * n + "]" * n,
    "flow that quotes its closers": lambda n: "a: " + "[ ']', " * n + "x" + "]" * n,
    "block maps": lambda n: "\n".join(" " * k + "a:" for k in range(n)),
    "block lists": lambda n: "\n".join(" " * k + "-" for k in range(n)),
    "maps and lists in one column": lambda n: "\n".join("  " * k + "- a:" for k in range(n // 2)),
    "compact lists": lambda n: "a:\n  " + "- " * n + "x",
    "compact lists at the top": lambda n: "- " * n + "x",
    "compact lists with two blanks": lambda n: "a:\n  " + "-  " * n + "x",
    "compact lists with tabs": lambda n: "a:\n  " + "- \t" * n + "x",
    "compact explicit keys": lambda n: "? " * n + "x",
    "compact empty keys": lambda n: ": " * n + "x",
    "compact lists of empty keys": lambda n: "- : " * (n // 2) + "x",
    "compact lists of explicit keys": lambda n: "- ? " * (n // 2) + "x",
    "colons in brackets": lambda n: "a: [" + ": " * n + "]",
    "colons in brackets, with comments": lambda n: "a: [" + "".join(":\n # b\n" for _ in range(min(n, 7_000))) + " ]",
    "pairs of colons in brackets": lambda n: "a: [" + "b: :\n, " * min(n, 8_000) + "]",
    "joined pairs of colons in brackets": lambda n: "a: [" + "''::\n, " * min(n, 7_000) + "]",
    "scattered pairs of colons in brackets": lambda n: "a: [" + "''::\n, b: c, " * min(n, 4_000) + "]",
    "all compact forms": lambda n: "? - : " * (n // 3) + "x",
    "stairs of compact lists": lambda n: "\n".join("  " * 3 * k + "- - - x" for k in range(n // 3)).replace(
        "x\n", "\n"
    ),
    "stairs behind a bracket in quotes": lambda n: 'b: "["\n' + "\n".join(" " * k + "a:" for k in range(n)),
    "stairs with carriage returns": lambda n: "\r".join(" " * k + "a:" for k in range(n)),
    "compact lists with carriage returns": lambda n: "b: c\ra:\r  " + "- " * n + "x",
}


@pytest.mark.parametrize("shape", STAIRS)
def test_nesting_beyond_the_limit_is_refused_before_it_harms_the_parser(shape: str) -> None:
    shapes = [STAIRS[shape](depth) for depth in (limits.FRONTMATTER_DEPTH + 9, 200, 20_000)]
    fitting = [yaml if len(yaml) < limits.FRONTMATTER_BYTES - 100 else STAIRS[shape](250) for yaml in shapes]
    for codes, usable in answers(*fitting):
        assert not usable
        assert codes in (["yaml-too-deep"], ["yaml-invalid"])


@pytest.mark.parametrize("shape", ["flow lists", "flow maps", "block maps", "maps and lists in one column"])
def test_nesting_far_beyond_real_skills_is_still_read(shape: str) -> None:
    codes, usable = answer(STAIRS[shape](limits.FRONTMATTER_DEPTH - 4))
    assert (codes, usable) == ([], True) or codes == ["yaml-not-mapping"]


@pytest.mark.parametrize(
    "yaml",
    [
        "a: " + "[" * 60_000,
        "a: " + "- " * 30_000,
        "- a: " * 10_000,
        '- "a": ' * 8_000,
        "a: " + "!a " * 20_000,
        "a: " + "&a " * 20_000,
        "a: " + "*a " * 20_000,
        "a: [" + "!a " * 20_000 + "]",
        "a: b" + " " * 60_000 + "c &d",
        "a" + " " * 60_000 + "c &d",
        "a: b%" + "\n" * 60_000 + "c: d",
        "a: b%\n" + " \n" * 30_000 + "c: d",
        "a: b: " + "c: " * 20_000,
        "a: 1\n" * 12_000,
        'a: "' + '\\"' * 30_000,
        'a: "b\n' * 10_000,
        "a: 'b\n" * 10_000,
        "a: [" + "'" * 60_000,
        "a: [" + ": " * 30_000,
        "a: [" + "b " * 30_000 + ": ",
        "".join(f"a{n}: @b\n" for n in range(6_000)),
        "a:\n" + "".join(f"  a{n}: @b\n" for n in range(4_500)),
        "a: [" + "1," * 32_000 + "]",
        "a:\n" + "- 1\n" * 16_000,
        "a: " + "9" * 60_000,
        "a: 0x" + "f" * 60_000,
        "allowed-tools: " + "(" * 60_000,
        "allowed-tools: " + "(," * 30_000,
        "name: " + "\u202e" * 20_000,
        "description: " + "\u200b " * 15_000,
        "---x\n" * 12_000,
        "a: b" + " #" * 30_000,
        "a" + "\t" * 60_000 + ": b: c",
    ],
    ids=range(33),
)
def test_no_line_costs_more_than_its_length(yaml: str) -> None:
    answer(yaml)
