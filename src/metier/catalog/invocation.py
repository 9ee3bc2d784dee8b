"""Who may invoke a skill, as its own files say: the keys of its frontmatter that the host honours, and a policy file.

The answer is one number, because a scan keeps it in the cache for every file.
"""

import os
from collections.abc import Mapping
from typing import Final

from metier import limits
from metier.files.beneath import read_regular
from metier.files.shapes import is_dict
from metier.hosts.schema import CatalogRules
from metier.values.skill import Skill
from metier.values.value import replace

_HIDDEN: Final = 1
_NOT_FOR_USER: Final = 2
_OFF: Final = 4
"""The flags: hidden from the model, not callable by the user, off."""

_KEYS: Final = frozenset(("disable-model-invocation", "hide", "user-invocable", "enabled", "disabled"))
_WORDS: Final = {"yes": True, "on": True, "1": True, "no": False, "off": False, "0": False}


def flags_of(fields: Mapping[str, object], rules: CatalogRules, file: str) -> int:
    """The flags that the frontmatter and the policy file beside the SKILL.md set, if the host honours them."""
    flags = frontmatter_flags(fields, rules) if rules.honours and not _KEYS.isdisjoint(fields) else 0
    return flags | _of_policy_file(os.path.dirname(file), rules.policy_file) if rules.policy_file else flags


def with_flags(skill: Skill, flags: int) -> Skill:
    """The skill with what its flags say."""
    return replace(
        skill,
        model_invocable=not flags & _HIDDEN,
        user_invocable=not flags & _NOT_FOR_USER,
        mode="off" if flags & _OFF else "auto",
    )


def frontmatter_flags(fields: Mapping[str, object], rules: CatalogRules) -> int:
    """The flags that the frontmatter alone sets."""
    words = _WORDS if rules.flag_words else {}
    says = {key: words.get(str(fields.get(key)).lower(), fields.get(key)) for key in rules.honours}
    hidden = says.get("disable-model-invocation") is True or says.get("hide") is True
    not_for_user = says.get("user-invocable") is False
    off = says.get("enabled") is False or says.get("disabled") is True
    return hidden * _HIDDEN | not_for_user * _NOT_FOR_USER | off * _OFF


def _of_policy_file(folder: str, name: str) -> int:
    """A broken policy file sets no flag."""
    try:
        data = read_regular(os.path.join(folder, name), limits.FRONTMATTER_BYTES)
    except (OSError, ValueError):
        return 0
    from metier.catalog import frontmatter  # a catalog that is remembered is not parsed

    parsed = frontmatter.parse(b"---\n" + data + b"\n---\n")
    policy = (parsed.fields or {}).get("policy") if parsed is not None else None
    return _HIDDEN if is_dict(policy) and policy.get("allow_implicit_invocation") is False else 0
