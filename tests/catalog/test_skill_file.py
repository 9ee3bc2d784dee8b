"""The rows of files that another host read before are those that each host would have made itself."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from metier.catalog import frontmatter
from metier.catalog.skill_file import Heads, HostRows, row_of
from metier.hosts import profiles
from metier.hosts.profiles import Profile

STAMP = bytes(32)
HOSTS = [profiles.build(profiles.load(name)) for name in profiles.BUILT_IN]
STANDARD = profiles.build(profiles.load("standard"))


def own(**rules: object) -> Profile:
    return replace(STANDARD, validation=replace(STANDARD.validation, **rules))


PROFILES = [
    *HOSTS,
    own(description_length=20, description_breach="error"),
    own(name_length=2, name_breach="error"),
    own(unknown_keys="error"),
    own(unknown_keys="ignore", list_fields=("tags",), flag_fields=("hide",)),
]
LINES = (
    "license: MIT",
    "compatibility: Any",
    "metadata:\n  version: 1.0",
    "metadata:\n  - a",
    "allowed-tools: Read, Write",
    "allowed-tools: Read Write",
    "version: 1.2.3",
    "tags: [a, b]",
    "tags: a",
    "hide: true",
    "hide: 3",
    "disable-model-invocation: true",
    "user-invocable: false",
    "enabled: no",
    "when_to_use: now",
    "paths: [src]",
    "zap: 1",
)
NAMES = ("name: pdf", "name: other", "name: Not a name", "name: 7", "")
DESCRIPTIONS = ("description: Words.", "description: More than twenty characters.", f"description: {'x' * 1_100}", "")
FRONTMATTER = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(DESCRIPTIONS), st.lists(st.sampled_from(LINES), max_size=4, unique=True)
)


def compared(folder: str, lines: tuple[str, ...]) -> None:
    parsed = frontmatter.parse("\n".join(("---", *filter(None, lines), "---", "")).encode())
    assert parsed is not None
    file, heads = f"{folder}/SKILL.md", Heads()
    heads.keep(file, STAMP, parsed)
    for profile in (*PROFILES, *reversed(PROFILES)):
        for required in (True, False):
            row = HostRows(heads, profile).row(file, require_description=required)
            expected = row_of(STAMP, parsed, profile, file, linked=None, require_description=required)
            assert repr(row) == repr(expected if file in heads.known else None), profile.name  # also in its order


@given(FRONTMATTER)
def test_a_file_that_was_read_before_has_the_same_row_in_every_host(given: tuple[str, str, list[str]]) -> None:
    name, description, more = given
    compared("/nowhere/pdf", (name, description, *more))


def test_a_policy_beside_a_file_counts_for_the_host_that_reads_it(tmp_path: Path) -> None:
    policy = tmp_path / "pdf/agents/openai.yaml"
    policy.parent.mkdir(parents=True)
    policy.write_text("policy:\n  allow_implicit_invocation: false\n")
    compared(f"{tmp_path}/pdf", ("name: pdf", "description: Words."))
    compared(f"{tmp_path}/pdf", ("name: pdf", "description: Words.", "zap: 1"))
