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
from metier.hosts.documentation import STANDARD, Documentation, Source
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


# --- the sources


def test_every_rule_of_a_public_host_has_a_source_or_says_why_it_is_assumed() -> None:
    for name in PUBLIC:
        assert [rule for rule, source in told(name).rules.items() if source is STANDARD] == [], name
        assert "roots" in told(name).rules, name


def test_no_source_and_no_assumption_is_left_over() -> None:
    for name in PUBLIC:
        table: Any = profiles.read_toml(profiles.find(name))["documentation"]
        used = {(rule, source.at or source.why) for rule, source in told(name).rules.items()}
        covered = {(key, text) for rule, text in used for key in (rule, rule.split(".")[0])}
        given = {**table["sources"], **table["assumed"]}
        assert [rule for rule, text in given.items() if (rule, text) not in covered] == [], name
        assert not table["sources"].keys() & table["assumed"].keys(), name


def test_sources_are_public_pages_or_files_of_a_repository_at_a_commit() -> None:
    for name in PUBLIC:
        for at in {told(name).page, *(source.at for source in told(name).rules.values() if source.at)}:
            parts = urlsplit(at)
            assert parts.scheme == "https", at
            assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc), at
            assert not parts.query, at
            assert not re.search(r"\s", at), at
            if parts.netloc == "github.com":
                assert COMMIT.fullmatch(parts.path), at


def test_every_profile_says_which_version_of_which_document_it_follows() -> None:
    for name in profiles.BUILT_IN:
        assert told(name).page, name
        assert re.search(r"\d{4}-\d\d-\d\d|20\d\d|undated", told(name).version), name


def test_code_is_source_and_a_page_is_documentation_also_in_a_repository() -> None:
    rules = told("cline").rules
    assert rules["roots"].certainty == "source"
    assert rules["validation.name_mismatch"].certainty == "documented"
    assert rules["validation.name_mismatch"].at.endswith("skills.mdx#skill-structure")
    beyond = Source("assumed", why="what happens beyond the maximum is not said")
    assert rules["validation.description_breach"] == beyond, "a rule's own source counts before that of its table"
    assert told("cline").of("search.default_limit") == STANDARD


def test_the_rules_of_a_host_with_listed_behaviours_are_tested() -> None:
    for name in TESTED:
        assert list(told(name).counts()) == ["tested"], name
        page = told(name).of("search.default_limit").at
        assert (Path(__file__).parents[2] / page).is_file()


def test_the_documentation_comes_last_in_a_built_in_file() -> None:
    for name in profiles.BUILT_IN:
        _, found, last = Path(profiles.find(name)).read_text().partition("\n[documentation]\n")
        assert found, name
        assert {line for line in last.splitlines() if line.startswith("[")} <= {
            "[documentation.sources]",
            "[documentation.assumed]",
        }, f"{name}: what follows the documentation is not read as a rule"


def test_sources_are_not_inherited_and_may_be_left_out(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('extends = "cursor"\nsummary = "ours"\n')
    assert documentation.load(str(own)) is None
    assert profiles.build(profiles.load(str(own))).roots == profiles.build(profiles.load("cursor")).roots


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


# --- what a person sees


def test_the_rules_of_a_host_are_shown_with_their_sources(run: Run) -> None:
    shown = run("profiles", "zed").out
    assert "page = https://zed.dev/docs/ai/skills\n" in shown
    assert "version = the page and the source at commit 7eec89207ccf" in shown
    assert "  documented: https://zed.dev/docs/ai/skills#where-skills-live\n    roots\n" in shown
    assert "  assumed: allowed-tools is not among the fields\n    policy.enforce_hints\n" in shown
    data = run("profiles", "zed", "--json").json["documentation"]
    assert data["rules"]["roots"] == {
        "certainty": "documented",
        "at": "https://zed.dev/docs/ai/skills#where-skills-live",
        "why": None,
    }


# --- how sure a verdict is


def verdict(world: World, at: str, host: str, **fields: Any) -> HostVerdict:
    file = world.skill(at, **fields)
    (one,) = check.verdicts(file, [host], cwd=world.project, home=world.home)
    return one


def test_a_verdict_is_as_sure_as_the_rules_that_it_rests_on(world: World) -> None:
    world.skill("~/.cursor/skills/twice", description="The user's.")
    cases = {
        "found by documented folders": verdict(world, ".cursor/skills/x", "cursor"),
        "another of the name is used": verdict(world, "~/.claude/skills/twice", "cursor"),
        "the name must be the folder's": verdict(world, ".cursor/skills/y", "cursor", name="other"),
        "too deep": verdict(world, ".kiro/skills/group/x", "kiro"),
        "broken YAML": verdict(world, ".cursor/skills/z", "cursor", text="---\nname: [z\n---\n"),
        "in the source": verdict(world, ".agents/skills/x", "roo", description="d" * 1025),
    }
    assert {why: (one.status, one.certainty) for why, one in cases.items()} == {
        "found by documented folders": ("offered", "documented"),
        "another of the name is used": ("shadowed", "assumed"),
        "the name must be the folder's": ("invalid", "documented"),
        "too deep": ("left-out", "documented"),
        "broken YAML": ("invalid", "assumed"),
        "in the source": ("invalid", "source"),
    }
    assert cases["another of the name is used"].assumed == (("collisions.rule", "as in the Agent Skills standard"),)
    told = [one for one in cases["broken YAML"].findings() if one.code == "host-assumed"]
    assert [one.message for one in told] == ["assumed: nothing is said about broken YAML (`validation.repair`)"]
    json.dumps(cases["broken YAML"].as_dict())


def test_a_field_makes_a_verdict_rest_on_the_rules_about_fields(world: World) -> None:
    assert verdict(world, ".kiro/skills/x", "kiro").certainty == "documented"
    hidden = verdict(world, ".kiro/skills/x", "kiro", disable_model_invocation=True)
    assert [rule for rule, _ in hidden.assumed] == ["catalog.honours"]
    unknown = verdict(world, ".agents/skills/x", "goose", zap=1)
    assert (unknown.ignored, unknown.certainty) == (("zap",), "source")
    by_the_standard = [verdict(world, ".agents/skills/x", "standard", **fields) for fields in ({}, {"zap": 1})]
    assert ["catalog.reads" in dict(one.assumed) for one in by_the_standard] == [False, True]


def test_a_profile_of_ones_own_can_name_its_sources(world: World, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    rules = 'extends = "standard"\nsummary = "ours"\nroots = []\ncustom_directories = ["prompts"]\n'
    own.write_text(
        f'{rules}[documentation]\npage = "https://own.example"\nversion = "3"\n[documentation.sources]\n'
        'roots = "https://own.example/folders"\n"invocation.forms" = "https://own.example/call"\n'
        '[invocation]\nforms = ["$name"]\n'
    )
    one = verdict(world, "prompts/x", str(own))
    assert (one.status, one.called, one.certainty) == ("offered", "$x", "documented")


def test_a_profile_without_sources_is_neither_sure_nor_unsure(world: World, run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('extends = "codex"\nsummary = "ours"\n')
    one = verdict(world, ".agents/skills/x", str(own))
    assert (one.certainty, one.assumed) == (None, ())
    shown = run("check", ".agents/skills/x", "--host", str(own)).out
    assert ["own", "yes", "x", "yes", "yes", "-"] in [line.split() for line in shown.splitlines()]
