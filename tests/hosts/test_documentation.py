"""Every rule of a public host has a source, or says why it is assumed; and verdicts are as sure as their rules."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from calling import Run, caller
from metier import ConfigError
from metier.authoring import check
from metier.authoring.check import HostVerdict
from metier.hosts import documentation, profiles
from metier.hosts.documentation import STANDARD, Documentation
from worlds import World

TESTED = ("codelia", "omp", "mycodeagent", "rip", "remcochat")
PUBLIC = tuple(name for name in profiles.BUILT_IN if name not in TESTED)
COMMIT = re.compile(r"/[\w.-]+/[\w.-]+/blob/[0-9a-f]{40}/.+\.(rs|ts|tsx|py|md|mdx)")


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


def told(name: str) -> Documentation:
    found = documentation.load(name)
    assert found is not None
    return found


def test_every_rule_of_a_public_host_has_a_public_source_or_says_why_it_is_assumed() -> None:
    for name in PUBLIC:
        table: Any = profiles.read_toml(profiles.find(name))["documentation"]
        rules = told(name).rules
        assert [rule for rule, source in rules.items() if source is STANDARD] == [], name
        assert "roots" in rules, name
        used = {(rule, source.at or source.why) for rule, source in rules.items()}
        covered = {(key, text) for rule, text in used for key in (rule, rule.split(".")[0])}
        given = {**table["sources"], **table["assumed"]}
        assert [rule for rule, text in given.items() if (rule, text) not in covered] == [], f"{name}: nothing left over"
        assert not table["sources"].keys() & table["assumed"].keys(), name
        for at in {told(name).page, *(source.at for source in rules.values() if source.at)}:
            parts = urlsplit(at)
            assert (parts.scheme, parts.query, re.search(r"\s", at)) == ("https", "", None), at
            assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc), at
            assert parts.netloc != "github.com" or COMMIT.fullmatch(parts.path), at


def test_every_profile_names_its_document_with_a_version_and_ends_with_it() -> None:
    for name in profiles.BUILT_IN:
        assert told(name).page, name
        assert re.search(r"\d{4}-\d\d-\d\d|20\d\d|undated", told(name).version), name
        _, found, last = Path(profiles.find(name)).read_text().partition("\n[documentation]\n")
        tables = {line for line in last.splitlines() if line.startswith("[")}
        assert found, name
        assert tables <= {"[documentation.sources]", "[documentation.assumed]"}, f"{name}: a rule below is not read"
    for name in TESTED:
        assert list(told(name).counts()) == ["tested"], name
        assert (Path(__file__).parents[2] / told(name).of("search.default_limit").at).is_file()


def test_a_profile_of_ones_own_inherits_no_sources_and_may_name_some(world: World, run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('extends = "codex"\nsummary = "ours"\n')
    assert documentation.load(str(own)) is None
    assert profiles.build(profiles.load(str(own))).roots == profiles.build(profiles.load("codex")).roots
    one = verdict(world, ".agents/skills/x", str(own))
    assert (one.certainty, one.assumed) == (None, ())
    shown = run("check", ".agents/skills/x", "--host", str(own)).out
    assert ["own", "yes", "x", "yes", "yes", "-"] in [line.split() for line in shown.splitlines()]
    own.write_text(
        'extends = "standard"\nsummary = "ours"\nroots = []\ncustom_directories = ["prompts"]\n'
        '[documentation]\npage = "https://own.example"\nversion = "3"\n[documentation.sources]\n'
        'roots = "https://own.example/folders"\n"invocation.forms" = "https://own.example/call"\n'
        '[invocation]\nforms = ["$name"]\n'
    )
    one = verdict(world, "prompts/x", str(own))
    assert (one.status, one.called, one.certainty) == ("offered", "$x", "documented")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('page = "x"\n', "documentation.version must be given"),
        ('page = "x"\nversion = "1"\npages = "y"\n', "unknown key documentation.pages"),
        ('page = "x"\nversion = "1"\n[documentation.sources]\nrots = "y"\n', "documentation names rots"),
    ],
)
def test_a_mistake_in_the_documentation_of_a_profile_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(f'extends = "standard"\nsummary = "ours"\n[documentation]\n{text}')
    with pytest.raises(ConfigError, match=says):
        documentation.load(str(own))


def verdict(world: World, at: str, host: str, **fields: Any) -> HostVerdict:
    file = world.skill(at, **fields)
    (one,) = check.verdicts(file, [host], cwd=world.project, home=world.home)
    return one


def test_a_verdict_is_as_sure_as_the_rules_that_it_rests_on(world: World) -> None:
    world.skill("~/.cursor/skills/twice", description="The user's.")
    broken = verdict(world, ".cursor/skills/z", "cursor", text="---\nname: [z\n---\n")
    twice = verdict(world, "~/.claude/skills/twice", "cursor")
    cases = (
        (verdict(world, ".cursor/skills/x", "cursor"), "offered", "documented"),
        (twice, "shadowed", "assumed"),
        (verdict(world, ".cursor/skills/y", "cursor", name="other"), "invalid", "documented"),
        (verdict(world, ".kiro/skills/group/x", "kiro"), "left-out", "documented"),
        (broken, "invalid", "assumed"),
        (verdict(world, ".agents/skills/x", "roo", description="d" * 1025), "invalid", "source"),
    )
    for one, status, certainty in cases:
        assert (one.status, one.certainty) == (status, certainty), one.path
    assert twice.assumed == (("collisions.rule", "as in the Agent Skills standard"),)
    told = [one for one in broken.findings() if one.code == "host-assumed"]
    assert [one.message for one in told] == ["assumed: nothing is said about broken YAML (`validation.repair`)"]
    json.dumps(broken.as_dict())
