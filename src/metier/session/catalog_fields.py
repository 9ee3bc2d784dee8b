"""Which fields of a skill its entry in the prompt shows, besides name and description.

Rules decide about each field of each skill: `{tool = "catalog_field", path = "compatibility"}` in a list of the policy.
Where no rule covers a field, the setting `prompt.fields` does, which a project cannot extend unless the user trusts it.
Nobody is asked while a prompt is built, so an ask rule hides a field like a deny rule.
"""

from collections.abc import Callable
from typing import Final

from metier.hosts.schema import Profile
from metier.model import STANDARD_KEYS, Skill
from metier.session.policy import CATALOG_FIELD, Policy
from metier.session.skill_request import skill_request

_OPTIONAL: Final = tuple(key for key in STANDARD_KEYS if key not in ("name", "description"))


def catalog_fields(policy: Policy, profile: Profile) -> Callable[[Skill], tuple[str, ...]]:
    """A function that returns the keys to show of a skill."""
    listed = profile.prompt.fields
    if not policy.has_rules_about(CATALOG_FIELD):
        return lambda _: listed
    keys = tuple(dict.fromkeys((*listed, *_OPTIONAL)))

    def shows(skill: Skill, key: str) -> bool:
        decision = policy.decide(skill_request(CATALOG_FIELD, skill, key))
        return decision.verdict == "allow" if decision.rule is not None else key in listed

    return lambda skill: tuple(key for key in keys if shows(skill, key))
