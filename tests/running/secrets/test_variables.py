"""The variables with secrets that a script reads, by its text."""

import pytest

from metier.running.variables import declared_in, secrets_read

PYTHON = 'os.environ["A_TOKEN"]; os.environ.get("B_KEY", ""); os.getenv(\'C_SECRET\'); os.environ["PLAIN"]; "$D_KEY"'
NODE = "process.env.D_TOKEN; process.env['E_KEY']; process.env.PORT; `${F_KEY}`"
SHELL = 'curl "$G_TOKEN" ${H_KEY:-x} $HOME; MY_KEY=1; echo $MY_KEY; I_TOKEN="${I_TOKEN:-}"; for KEY in a; do $KEY; done'


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("scripts/a.py", PYTHON, ("A_TOKEN", "B_KEY", "C_SECRET")),
        ("scripts/a.js", NODE, ("D_TOKEN", "E_KEY")),
        ("scripts/a.sh", SHELL, ("G_TOKEN", "H_KEY", "I_TOKEN")),
        ("scripts/a", f"#!/bin/sh\n{SHELL}", ("G_TOKEN", "H_KEY", "I_TOKEN")),
        (
            "scripts/b.sh",
            "$KEYBOARD $MONKEY $PWD $TOKENIZERS_PARALLELISM $GITHUB_PAT $MYAPIKEY",
            ("GITHUB_PAT", "MYAPIKEY"),
        ),
    ],
)
def test_secrets_by_the_names_of_variables(path: str, text: str, found: tuple[str, ...]) -> None:
    assert secrets_read(path, text) == found


def test_what_the_frontmatter_requires() -> None:
    frontmatter = {"metadata": {"bot": {"requires": {"bins": ["gh"], "env": ["GH_TOKEN"]}}}}
    assert declared_in(frontmatter, "bins") == ("gh",)
    assert declared_in(frontmatter, "env") == ("GH_TOKEN",)
