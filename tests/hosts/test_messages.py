"""Which messages call a skill on each host, and what is left of them; every other message is text, and comes back."""

import pytest

from worlds import World

BODY = "BODY-MARKER\n"
WHERE = {"standard": ".agents/skills", "codelia": ".agents/skills", "mycodeagent": "skills", "omp": ".omp/skills",
         "remcochat": ".skills", "rip": ".rip/skills"}  # fmt: skip
SETTINGS = {"omp": {"skills": {"enableSkillCommands": True}}, "remcochat": {"enabled": True}}
MENTIONS = ("$probe", "Please use $probe, then stop.", "($probe)", "first $PATH, then $probe")
COMMAND = {"/skill:probe a b": "a b", "/skill:probe": "", "/skill:probe  two\nlines": "two\nlines"}
CALLED = {
    "standard": {"/probe a.pdf": "a.pdf", **COMMAND, **{text: text for text in (*MENTIONS, "see skill://probe/x.md")}},
    "codelia": {text: text for text in MENTIONS},
    "mycodeagent": {text: text for text in MENTIONS},
    "omp": COMMAND,
    "remcochat": {
        "/probe": "",
        "/probe ": "",
        "/probe fill a.pdf": "fill a.pdf",
        "/probe\t \n  fill\n b": "fill\n b",
        "/probe\nnext line": "next line",
    },
    "rip": COMMAND,
}
"""The messages that call the skill, and what the model is given of each."""

TEXT = (
    *("", "probe", "/", "/ probe", "/prob x", "/probe-more x", "/probe, x", "/probe/x", "/Probe x", "/unknown x"),
    *(" /probe x", "\n/probe x", "use /probe x", "/skill:", "/skill:absent now", "/skill:PROBE", "/skill: probe"),
    *("please /skill:probe", " /skill:probe", "$PATH costs $5", "$no-such-skill, $ , $$probe, \\$probe, US$probe"),
    *("$probes, $probe-x, $Probe", "/usr/bin/env is a path", "${probe}", "$probe_x", "a$probe", "`$`probe", "$5.00"),
    *("skill://", "skill://none", "xskill://probe", "https://skill://probe", "skill://%ff", "skill:// probe"),
)


@pytest.mark.behaviour("C-060", "C-061", "M-024", "O-039", "K-034", "K-035", "K-036", "K-037", "K-038", "R-031")
@pytest.mark.parametrize("host", WHERE)
def test_a_message_calls_a_skill_in_the_forms_of_its_host_and_is_text_in_all_others(world: World, host: str) -> None:
    world.skill(f"{WHERE[host]}/probe", body=BODY)
    world.skill(f"{WHERE['omp']}/group/absent", body=BODY)
    skills = world.discover(host, settings=SETTINGS.get(host, {}))
    others = [message for name, called in CALLED.items() if name != "standard" for message in called]
    for message in (*CALLED[host], *(() if host == "standard" else (*others, *TEXT))):
        session = skills.session()
        called = session.invoke(message)
        rest = CALLED[host].get(message)
        assert called.skill == (None if rest is None else skills["probe"]), message
        assert (called.message, called.ambiguous) == (message if rest is None else rest, ()), message
        if rest is None or host == "remcochat":
            assert (called.loaded, session.activated) == (None, [] if rest is None else ["probe"])
