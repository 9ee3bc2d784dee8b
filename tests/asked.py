"""A request with something in every field, hostile where a skill or a model writes it, and all that a person must see.

`ask_about_it` makes every question of this process about this request, so that one request walks over all surfaces.
"""

import re
from dataclasses import replace

from metier.policy.question import Question
from metier.running.grants.files import FilesGrant, GivenFile
from metier.running.grants.folder import FolderGrant
from metier.running.grants.network import NetworkGrant
from metier.running.grants.packages import PackagesGrant
from metier.running.grants.secrets import SecretsGrant
from metier.running.grants.unsandboxed import UnsandboxedGrant
from metier.values.grants import Grant
from metier.values.results import Request

SCRIPT = """\
#!/usr/bin/env python3
import sys
print("first")
print("<b>second</b> [bold]x[/bold] \x1b[2J \u202e")
# Always: nothing at all.
"""
BEFORE = SCRIPT.replace('print("first")\n', 'print("older")\n')
DIGEST = "sha256:" + "0123456789abcdef" * 4
FOLDER = "/srv/skills/pdf-tools"
REQUEST = Request(
    tool="skill_run",
    skill_name="pdf-tools",
    path="scripts/convert.py",
    command="scripts/convert.py a b $(id) \x1b[31m <img src=x>",
    digest=DIGEST,
    detail=SCRIPT,
    arguments=("a b", "$(id)", "\x1b[31m", "<img src=x>"),
    grants=(
        FolderGrant(tools=("run_project",), path="/srv/project", cwd="/srv/project"),
        FilesGrant(files=(GivenFile("data.csv", DIGEST, 3), GivenFile("<i>.csv", DIGEST, 3)), asked=True),
        SecretsGrant(names=("GITHUB_TOKEN", "MAIL_PASSWORD")),
        NetworkGrant(hosts=("api.example.org", "*.example.net:8443", "!old.example.net")),
        PackagesGrant(digest=DIGEST, text="1 package, 11 kB, declared in requirements.txt: six 1.17.0"),
        UnsandboxedGrant(),
    ),
    folder=FOLDER,
    scope="repo",
    source=".agents",
    foreign=True,
    name="GITHUB_TOKEN",
)
FACTS = {
    "title": "Run scripts/convert.py of the skill pdf-tools?",
    "quoted arguments": r"scripts/convert.py 'a b' '$(id)' '\x1b[31m' '<img src=x>'",
    "digest": DIGEST,
    "folder": f"{FOLDER} (repo, .agents)",
    "trust": "It belongs to a project that you do not trust.",
    "files": "It sees its own files and reads the folder /srv/project.",
    "given": "It is given a copy of data.csv, <i>.csv.",
    "secrets": "It is given GITHUB_TOKEN, MAIL_PASSWORD as variables.",
    "network": "It may connect to api.example.org, *.example.net:8443, but not to old.example.net, "
    "and to nothing else.",
    "needs": "1 package, 11 kB, declared in requirements.txt: six 1.17.0",
    "once": "this one run, of this content and with these arguments.",
    "always": f"this script of the skill at {FOLDER}, with any arguments, where it reads the folder /srv/project, "
    "as long as no file of the skill and no package changes and it is given the same.",
    "no": "nothing runs; the caller gets an error.",
}
IN_SCRIPT = r'print("<b>second</b> [bold]x[/bold] \x1b[2J \u202e")'
IN_DIFF = ('-print("older")', '+print("first")')


def regranted(request: Request, *grants: Grant) -> Request:
    """The request with other grants of some kinds."""
    given = {grant.kind: grant for grant in (*request.grants, *grants)}
    return replace(request, grants=tuple(given.values()))


def ask_about_it(request: Request = REQUEST, before: str = "") -> None:
    """From now on, every question of this process is about the request."""
    question = Question.of(replace(request, before=before))
    Question.of = classmethod(lambda cls, _: question)  # type: ignore[method-assign]


def words(text: str) -> str:
    """The text without the bars and line ends that a narrow surface needs."""
    return re.sub(r"\s+", " ", re.sub(r"\n *\|>? ?", "\n", text))


def missing(shown: str, diff: bool = False) -> list[str]:
    """The facts that are not in what a person was shown."""
    seen = words(shown)
    wanted = [*FACTS.values(), *(IN_DIFF if diff else (IN_SCRIPT,))]
    return [fact for fact in wanted if words(fact) not in seen]
