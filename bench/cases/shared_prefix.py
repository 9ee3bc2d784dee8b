"""How much of the system prompt two requests in a row share, over a conversation of 20 turns.

A model's server caches the longest prefix that it has seen before, so a prompt that changes near its start is paid for
in full with every turn. The conversation is the same for all: requests about several things, thanks, questions that
follow, and two skills that are loaded. Beside what the adapters and the chat send stands the order by relevance to the
last message. A share is that of the common prefixes in all characters of the 19 later prompts.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from metier import Skills
from metier.adapters.conversation import Conversation
from metier.session.session import Session
from metier.surfaces.chat.turn import BASE

from ..measure import Row
from ..options import Options, scan_arguments

GOAL = 0.95
BUDGET = 8_000
SIZES = (30, 2_000)
TURNS = (
    "Review this pull request before the release.",
    "Thanks. Which of the comments matter most?",
    "Fix those, then draft the release notes.",
    "Shorter, please.",
    "Now extract the tables of the invoice into a spreadsheet.",
    "The second column is wrong, try again.",
    "Good. Make a chart of it for the dashboard.",
    "Can it be blue?",
    "Check the database schema for missing columns.",
    "Why is that one a problem?",
    "Plan a migration for it.",
    "And a test suite that runs before and after.",
    "Yes, go on.",
    "Deploy the terraform module to staging.",
    "What did the log file say?",
    "Debug the pipeline then.",
    "Thank you so much.",
    "Translate the contract for the customer.",
    "Fill the pdf form with the same data.",
    "That is all for today.",
)
Ask = Callable[[Sequence[str]], str]
"""Gives the system prompt of the next request, with these texts after those before: results of tools, and a message."""


def run(options: Options) -> list[Row]:
    rows: list[Row] = []
    for size in SIZES:
        rows += _measure(options, size, "adapter", adapter, {})
        rows += _measure(options, size, "chat", chat, {"prompt.max_chars": BUDGET})
        rows += _measure(options, size, "by relevance", adapter, {"prompt.order": "relevance"}, goal=None)
    return rows


def _measure(
    options: Options,
    size: int,
    name: str,
    open_: Callable[[Session], Ask],
    rules: dict[str, Any],
    goal: float | None = GOAL,
) -> list[Row]:
    given = scan_arguments(options.workspace, options.workspace.tree(size).path, cache=False)
    given["settings"] |= rules
    share, least, longest = shared(conversation(Skills.discover(**given), open_))
    what = f"{size:,} skills"
    return [
        Row(what, name, share, "", at_least=goal),
        Row(what, "  least of a turn", least, ""),
        Row(what, "  longest prompt", longest, "chars"),
    ]


def conversation(skills: Skills, open_: Callable[[Session], Ask]) -> list[str]:
    """The system prompts of the turns. In the third and the eleventh, the model loads a skill."""
    session = skills.session(surface="bench")
    ask, first, last = open_(session), next(iter(skills)), list(skills)[-1]
    prompts: list[str] = []
    results: list[str] = []
    for number, message in enumerate(TURNS):
        prompts.append(ask([*results, message]))
        loads = [session.load(path=(first if number == 2 else last).path)] if number in (2, 10) else []
        results = [loaded.text for loaded in loads]
    return prompts


def shared(prompts: Sequence[str]) -> tuple[float, float, int]:
    """The share of the common prefixes, the least share of a turn, and the length of the longest prompt."""
    pairs = [(_same(one, other), len(other)) for one, other in pairwise(prompts)]
    share = sum(same for same, _ in pairs) / sum(size for _, size in pairs)
    return share, min(same / size for same, size in pairs), max(map(len, prompts))


def _same(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def adapter(session: Session) -> Ask:
    conversation, history = Conversation(session, budget=BUDGET), list[str]()

    def ask(texts: Sequence[str]) -> str:
        history.extend(texts)
        return conversation.system(BASE, history, history[-1]).text

    return ask


def chat(session: Session) -> Ask:
    return lambda texts: session.system_prompt(BASE, message=texts[-1])
