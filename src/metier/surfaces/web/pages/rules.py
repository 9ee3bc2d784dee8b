"""The page of rules: what is allowed, what is not and why, and taking back remembered answers.

It shows what `metier policy list` and `metier policy explain` print.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier.session.explaining import answers_of, asked_about, listed_rules, origin_word
from metier.surfaces.web.site import Form, Site, see_other

TOOLS: Final = (
    ("skill_run", "a script run"),
    ("skill_load", "a skill be loaded"),
    ("skill_read", "a file be read"),
    ("run_network", "a script use the network"),
    ("run_project", "a script read the project"),
    ("run_project_write", "a script write to the project"),
    ("run_packages", "packages be installed"),
    ("run_secret", "a script get a secret"),
    ("run_unsandboxed", "a script run without a sandbox"),
    ("install", "a skill be installed"),
)
_COMMANDS: Final = ("skill_run",)


def index(site: Site, request: Request) -> Response:
    config = site.app.config
    policy = site.app.policy()
    rules = listed_rules(config, policy if site.app.given_policy is not None else None)
    given = {key: request.query_params.get(key, "").strip()[:500] for key in ("tool", "skill", "about")}
    decision = None
    if given["tool"] in dict(TOOLS):
        skill = site.skills().get(given["skill"]) if given["skill"] else None
        about = given["about"]
        is_secret, is_command = given["tool"] == "run_secret", given["tool"] in _COMMANDS
        asked = asked_about(
            config,
            policy,
            given["tool"],
            skill or given["skill"],
            path="" if is_secret or is_command else about,
            command=about if is_command else "",
            secret=about if is_secret else "",
        )
        decision = policy.decide(asked)
    count = request.query_params.get("revoked", "")
    said = {"0": "There was nothing to take back.", "1": "The answer was taken back, in every process."}.get(
        count, f"{count} answers were taken back, in every process." if count.isdigit() else ""
    )
    return site.page(
        request,
        "rules/index.html",
        policy=policy,
        rules=rules,
        origins=[origin_word(one.origin, config) for one in rules],
        has_answers=any(one.id for one in rules),
        warnings=policy.rules().warnings,
        tools=TOOLS,
        given=given,
        decision=decision,
        said=said,
    )


def revoke(site: Site, request: Request, given: Form) -> Response:
    wanted = given.get("id", "")
    revoked = answers_of(site.app.config).revoke(None if wanted == "*" else [wanted])
    return see_other(f"/rules?revoked={len(revoked)}")
