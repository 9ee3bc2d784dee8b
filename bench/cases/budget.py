"""What a prompt still shows of the right skill when 2,000 skills must fit 8,000 characters and the message is known.

The 2,000 are all skills that any query expects and others by chance. By default, prompts stay the same from turn to
turn, and a message only adds the five skills that fit it best: measured for the first message of a conversation, and
over conversations of 20 messages about other things each, which share an eighth of the room. Beside it, `prompt.order =
"relevance"`, which sorts by each message, and what the same prompt would show if it were cut by the alphabet, as agents
do that list names until the space is used up.
"""

import random
import statistics
from collections.abc import Callable, Container, Sequence

from metier.hosts.formats import CatalogView, listing
from metier.hosts.profiles import build, load
from metier.search.finder import Finder
from metier.session.listing import ADDED, with_choices
from metier.values.results import Prompt
from metier.values.skill import Role, Skill

from ..corpus import Query, absent, corpus_of
from ..measure import Row
from ..options import Options

SKILLS = 2_000
CHARACTERS = 8_000
TURNS = 20
GOAL = 0.95
_OFFERED: dict[Role, str] = {"load": "skill_load", "search": "skill_search", "read": "skill_read"}


def run(options: Options) -> list[Row]:
    corpus = corpus_of(options)
    if corpus is None:
        return absent(options)
    skills = corpus.skills
    wanted = {path for query in corpus.asked for path in query.expected}
    others = [skill for skill in skills if skill.path not in wanted]
    random.Random(11).shuffle(others)
    chosen = [skill for skill in skills if skill.path in wanted]
    chosen += others[: max(0, SKILLS - len(chosen))]
    chosen.sort(key=lambda skill: (skill.name, skill.path))
    profile = build(load("standard"))

    def shown(order: list[str]) -> tuple[set[str], set[str], int]:
        prompt = listing(
            CatalogView(skills=[by_path[path] for path in order], profile=profile, offered=_OFFERED, budget=CHARACTERS)
        )
        described = len(prompt.names)
        return set(order[:described]), set(order[described : prompt.shown]), len(prompt.text)

    by_path = {skill.path: skill for skill in chosen}
    alphabet = [skill.path for skill in chosen]
    finder = Finder("")
    finder.sync(chosen)
    finder.wait()
    described = named = first = 0
    known: list[str] = []
    counts: list[int] = []
    lengths: list[int] = []
    for query in corpus.asked:
        ranked = [skill.path for skill in finder.rank(query.text, lambda _: True, len(chosen))]
        found = set(ranked)
        whole, names, length = shown([*ranked, *(path for path in alphabet if path not in found)])
        described += bool(query.expected & whole)
        named += bool(query.expected & names and not query.expected & whole)
        counts.append(len(whole) + len(names))
        lengths.append(length)
    view = CatalogView(skills=chosen, profile=profile, offered=_OFFERED, budget=CHARACTERS)
    uncut = listing(view)
    new = later = 0
    for at, query in enumerate(corpus.asked):
        known = known if at % TURNS else []
        fitting = _fitting(finder, query.text)
        found = {by_path[path].name for path in query.expected if path in by_path}

        def shows(prompt: Prompt, brought: list[str], query: Query = query, found: set[str] = found) -> bool:
            fixed = alphabet[: len(prompt.names) - len(brought)]
            return bool(query.expected & {*fixed, *brought} or found & {*prompt.more})

        prompt = with_choices(view, uncut, known, fitting)
        known = [*([] if prompt.replaces else known), *(skill.path for skill in prompt.chosen)]
        later += shows(prompt, known)
        lengths.append(len(prompt.text))
        prompt = with_choices(view, uncut, [], fitting)
        new += shows(prompt, [skill.path for skill in prompt.chosen])
    whole, names, _ = shown(alphabet)
    first = sum(bool(query.expected & (whole | names)) for query in corpus.asked)
    total = len(corpus.asked)
    what = f"{len(chosen):,} in {CHARACTERS:,}"
    return [
        Row(what, "by default, first message", new / total, "", at_least=GOAL),
        Row(what, f"by default, {TURNS} messages", later / total, "", at_least=GOAL),
        Row(what, "by relevance", (described + named) / total, "", at_least=GOAL),
        Row(what, "  with a description", described / total, ""),
        Row(what, "  by name only", named / total, ""),
        Row(what, "by the alphabet", first / total, ""),
        Row(what, "skills shown, median", statistics.median(counts), ""),
        Row(what, "longest prompt", max(lengths), "chars", at_most=CHARACTERS),
    ]


def _fitting(finder: Finder, text: str) -> Callable[[Container[str], float], Sequence[Skill]]:
    """What a session adds to its prompt for a message."""
    return lambda among, least: finder.rank(text, lambda skill: skill.path in among, ADDED, least)
