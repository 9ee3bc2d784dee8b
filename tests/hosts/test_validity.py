"""Which names, descriptions and frontmatters each strict host accepts, and what it leaves out with a word about it."""

from typing import Any

import pytest

from hosts.asking import codes, metier, names
from metier import Skills
from worlds import World

WHERE = {"codelia": ".agents/skills", "mycodeagent": "skills", "remcochat": ".skills", "rip": ".rip/skills"}
STRICT = ("codelia", "remcochat", "rip")
GOOD = ("a", "7", "a1-b2", "a-b-1", "x" * 64)
BAD = ("", "Upper", "Code_Review", "a_b", "a.b", "a b", "-a", "a-", "a--b", "-")
BEYOND_ASCII = ("é", "名前", "हिन्दी")


def discover(world: World, host: str) -> Skills:
    return world.discover(host, settings={"enabled": True})


def judged(world: World, host: str, written: dict[str, Any]) -> tuple[list[str], set[str], Skills]:
    """What is listed of these skills, and of which something is said."""
    skills = discover(world, host)
    assert all(d.message.strip() for d in skills.diagnostics)
    said = {d.path for d in skills.diagnostics}
    return sorted(names(skills)), {name for name, path in written.items() if str(path) in said}, skills


@pytest.mark.behaviour("C-016", "C-017", "M-009", "M-054", "K-017", "K-018", "R-007", "R-011")
@pytest.mark.parametrize("host", WHERE)
def test_a_name_is_1_to_64_lower_case_letters_digits_and_single_inner_hyphens(world: World, host: str) -> None:
    good, bad = [*GOOD], [*BAD]
    (good if host == "mycodeagent" else bad).extend(["x" * 65, "-".join("abcdefgh" * 12)])  # one host has no limit
    (good if host == "rip" else bad).extend(BEYOND_ASCII)
    written = {name: world.skill(f"{WHERE[host]}/{name or 'empty'}", name) for name in (*good, *bad)}
    listed, said, _ = judged(world, host, written)
    assert (listed, said) == (sorted(good), set(bad))


def test_a_name_is_judged_as_it_is_written(world: World) -> None:
    for number, name in enumerate(("ﬁx", " fix", "fix\n", "f\u200bix")):
        world.skill(f".agents/skills/group-{number}/fix", name)
    assert names(discover(world, "codelia")) == []


@pytest.mark.behaviour("C-018", "K-019", "R-007")
@pytest.mark.parametrize("host", STRICT)
def test_a_name_must_be_that_of_its_folder(world: World, host: str) -> None:
    written = {folder: world.skill(f"{WHERE[host]}/{folder}", "probe") for folder in ("other", "Probe", "probe-2")}
    listed, said, skills = judged(world, host, written)
    assert (listed, said) == ([], set(written))
    assert codes(skills, written["other"], "error") == ["name-mismatch"]
    (message,) = [d.message for d in skills.errors if d.path == str(written["other"])]
    assert "probe" in message
    assert "other" in message


@pytest.mark.behaviour("C-019", "M-010", "K-020", "R-008")
@pytest.mark.parametrize("host", WHERE)
def test_a_description_has_1_to_1024_characters(world: World, host: str) -> None:
    good = {"one": "x", "most": "x" * 1024, "letters": "é" * 1024}
    bad = {"missing": None, "empty": "", "blank": "  \t ", "long": "x" * 1025}
    if host == "mycodeagent":
        good["long"] = bad.pop("long") or ""
    written = {name: world.skill(f"{WHERE[host]}/{name}", description=text) for name, text in {**good, **bad}.items()}
    listed, said, skills = judged(world, host, written)
    assert (listed, said) == (sorted(good), set(bad))
    assert {skill.name: skill.description for skill in skills} == good


BROKEN = {
    "only-a-body": "# Only a body\n",
    "nothing": "",
    "no-fences": "name: @\ndescription: No fences.\n",
    "late": "Intro.\n---\nname: @\ndescription: Too late.\n---\n",
    "later": "\n---\nname: @\ndescription: Too late.\n---\n",
    "comment": "<!-- note -->\n---\nname: @\ndescription: Too late.\n---\n",
    "never-closed": "---\nname: @\ndescription: Never closed.\n",
    "closed-by-text": "---\nname: @\ndescription: x\n---# Body\n",
    "four": "----\nname: @\ndescription: x\n----\n",
    "plus": "+++\nname: @\ndescription: x\n+++\n",
    "no-name": "---\ndescription: No name.\n---\n",
    "empty-name": "---\nname:\ndescription: An empty name.\n---\n",
    "no-description": "---\nname: @\n---\n",
    "no-fields": "---\n---\n",
    "unclosed": "---\nname: @\ndescription: [unclosed\n---\n",
    "quote": "---\nname: @\ndescription: 'open\n---\n",
    "folded": "---\nname: @\ndescription: use: this\n  when: x\n---\n",
    "list": "---\n- name\n- description\n---\n",
    "no-yaml": "---\n: [}\n---\n",
}
CODES = {"no-name": "name-missing", "no-description": "description-missing", "only-a-body": "frontmatter-missing"}


@pytest.mark.behaviour("C-015", "C-023", "M-008", "M-012", "M-054", "K-014", "K-015", "R-007", "R-008", "R-011")
@pytest.mark.parametrize("host", WHERE)
def test_a_file_without_usable_frontmatter_gives_one_error_and_no_skill(world: World, host: str) -> None:
    world.skill(f"{WHERE[host]}/good")
    written = {name: world.skill(f"{WHERE[host]}/{name}", text=t.replace("@", name)) for name, t in BROKEN.items()}
    listed, said, skills = judged(world, host, written)
    assert (listed, said) == (["good"], set(BROKEN))
    for name, path in written.items():
        said_of = codes(skills, path, "error", "warning")
        assert CODES.get(name, said_of[0]) in said_of
        with pytest.raises(Exception, match=name):
            skills[name]
    if host == "codelia":
        errors = metier(world, "list", "--profile", host)["errors"]
        assert sorted(error["path"] for error in errors) == sorted(map(str, written.values()))
        assert all(error.keys() == {"path", "message"} and error["message"].strip() for error in errors)


FINE = {
    "---\nname: probe\ndescription: Review code quality and risks\n---\n# Body\n": "Review code quality and risks",
    "---\r\nname: probe\r\ndescription: Windows lines\r\n---\r\nBody\r\n": "Windows lines",
    "\ufeff---\nname: probe\ndescription: A mark\n---\n": "A mark",
    "---\ndescription: a --- b\nname: probe\n---\n---\nname: other\n---\n": "a --- b",
    "---\nname: probe\ndescription: 'Quoted: yes'\n---": "Quoted: yes",
    "---\nname: probe\ndescription: >\n  Folded\n  text\n---\n": "Folded text",
    "---\nname: probe\ndescription: Owner\nmetadata:\n  name: nested\n---\n": "Owner",
    "---\nname: probe\ndescription: 2024-01-01\n---\n": "2024-01-01",
}
SIMPLE = {
    "---\n# A note\nname: probe\n\ndescription: use this when: x\n---\n": "use this when: x",
    "---\nname: probe\ndescription: it's: so # simple\nmodel: a: b\n---\n": "it's: so # simple",
}


@pytest.mark.behaviour("M-007", "M-054", "N-054", "K-014")
@pytest.mark.parametrize("host", WHERE)
def test_frontmatter_is_yaml_and_one_host_reads_simple_lines_where_that_fails(world: World, host: str) -> None:
    for text, description in {**FINE, **SIMPLE}.items():
        path = world.skill(f"{WHERE[host]}/probe", text=text)
        skills = discover(world, host)
        read = host == "mycodeagent" or text in FINE
        assert [skill.description for skill in skills] == [description] * read, text
        if text in SIMPLE:
            assert ("yaml-repaired" in codes(skills, path, "warning")) is read


@pytest.mark.behaviour("R-009")
def test_a_breach_in_an_optional_field_is_reported_and_the_skill_kept(world: World) -> None:
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({"compatibility": "x" * 500}, None),
        ({"compatibility": "x" * 501}, "compatibility-length"),
        ({"compatibility": ""}, "compatibility-length"),
        ({"metadata": {"author": "someone", "version": "1.0"}}, None),
        ({"metadata": ["a", "b"]}, "metadata-values"),
        ({"metadata": {"deep": {"er": "x"}}}, "metadata-values"),
        ({"license": ["MIT"]}, "field-type"),
    ]
    for fields, code in cases:
        path = world.skill(".rip/skills/probe", **fields)
        skills = discover(world, "rip")
        assert (names(skills), codes(skills, path, "warning")) == (["probe"], [code] if code else []), fields
