"""The JSON Schema of a frontmatter: what `validate` accepts, it accepts, under every host and for every real skill."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from calling import Run
from metier.authoring.fix import plan
from metier.authoring.frontmatter_schema import frontmatter_schema
from metier.authoring.lint import review
from metier.catalog import validate
from metier.hosts import profiles
from metier.hosts.schema import Profile, Rules

pytest_plugins = ["surfaces.cli.cli_fixtures", "catalog.corpus_archives"]

HOSTS = [profiles.build(profiles.load(name)) for name in profiles.BUILT_IN]


def schemas() -> Iterator[tuple[str, Rules, Draft202012Validator]]:
    """Each schema with the rules that it stands for. Hosts with the same rules and keys share one."""
    seen: set[str] = set()
    for host in HOSTS:
        for strict in (False, True):
            rules = validate.strict(host) if strict else host.validation
            schema = frontmatter_schema(host, strict=strict)
            Draft202012Validator.check_schema(schema)
            alone = json.dumps({**schema, "title": ""}) + repr(rules)
            if alone not in seen:
                seen.add(alone)
                yield f"{host.name}{' strict' if strict else ''}", rules, Draft202012Validator(schema)


SCHEMAS = list(schemas())


def judged(data: bytes, folder: str, rules: Rules) -> tuple[dict[str, Any], bool] | None:
    """The fields that a host reads, and whether it accepts them. `None` if there is nothing to read."""
    parsed = validate.parse(data, "", rules)
    parsed = validate.tolerate(parsed, rules) if parsed else None
    if parsed is None or parsed.fields is None:
        return None
    return parsed.fields, validate.check(parsed, folder, rules).valid


def test_what_validate_accepts_of_the_corpus_the_schema_accepts(
    unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """One walk over all skills: schemas, reviews and fixes, so that the corpus is read once."""
    accepted, rejected, wrong = 0, 0, list[tuple[str, str, str]]()
    checked, reviewed = 0, dict[str, int]()
    for archive in ("skills", "odd"):
        for number, file in enumerate(sorted(unpacked(archive).rglob("SKILL.md"))):
            data, folder = file.read_bytes(), file.parent.name
            # Every skill meets one of the schemas, and so every schema meets hundreds of skills. Odd files meet three.
            chosen = [SCHEMAS[(number + more) % len(SCHEMAS)] for more in ((0, 5, 11) if archive == "odd" else (0,))]
            for name, rules, validator in chosen:
                found = judged(data, folder, rules)
                if found is None:
                    continue
                fits = validator.is_valid(found[0])
                accepted += found[1]
                rejected += not fits
                if found[1] and not fits:
                    wrong.append((name, str(file), next(validator.iter_errors(found[0])).message[:100]))
            if number % 20 == 0:
                checked += 1
                for note in review(str(file.parent)):
                    reviewed[note.code] = reviewed.get(note.code, 0) + 1
                    assert note.line >= 1
                    assert note.column >= 1
                    assert note.hint
                    assert note.code in validate.codes()["diagnostics"]
            if archive == "odd" or number % 20 == 0:
                for fix in plan(str(file.parent)):
                    if fix.path == "SKILL.md":
                        # Other tests read the archive at the same time.
                        copy = shutil.copytree(file.parent, tmp_path / f"{archive}-{number}" / folder, symlinks=True)
                        (copy / "SKILL.md").write_bytes(fix.after)
                        again = [other for other in plan(str(copy)) if other.path == fix.path]
                        assert again == [], fix.diff()
    assert wrong == []
    assert accepted > 4_000
    assert rejected > 100, "a schema that accepts everything is none"
    for rare in ("description-placeholder", "description-vague", "hidden-characters", "invisible-characters"):
        assert reviewed.get(rare, 0) < 0.02 * checked, rare


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.text(st.sampled_from("ab1-/. ,(\t\n\x07Aé\u202e"), max_size=5),
    st.sampled_from(["x" * 64, " " + "x" * 64 + "\n", "x" * 65, "y " * 512, "y " * 513, "a(b, c) d", ".."]),
    st.lists(st.just("x"), max_size=1),
    st.dictionaries(st.sampled_from("ab"), st.one_of(st.none(), st.just("x"), st.just([])), max_size=2),
)


@given(
    st.dictionaries(
        st.sampled_from(["name", "description", "license", "compatibility", "metadata", "allowed-tools", "zap"]),
        VALUES,
    ),
    st.sampled_from(SCHEMAS),
)
def test_no_frontmatter_is_accepted_by_validate_and_rejected_by_the_schema(
    fields: dict[str, object], of: tuple[str, Rules, Draft202012Validator]
) -> None:
    name, rules, validator = of
    data = f"---\n{json.dumps(fields)}\n---\n".encode()
    found = judged(data, "x", replace(rules, name_mismatch="ignore"))
    if found is not None and found[1]:
        assert [error.message for error in validator.iter_errors(found[0])] == [], name


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"name": "pdf", "description": "x"}, []),
        ({"name": "pdf"}, ["required"]),
        ({"name": "Pdf", "description": "x"}, ["pattern"]),
        ({"name": "p--df", "description": "x"}, ["pattern"]),
        ({"name": "größe", "description": "x"}, []),
        ({"name": "p" * 65, "description": "x"}, ["pattern"]),
        ({"name": "pdf", "description": " "}, ["pattern"]),
        ({"name": "pdf", "description": "x" * 1025}, ["pattern"]),
        ({"name": "pdf", "description": ["x"]}, ["type"]),
        ({"name": "pdf", "description": "x", "compatibility": ""}, ["minLength"]),
        ({"name": "pdf", "description": "x", "metadata": {"a": ["b"]}}, ["type"]),
        ({"name": "pdf", "description": "x", "allowed-tools": "Read, Write"}, ["pattern"]),
        ({"name": "pdf", "description": "x", "zap": 1}, ["additionalProperties"]),
    ],
)
def test_the_strict_schema_rejects_what_breaks_the_standard(fields: dict[str, Any], errors: list[str]) -> None:
    validator = Draft202012Validator(frontmatter_schema(HOSTS[0], strict=True))
    assert [error.validator for error in validator.iter_errors(fields)] == errors


def test_the_schema_of_a_host_knows_the_keys_and_rules_of_the_host(run: Run) -> None:
    def printed(*arguments: str) -> dict[str, Any]:
        shown = run("validate", "--schema", *arguments)
        assert shown.code == 0
        return shown.json

    claude, codex, strict = printed("--profile", "claude-code"), printed("--profile", "codex"), printed("--strict")
    assert "required" not in claude, "every field is optional there"
    assert "argument-hint" in claude["properties"]
    assert codex["required"] == ["name", "description"]
    assert (strict["additionalProperties"], "argument-hint" in strict["properties"]) == (False, False)
    both = printed("--profile", "claude-code", "--strict")
    assert (both["additionalProperties"], "argument-hint" in both["properties"]) == (False, True)
    assert all(part["description"] for part in both["properties"].values())
    assert printed("--profile", "codex")["required"] == ["name", "description"]
    old = printed("--strict", "--schema", "07")
    Draft7Validator.check_schema(old)
    assert {**old, "$schema": ""} == {**strict, "$schema": ""}
    ascii_only = Draft202012Validator(printed("--strict", "--ascii"))
    assert not ascii_only.is_valid({"name": "größe", "description": "x"})
    assert run("validate", "--schema", "--profile", "codx").code == 2
    assert run("validate", "--schema", "--", "pdf").code == 2


def test_a_strict_validation_for_a_host_accepts_the_keys_of_the_host(world: Any, run: Run) -> None:
    world.skill("pdf", description="Use when asked.", argument_hint="[file]", zap="x")
    plain, hosted = (
        [d["message"] for d in run("validate", "--strict", "--json", *more, "pdf").json["skills"][0]["diagnostics"]]
        for more in ([], ["--profile", "claude-code"])
    )
    assert plain == ["`argument-hint` is not part of the standard", "`zap` is not part of the standard"]
    assert hosted == ["`zap` is not part of the standard"]


def profile_of(path: Path, text: str) -> Profile:
    path.write_text(f'extends = "standard"\nsummary = "x"\n{text}\n')
    return profiles.build(profiles.load(str(path)))


def test_the_schema_follows_the_table_of_a_profile(tmp_path: Path) -> None:
    host = profile_of(
        tmp_path / "own.toml", '[validation]\nname_length = 3\nname_breach = "error"\nknown_keys = ["zap"]'
    )
    validator = Draft202012Validator(frontmatter_schema(host))
    assert validator.is_valid({"name": "abc", "description": "x"})
    assert not validator.is_valid({"name": "abcd", "description": "x"})
    assert "zap" in frontmatter_schema(host)["properties"]
