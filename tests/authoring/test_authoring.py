"""What a strict validation tells the author of a skill, and what it does not: false alarms are worse than silence."""

from pathlib import Path
from typing import Any

from calling import Run
from metier.authoring.lint import describe_flaw, review
from metier.catalog.hidden import hidden_characters
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

GOOD = "Fills PDF forms. Use when somebody has a form to fill."


def told(world: World, body: str, **given: Any) -> list[tuple[str, str, int, int]]:
    """The findings on a skill: code and severity, line and column. Its body starts in line 5."""
    path = world.skill("pdf", description=GOOD, body=body, **given)
    return [(d.code, d.severity, d.line, d.column) for d in review(str(path.parent))]


FINE = """\
See [forms](references/forms.md#fields), [the same](./references/forms.md "Forms"), <img src="assets/logo.png">, and
[a folder](references/), ![logo](assets/logo.png), [id].

[id]: references/forms.md

Not files: [a](https://x.org/a.md), [b](#b), [c](mailto:x@y.org), [d](<name>.md), [e]({topic}.md), [f](docs/*.md),
[g](/absolute.md), [h](url), [i](path/to/file.md), [j](your-file.md), `references/<topic>.md`, `scripts/{name}.py`,
`../x`, `src/main.py`.

Run `python scripts/fill.py a.pdf`, or ${CLAUDE_SKILL_DIR}/scripts/fill.py, or `{baseDir}/scripts/fill.py`.

```markdown
[an example](of/a/link.md)
```

<!-- [a comment](gone.md) -->
"""
FILES = {
    "references/forms.md": "[home](../SKILL.md), [logo](assets/logo.png)",
    "assets/logo.png": "",
    "scripts/fill.py": "",
}


def test_what_is_missing_is_found_at_its_place_and_nothing_else(world: World) -> None:
    assert told(world, FINE, files=FILES) == []
    world.skill("o")  # a file outside of the skill is not there where the skill is installed alone
    (world.project / "pdf").rename(world.project / "before")
    body = "[a](references/a.md) and\n![b](b.png)\n`references/c.md`\n```\nbash scripts/d.sh\n```\n[o](../o/SKILL.md)\n"
    assert told(world, body, files={"scripts/fill.py": "", "notes/Forms.md": ""}) == [
        ("file-missing", "warning", 5, 5),
        ("file-missing", "warning", 6, 6),
        ("link-outside", "info", 11, 5),
        ("file-missing", "warning", 9, 6),  # a command of SKILL.md that runs a script, where there are scripts
        ("file-missing", "info", 7, 2),  # it may be an example
        ("reference-unreachable", "info", 1, 1),
    ]
    (world.project / "pdf").rename(world.project / "behind")
    for body in ("All in `references/`.", "Read references/<topic>.md.", "See the references folder."):
        assert told(world, body, files={"references/a.md": "", "references/deep/b.md": ""}) == [], body


def test_a_missing_file_is_told_with_the_one_that_was_meant(world: World, run: Run) -> None:
    world.skill("pdf", description=GOOD, body="[a](reference/forms.md)", files={"references/Forms.md": ""})
    shown = run("validate", "--strict", "pdf")
    assert shown.code == 1
    assert "warning[file-missing]: reference/forms.md does not exist\n  --> pdf/SKILL.md:5:5\n" in shown.out
    assert "help: did you mean references/Forms.md?" in shown.out
    assert "references/Forms.md:1:1" not in shown.out, "what is named by a wrong path is not unreachable, too"


def test_links_are_followed_from_file_to_file(world: World) -> None:
    files = {
        "references/a.md": "Then read [b](b.md). ![gone](gone.png)",
        "references/b.md": "The tables are in `tables.txt`. \u202eHidden.",
        "references/tables.txt": "",
        "references/lonely.md": "Nobody comes here. [gone](gone.md) \u202e",
        "README.md": "For people.",
        "assets/page.md": "A template.",
        "inner/SKILL.md": "---\nname: inner\ndescription: x\n---\n",
        "inner/references/x.md": "Of the other skill.",
    }
    path = world.skill("pdf", description=GOOD, body="Read [a](references/a.md).", files=files)
    found = [(d.code, Path(d.path).name, d.line, d.column) for d in review(str(path.parent))]
    assert found == [
        ("file-missing", "a.md", 1, 30),
        ("hidden-characters", "b.md", 1, 33),
        ("reference-unreachable", "lonely.md", 1, 1),
    ]


def test_a_link_never_leads_a_review_out_of_the_folder(world: World) -> None:
    (world.project / "secret.md").write_text("\u202e")
    path = world.skill("pdf", description=GOOD, body="[a](references/a.md) [b](up/secret.md)")
    (path.parent / "references").mkdir()
    (path.parent / "references/a.md").symlink_to(world.project / "secret.md")
    (path.parent / "up").symlink_to(world.project)
    assert review(str(path.parent)) == []


PLACEHOLDERS = (
    *("TODO", "TODO: describe it", "<description>", "[Your description]", "Your skill description here", "My skill."),
    "Replace with description of the skill and when to use it.",
    "A brief description of what this skill does",
    "Does what x is for. Use when the user asks for it. (Replace these sentences with your own.)",
)
GOOD_ONES = (
    *(GOOD, "处理文件", "Заполняет формы.", "Helps to write a job description."),
    "Moves tasks from Todo to Done. Use it after a review.",
    "Puts real values into placeholder text when asked.",
    "Füllt Formulare aus und speichert sie für den Benutzer.",
    "Remplit les formulaires PDF avec les données de la table.",
    "Rellena los formularios y los guarda con el nombre del cliente.",
)


def test_a_placeholder_or_the_name_again_is_no_description_and_a_good_one_no_finding_in_any_language() -> None:
    def flaw(text: str, **fields: object) -> str | None:
        found = describe_flaw({"name": "pdf-tools", "description": text, **fields})
        return found and f"{found.severity} {found.code}"

    assert {text for text in PLACEHOLDERS if flaw(text) != "warning description-placeholder"} == set()
    vague = ("PDF", "pdf-tools", "PDF Tools", "Tools.")
    assert {text for text in vague if flaw(text) != "warning description-vague"} == set()
    assert {text for text in GOOD_ONES if flaw(text) is not None} == set()
    about = "Standards for the database."
    assert flaw(about, when_to_use="On any change of a table.") is None
    assert flaw(about, **{"disable-model-invocation": True}) is None


def test_a_description_without_a_when_is_advice(world: World, run: Run) -> None:
    world.skill("pdf", description="Standards for the database.")
    shown = run("validate", "--strict", "pdf")
    assert (shown.code, shown.err) == (0, "")
    assert "info[description-when]" in shown.out
    assert shown.out.endswith("1 checked, 0 invalid, 1 hints\n")
    assert run("validate", "pdf").out == "1 checked, 0 invalid\n", "only the strict validation advises"


ORDINARY = (
    "👨‍👩‍👧 and 🏳️‍🌈 and 👩🏽‍⚕️ and 🏴󠁧󠁢󠁥󠁮󠁧󠁿 and ❤️",
    "می‌خواهم",  # Persian: a zero-width non-joiner
    "क्‍ष and ක්‍ෂ",  # Hindi, Sinhala: zero-width joiners
    "שלום \u200fabc\u200e \u2067x\u2069",
    *("ภาษา\u200bไทย", "葛\U000e0100城", "Donau\u00addampf", "\u200b```\ncode\n\u200b```"),
    *("tab\tand\r\nline\x0cfeed", "\ufeffbyte order mark"),
)
HIDDEN = {
    **dict.fromkeys(("a\u202eb", "a\u2066b", "שלום\u202e", "🏴\U000e0067"), "hidden"),
    **dict.fromkeys(("ignore\U000e0049\U000e0067", "x\ufe01\ufe02\U000e0101"), "hidden hidden"),
    "a\u200bb\u200dc\u2060d\ufeff": "invisible invisible invisible invisible",
    **dict.fromkeys(("a\u200eb", "\x1b[31m"), "invisible"),
}


def test_what_nobody_sees_is_found_and_nothing_in_ordinary_text() -> None:
    assert {text: hidden_characters(text) for text in ORDINARY} == {text: [] for text in ORDINARY}
    assert {text: " ".join(one.kind for one in hidden_characters(text)) for text in HIDDEN} == HIDDEN


def test_a_hidden_character_is_told_once_with_its_name_and_place(world: World, run: Run) -> None:
    text = '---\nname: pdf\ndescription: "Use it\u202e when asked."\nlicense: "M\u200bIT"\n---\nOne.\nTwo \u202ehere.\n'
    world.skill("pdf", text=text)
    found = run("validate", "--strict", "--json", "pdf").json["skills"][0]["diagnostics"]
    assert [(d["code"], d["severity"], d["line"], d["column"]) for d in found] == [
        ("hidden-characters", "error", 3, 1),  # by the validation of the description
        ("hidden-characters", "error", 7, 5),
        ("invisible-characters", "warning", 4, 12),
    ]
    assert "U+202E RIGHT-TO-LEFT OVERRIDE" in found[1]["message"]
    assert "metier validate --fix" in found[1]["hint"]
