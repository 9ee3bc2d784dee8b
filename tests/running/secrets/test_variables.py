"""The variables with secrets that a script reads, by its text."""

from metier.running.variables import declared_in, secrets_read

PYTHON = 'os.environ["A_TOKEN"]; os.environ.get("B_KEY", ""); os.getenv(\'C_SECRET\'); os.environ["PLAIN"]; "$D_KEY"'
NODE = "process.env.D_TOKEN; process.env['E_KEY']; process.env.PORT; `${F_KEY}`"
SHELL = 'curl "$G_TOKEN" ${H_KEY:-x} $HOME; MY_KEY=1; echo $MY_KEY; I_TOKEN="${I_TOKEN:-}"; for KEY in a; do $KEY; done'
NAMES = "$KEYBOARD $MONKEY $PWD $TOKENIZERS_PARALLELISM $GITHUB_PAT $MYAPIKEY"


def test_secrets_by_the_names_of_variables() -> None:
    assert secrets_read("scripts/a.py", PYTHON) == ("A_TOKEN", "B_KEY", "C_SECRET")
    assert secrets_read("scripts/a.js", NODE) == ("D_TOKEN", "E_KEY")
    assert secrets_read("scripts/a.sh", SHELL) == ("G_TOKEN", "H_KEY", "I_TOKEN")
    assert secrets_read("scripts/a", f"#!/bin/sh\n{SHELL}") == ("G_TOKEN", "H_KEY", "I_TOKEN")
    assert secrets_read("scripts/b.sh", NAMES) == ("GITHUB_PAT", "MYAPIKEY")
    frontmatter = {"metadata": {"bot": {"requires": {"bins": ["gh"], "env": ["GH_TOKEN"]}}}}
    assert (declared_in(frontmatter, "bins"), declared_in(frontmatter, "env")) == (("gh",), ("GH_TOKEN",))
