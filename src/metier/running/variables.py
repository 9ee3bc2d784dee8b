"""The environment variables with secrets that a script reads, by its text, and what the frontmatter of a skill needs.

Nothing is run, so a name that is only known at run time is not found.
"""

import re
from collections.abc import Mapping
from typing import Final

from metier.files.shapes import is_items, is_object

_NAME: Final = r"([A-Z][A-Z0-9_]*)"
_READS: Final = re.compile(
    rf"""(?:environ(?:\.get\(|\.pop\(|\[)|getenv\()\s*["']{_NAME}["']"""
    rf"""|process\.env(?:\.|\[\s*["'`]){_NAME}"""
)
_SHELL: Final = re.compile(r"#!.*\b(?:sh|bash|dash|ash|zsh)\b")
_READS_IN_SHELL: Final = re.compile(rf"\$\{{?{_NAME}")
_SETS_IN_SHELL: Final = re.compile(rf"""(?:^|[\s;&|(]){_NAME}=(?!["']?\$\{{?\1\b)|\b(?:read|for)\s+{_NAME}""")
_SECRET: Final = re.compile(
    r"(?:.*_)?(?:KEYS?|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|AUTH|DSN|TOKENS|SECRETS)(?:_.*)?"
    r"|(?:.*_)?(?:TOKEN|SECRET|PASSWORD|APIKEY)_.*|.*(?:APIKEY|TOKEN|SECRET|PASSWORD)"
)


def secrets_read(path: str, text: str) -> tuple[str, ...]:
    """The variables that a script reads and whose names are those of secrets, such as `GITHUB_TOKEN`."""
    found = ["".join(names) for names in _READS.findall(text)]
    if path.endswith((".sh", ".bash")) or _SHELL.match(text):
        own = {"".join(names) for names in _SETS_IN_SHELL.findall(text)}
        found += (name for name in _READS_IN_SHELL.findall(text) if name not in own)
    return tuple(name for name in dict.fromkeys(found) if _SECRET.fullmatch(name))


def declared_in(frontmatter: Mapping[str, object], what: str) -> tuple[str, ...]:
    """What the tables `requires` of the frontmatter list, as some hosts read them: `env` for variables, or `bins`."""
    found: dict[str, None] = {}
    tables: list[object] = [frontmatter]
    while tables:
        table = tables.pop()
        for key, value in table.items() if is_object(table) else ():
            listed = value.get(what) if key == "requires" and is_object(value) else None
            found |= dict.fromkeys(str(name) for name in (listed if is_items(listed) else ()))
            tables.append(value)
    return tuple(found)
