"""What the looks find in the files of a skill, and what they leave out."""

from metier.running.capabilities.look import (
    Language,
    SourceFile,
    asked_for,
    asked_for_by,
    files,
    hosts,
    imports,
    looks_secret,
    programs,
)
from metier.running.capabilities.shell import called

SHELL = r"""#!/usr/bin/env bash
set -euo pipefail
# a comment names jq
DIR="$(cd "$(dirname "$0")" && pwd)"
usage() { cat <<EOF
usage: curl is not called here
EOF
exit 1; }
for f in a b $(ls *.txt); do convert "$f" out.png; done
if ! command -v jq >/dev/null 2>&1; then echo "no jq" >&2; exit 1; fi
case "$1" in
  start|run) systemctl start x ;;
  *) usage ;;
esac
X=1 Y="$(git rev-parse HEAD)" sudo -E apt-get install foo
grep -v "foo; bar" x | awk '{print $1; system("x")}' > out && rm -f y || true
[[ -n $X && foo == bar ]] && wget -q "https://x/$(date +%s)"
echo `uname -a` $((1 + 2)) "${X:-y}"
while read -r line; do echo "$line" | sed 's/a/b/'; done < <(find . -name '*.py')
env FOO=1 python3 -m http.server &
timeout 5s tar x
names=(one two three)
./own.sh; "$DIR/x.sh"; /usr/bin/ffmpeg -i x
(( i++ ))
helper
helper () { tr a b; }
"""


def source(text: str, language: Language = "python", path: str = "scripts/a") -> SourceFile:
    return SourceFile(path, language, text)


def test_the_programs_of_a_shell_script() -> None:
    assert set(called(SHELL)) == {
        "dirname", "cat", "ls", "convert", "systemctl", "git", "sudo", "apt-get", "grep", "awk", "rm", "wget", "date",
        "uname", "sed", "find", "env", "python3", "timeout", "tar", "/usr/bin/ffmpeg", "tr",
    }  # fmt: skip


def test_broken_shell_scripts_end() -> None:
    for text in ("$(", '"', "'", "${", "`", "((", "case x in", "<<EOF", "a)b)c", "\\", "if", "[[", "x() {", "$((1"):
        called(text)
        called(f"first; {text}")


def test_the_programs_of_python_and_of_the_frontmatter() -> None:
    text = """
import os, subprocess
subprocess.run(["git", "status"]); subprocess.check_output("jq . | wc -l", shell=True)
os.system("ls -l"); subprocess.run(command); app.run("host name"); subprocess.Popen([sys.executable, "x"])
"""
    declared = {"metadata": {"bot": {"requires": {"bins": ["gh"], "env": ["GH_TOKEN"]}}}}
    found = programs([source(text)], declared)
    assert [one.name for one in found] == ["gh", "git", "jq", "ls", "wc"]
    assert [(one.name, one.kind) for one in asked_for([], declared)] == [("GH_TOKEN", "declared")]


def test_imports_are_standard_own_or_packages() -> None:
    python = "import os, yaml\nfrom helpers import x\nfrom . import y\nfrom google.cloud import storage\n"
    node = "import fs from 'node:fs'; const x = require(\"@scope/pkg/sub\"); import('./own.js'); import 'lodash/fp'"
    known = [source(python), source("", path="scripts/helpers.py"), source(node, "node", "scripts/b.js")]
    assert {one.name: one.kind for one in imports(known)} == {
        "os": "standard", "yaml": "package", "helpers": "own", "google": "package",
        "fs": "standard", "@scope/pkg": "package", "lodash": "package",
    }  # fmt: skip
    assert [one.name for one in imports([source("print 'python 2'\nimport urllib2\n")])] == ["urllib2"]


def test_hosts_and_files() -> None:
    text = """curl "https://user:pass@API.Example.com:8443/x?y" http://[::1]:80/ https://$HOST/ https://{host}/
cat ~/.netrc $HOME/.ssh/id /etc/hosts > /dev/null; /usr/bin/env x; a/etc/b; https://x.org/home/me/file
"""
    assert [one.name for one in hosts([source(text, "shell")])] == ["[::1]", "api.example.com", "x.org"]
    assert [one.name for one in files([source(text, "shell")])] == ["/etc/hosts", "~/.netrc", "~/.ssh/id"]


def test_secrets_by_the_names_of_variables() -> None:
    python = 'os.environ["A_TOKEN"]; os.environ.get("B_KEY", ""); os.getenv(\'C_SECRET\'); os.environ["PLAIN"]'
    node = "process.env.D_TOKEN; process.env['E_KEY']; const { F_PASSWORD, PORT } = process.env"
    shell = 'curl "$G_TOKEN" ${H_KEY:-x}; MY_KEY=1; echo $MY_KEY; I_TOKEN="${I_TOKEN:-}"; for KEY in a; do $KEY; done'
    known = [
        source(python),
        source(node, "node", "b"),
        source(shell, "shell", "c"),
        source("Set J_KEY.", "markdown", "d"),
    ]
    names = [one.name for one in asked_for(known)]
    assert names == [
        "A_TOKEN", "B_KEY", "C_SECRET", "D_TOKEN", "E_KEY", "F_PASSWORD", "G_TOKEN", "H_KEY", "I_TOKEN", "J_KEY",
    ]  # fmt: skip
    assert [name for name in ("KEYBOARD", "MONKEY", "PWD", "TOKENIZERS_PARALLELISM") if looks_secret(name)] == []


def test_a_script_asks_for_what_it_reads_and_not_for_what_only_another_one_does() -> None:
    known = [
        source("A_TOKEN B_TOKEN C_TOKEN", "markdown", "SKILL.md"),
        source('import client\nos.environ["A_TOKEN"]', path="scripts/a.py"),
        source('os.environ["B_TOKEN"]', path="scripts/b.py"),
        source('os.environ["D_KEY"]', path="scripts/client.py"),
    ]
    assert [one.name for one in asked_for_by("scripts/a.py", known, {})] == ["A_TOKEN", "C_TOKEN", "D_KEY"]
    assert [one.name for one in asked_for_by("scripts/b.py", known, {})] == ["B_TOKEN", "C_TOKEN"]
