"""Judges a description as its only reader does: a model that decides from it alone whether to load the skill.

A description should say what the skill does and when to use it. Whether it says when can only be told of English, so
other languages are left alone.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from metier.model import Severity, as_text

_PLACEHOLDER: Final = re.compile(
    r"""
    \A\W*(?:todo|tbd|fixme|xxx|placeholder|lorem\ ipsum)\b
    | \bTODO:
    | \A(?:please\ )?(?:replace|add|insert|write|enter|put|fill\ in)\b[^.]{0,30}\bdescription\b
    | \bdescription\ (?:goes\ )?here\b
    | \A(?:(?:a|an|the|your)\ )?(?:brief|short|one-line|clear|skill|your)\ (?:\w+\ )?description\b[^.]{0,40}\.?\Z
    | \A(?:a\ )?description\ of\ (?:the|this|your|what)\b
    | \A[<\[{][^<>\[\]{}]*[>\]}]\.?\Z
    | \breplace\ th(?:is|ese)\ (?:text|sentences?|description|line|placeholder)\b
    | \A(?:(?:my|your|a|an|the|this|new|test|example|sample)\ )+skill\.?\Z
    | \Awhat\ (?:the|this|your)\ skill\ does\b.{0,40}\Z
    """,
    re.IGNORECASE | re.VERBOSE,
)

_WHEN: Final = re.compile(
    r"\bwhen|\buse\b|\bused (?:for|to|by|in|with|as|if|on)\b|\btrigger|\bif (?:the|you|a|an|user|asked|working|it)\b"
    r"|\b(?:before|after|while|during|upon|once|until|where|every time|any time|proactively|scenarios?|cases?)\b"
    r"|\bfor (?:\w+ing|use|any|all|every|questions|tasks|requests|when)\b|\b(?:ask|need|want|request|mention|respond)"
    r"|\b(?:helps?|invoke|activate|appl(?:y|ies)|suitable|ideal|load this|read this)\b",
    re.IGNORECASE,
)

_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af]")
"""Letters of scripts without spaces between words."""

_ENGLISH: Final = re.compile(r"\b(?:the|and|for|with|of|to|from|this|that|by|or|your|is|are|into|via|an)\b")
_OTHERS: Final = re.compile(
    r"\b(?:und|der|das|für|mit|wenn|ist|ein|eine|zu|von|den|bei|oder|le|la|les|des|pour|une|avec|dans|et|quand|du|el"
    r"|los|las|para|con|una|cuando|por|del|um|uma|com|quando|não|il|gli|per|della|di|che|een|het|voor|met|van|wanneer"
    r"|bij|och|för|att|som|og|til|av|do|na|jest|oraz)\b"
)
"""Small words of English, and of other languages with Latin letters."""


class DescriptionFlaw(NamedTuple):
    """What is wrong with a description, and what to do about it."""

    code: str
    severity: Severity
    message: str
    hint: str


def describe_flaw(fields: Mapping[str, object]) -> DescriptionFlaw | None:
    """Return the worst flaw of a description. `None` if there is none, or no description at all."""
    text = (as_text(fields.get("description")) or "").strip()
    if not text:
        return None
    if _PLACEHOLDER.search(text):
        message = "`description` is a placeholder"
        return DescriptionFlaw("description-placeholder", "warning", message, _WRITE)
    if _says_nothing(text, as_text(fields.get("name")) or ""):
        message = "`description` says no more than the name"
        return DescriptionFlaw("description-vague", "warning", message, _WRITE)
    if not _says_when(fields) and not _WHEN.search(text) and _is_english(text):
        hint = 'add a sentence such as "Use when the user asks for ..."'
        message = "`description` does not say when to use the skill"
        return DescriptionFlaw("description-when", "info", message, hint)
    return None


_WRITE: Final = "say what the skill does and when to use it: a model sees only this before it loads the skill"


def _says_nothing(text: str, name: str) -> bool:
    """Whether a description is one word, or only repeats the name."""
    if _UNSPACED.search(text):
        return len(text) < 4
    words = re.findall(r"\w+", text.lower())
    return len(words) < 2 or set(words) <= set(re.findall(r"[^\W_]+", name.lower()))


def _says_when(fields: Mapping[str, object]) -> bool:
    """Whether another field says when the skill is used, or the model is not the one who decides."""
    named = ("when_to_use", "when-to-use", "paths", "globs", "triggers")
    decided = (("disable-model-invocation", True), ("alwaysApply", True), ("always", True))
    return any(fields.get(key) for key in named) or any(fields.get(key) is value for key, value in decided)


def _is_english(text: str) -> bool:
    letters = [char for char in text if char.isalpha()]
    if sum(char.isascii() for char in letters) < 0.95 * len(letters):
        return False
    return len(_ENGLISH.findall(text.lower())) >= len(_OTHERS.findall(text.lower()))
