"""A message calls a skill by the forms of the profile; everything else in it is text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metier.errors import AmbiguousSkill, SkillNotFound
from metier.hosts.profiles import Profile, build, load, override
from metier.session.mentions import Mention, find
from metier.values.skill import Root, Skill

ROOT = Root("/skills", "repo", "agents")
NAMES = ("pdf", "release-notes", "x1", "twin", "naïve-名前")


def skill(name: str, at: str = "/skills") -> Skill:
    path = f"{at}/{name}/SKILL.md"
    return Skill(name, "Does it.", path, path, ROOT, 0, 0, {})


SKILLS = {name: skill(name) for name in NAMES}


def lookup(name: str) -> Skill:
    if name == "twin":
        raise AmbiguousSkill(name, ["/a/twin/SKILL.md", "/b/twin/SKILL.md"])
    if name not in SKILLS:
        raise SkillNotFound(name)
    return SKILLS[name]


def nowhere(_: str) -> Skill | None:
    return None


def profile(*forms: str, commands: bool = True) -> Profile:
    raw = override(load("standard"), {"invocation": {"forms": list(forms), "commands": commands}}).raw
    return build(raw)


ALL = profile("/name", "/skill:name", "$name", "skill://name")


@pytest.mark.parametrize(
    ("message", "name", "rest", "arguments"),
    [
        ("/pdf", "pdf", "", ""),
        ("/pdf a.pdf", "pdf", "a.pdf", "a.pdf"),
        ("/pdf  a\n b ", "pdf", "a\n b ", "a\n b"),
        ("/skill:release-notes v1..v2", "release-notes", "v1..v2", "v1..v2"),
        ("/naïve-名前 x", "naïve-名前", "x", "x"),
    ],
)
def test_a_command_takes_the_rest_of_the_message_as_its_arguments(
    message: str, name: str, rest: str, arguments: str
) -> None:
    assert find(message, ALL, NAMES, lookup, nowhere) == Mention((SKILLS[name],), rest, arguments, command=True)


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("use $pdf", ["pdf"]),
        ("$pdf, then $release-notes.", ["pdf", "release-notes"]),
        ("($pdf)", ["pdf"]),
        ("$pdf $pdf $x1 $pdf", ["pdf", "x1"]),
        ("$pdf-", ["pdf"]),
        ("see skill://pdf/references/a.md, and skill://x1.", ["pdf", "x1"]),
        ("<skill://pdf>", ["pdf"]),
        ("skill://x1 before $pdf", ["x1", "pdf"]),
        ("$naïve-名前!", ["naïve-名前"]),
    ],
)
def test_names_anywhere_in_a_message_count_in_their_order_and_once(message: str, names: list[str]) -> None:
    mention = find(message, ALL, NAMES, lookup, nowhere)
    assert [one.name for one in mention.skills] == names
    assert (mention.message, mention.arguments, mention.command) == (message, "", False)


@pytest.mark.parametrize(
    "message",
    [
        "", " ", "pdf", "$", "$$pdf", "a$pdf", "\\$pdf", "$5", "$5.00", "$PATH", "$HOME/x", "${pdf}", "$PDF", "$pdf2",
        "$pdf-tools", "$pdf_x", "$no-such-skill", "/usr/bin/env", "/pdf/x", "/pdfx", " /pdf x", "say /pdf", "/",
        "/skill:", "/skill: pdf", "/skill:none", "skill:pdf", "skill://", "skill://none", "xskill://pdf",
        "https://skill://pdf", "skill://%ff", "skill:// pdf", "//pdf", "`$`pdf",
    ],
)  # fmt: skip
def test_everything_else_is_text(message: str) -> None:
    assert find(message, ALL, NAMES, lookup, nowhere) == Mention(message=message)


@pytest.mark.parametrize("message", ["/twin x", "/skill:twin x", "use $twin", "see skill://twin/a"])
def test_a_name_that_several_skills_bear_is_reported_and_never_guessed(message: str) -> None:
    mention = find(message, ALL, NAMES, lookup, nowhere)
    assert mention.skills == ()
    assert mention.message == message
    assert mention.ambiguous == {"twin": ("/a/twin/SKILL.md", "/b/twin/SKILL.md")}


def test_an_ambiguous_name_does_not_hide_a_clear_one() -> None:
    mention = find("$twin or $pdf", ALL, NAMES, lookup, nowhere)
    assert [one.name for one in mention.skills] == ["pdf"]
    assert list(mention.ambiguous) == ["twin"]


@given(st.text(max_size=80))
def test_no_message_raises_and_one_that_calls_nothing_comes_back_as_it_is(message: str) -> None:
    mention = find(message, ALL, NAMES, lookup, nowhere)
    assert mention.skills or mention.message == message
    assert mention.command or mention.message == message
