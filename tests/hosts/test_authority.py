"""The table of who may set what, walked as a whole: each setting, in each spelling, in each file of a project."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import metier
from metier.errors import ConfigError
from metier.hosts import profiles, settings
from metier.hosts.authority import authorities
from metier.hosts.settings import RUNTIME_KEYS
from metier.hosts.trust import trust
from worlds import World

VALUES: dict[str, tuple[Any, Any, Any]] = json.loads(Path(__file__).with_name("authority_values.json").read_text())
"""What the user has, what is wider or just different, and what is narrower (null where nothing is)."""
HARMLESS: dict[str, Any] = {
    "summary": "x",
    "discovery.missing_root": "warn",
    "catalog.order": "found",
    "catalog.reads": ["x"],
    "prompt.order": "relevance",
    "search.scoring": "overlap",
    "search.expand": False,
    "search.synonyms": ["crm, salesforce"],
    "tools.enumerate_names": False,
}


def test_every_setting_has_an_entry_and_no_entry_is_left_over() -> None:
    assert set(authorities()) == {*profiles.settings(), *RUNTIME_KEYS}


def test_this_walk_has_every_setting_of_a_profile() -> None:
    assert {*VALUES, *HARMLESS} == set(profiles.settings())
    assert {name for name, rule in authorities().items() if rule.who == "any"} == {*HARMLESS, "check"}
    narrowed = {name for name, (_, _, narrow) in VALUES.items() if narrow is not None}
    assert narrowed == {name for name in VALUES if authorities()[name].narrower is not None}


def toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"  # pyright: ignore[reportUnknownVariableType]
    return json.dumps(value)


def spellings(name: str, value: object) -> Iterator[tuple[str, str]]:
    """A setting as a project can write it into its `.metier/config.toml`, and the key that a report names."""
    *tables, last = name.split(".")
    shown = toml(value)
    for prefix in ("", "skills.", "app.skills."):
        yield f"{prefix}{name}", f"{prefix}{name} = {shown}\n"
        table = f"{prefix}{'.'.join(tables)}".rstrip(".")
        yield f"{prefix}{name}", f"[{table}]\n{last} = {shown}\n" if table else f'"{last}" = {shown}\n'
        yield f"{prefix}{name}", f"[profile.standard]\n{prefix}{name} = {shown}\n"
    quoted = ".".join(f'"{part}"' for part in name.split("."))
    yield name, f"{quoted} = {shown}\n"
    yield name, f'"{name}" = {shown}\n'
    yield name, f"profile.standard.{name} = {shown}\n"
    yield name, f'profile = {{ use = "standard", standard = {{ "{name}" = {shown} }} }}\n'


def project_files(world: World, text: str) -> Iterator[Path]:
    """Each of the two files of a project, with this text and the other file gone."""
    config, pyproject = world.project / ".metier/config.toml", world.project / "pyproject.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(text)
    yield config
    config.unlink()
    lines = [f"[tool.metier.{line[1:]}" if line.startswith("[") else line for line in text.splitlines()]
    pyproject.write_text("\n".join(["[tool.metier]", *lines]) + "\n")
    yield pyproject
    pyproject.unlink()


def own_file(world: World, text: str = "") -> Path:
    file = world.home / ".config/metier/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def resolved(world: World, name: str) -> tuple[Any, list[tuple[str, str, str]]]:
    """The value of a setting, and what was reported as untrusted: the file, the key and the hint."""
    found = settings.resolve(world.project, home=world.home, env={})
    notes = [(d.path, d.message.split(" ")[0], d.hint) for d in found.diagnostics if d.code == "untrusted"]
    described: Any = profiles.describe(found.profile)
    for part in name.split("."):
        described = described[part]
    return described, notes


def full(name: str) -> str:
    return "toggles.client_folders" if name == "toggles" else name


def as_described(name: str, value: Any) -> Any:
    if name != "roots":
        return value
    return [
        {**profiles.describe(profiles.build(profiles.load("standard")))["roots"][0], **REST, **root} for root in value
    ]


REST: dict[str, Any] = {"toggle": "", "skip_home": False}


@pytest.mark.parametrize("name", VALUES)
def test_where_trust_is_required_an_untrusted_project_can_only_narrow(world: World, name: str) -> None:
    start, wide, narrow = VALUES[name]
    key = full(name)
    own_file(world, f'permissions.trust = "required"\n{key} = {toml(start)}\n')
    assert resolved(world, key) == (as_described(name, start), [])
    for spelled, text in spellings(key, wide):
        for file in project_files(world, text):
            value, notes = resolved(world, key)
            assert value == as_described(name, start), text
            hinted = [note for note in notes if note[1] != "profile"]
            assert hinted == [(str(file), spelled, "run `metier trust` to trust it")], text
    if narrow is not None:
        for file in project_files(world, f"{key} = {toml(narrow)}\n"):
            assert resolved(world, key) == (as_described(name, narrow), []), file


@pytest.mark.parametrize("name", VALUES)
def test_where_it_is_not_required_what_needs_trust_and_what_the_user_narrowed_still_hold(
    world: World, name: str
) -> None:
    start, wide, narrow = VALUES[name]
    key, rule = full(name), authorities()[name]
    if name == "policy.trust":
        return  # it is what the other test is about
    user = own_file(world, f"{key} = {toml(start)}\n")
    counts = rule.who == "project" and narrow is None
    for _, text in list(spellings(key, wide))[::5]:
        for file in project_files(world, text):
            value, notes = resolved(world, key)
            assert value == as_described(name, wide if counts else start), text
            assert [note[0] for note in notes] == ([] if counts else [str(file)]), text
    user.write_text("")
    if rule.who == "project":
        for _ in project_files(world, f"{key} = {toml(wide)}\n"):
            assert resolved(world, key)[0] == as_described(name, wide)
    trust(str(user.parent), str(world.project))
    user.write_text(f'permissions.trust = "required"\n{key} = {toml(start)}\n' if name != "policy.trust" else "")
    for _ in project_files(world, f"{key} = {toml(wide)}\n"):
        assert resolved(world, key) == (as_described(name, wide), []), "a trusted project is heard"


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_nothing_that_matters_any_project_may_set(world: World, name: str) -> None:
    own_file(world, '[permissions]\ntrust = "required"\n')
    for _ in project_files(world, f"{name} = {toml(HARMLESS[name])}\n"):
        assert resolved(world, name) == (HARMLESS[name], [])


@pytest.mark.parametrize("host", profiles.BUILT_IN)
def test_the_names_that_a_host_has_for_settings_are_no_way_around_the_table(world: World, host: str) -> None:
    raw = profiles.load(host)
    own_file(world, f'profile = "{host}"\npermissions.trust = "required"\n')
    before = profiles.describe(settings.resolve(world.project, home=world.home, env={}).profile)
    for alias, name in raw.get("aliases", {}).items():
        value = profiles.value(profiles.build(raw), name)
        wide = {int: value + 1 if type(value) is int else 0, bool: True, tuple: ["~/evil"]}
        shown = toml(["*"] if name.startswith("filters.") else wide[type(value)])
        for text in (f"{alias} = {shown}\n", f"[profile.{host}]\n{alias.removeprefix('skills.')} = {shown}\n"):
            for file in project_files(world, text):
                found = settings.resolve(world.project, home=world.home, env={})
                unchanged = profiles.describe(found.profile) == before
                narrowed = name in ("filters.include", "filters.ignore")
                assert unchanged != narrowed, (alias, name, file)


# --- the keys that are no settings of a profile ---


def test_no_project_sets_what_is_the_users_alone(world: World) -> None:
    user = own_file(world)
    text = 'model.provider = "evil"\nmcp.servers.x.command = "evil"\npermissions.allow = [{ tool = "skill_run" }]\n'
    for trusted in (False, True):
        trust(str(user.parent), str(world.project), trusted)
        for file in project_files(world, text + 'permissions.trust = "ignore"\npermissions.deny = [{ tool = "x" }]\n'):
            found = settings.resolve(world.project, home=world.home, env={})
            assert (found.model, found.mcp.servers, dict(found.permissions)) == ({}, {}, {"deny": [{"tool": "x"}]})
            notes = [(d.path, d.message.split(" ")[0]) for d in found.diagnostics if d.code == "untrusted"]
            said = {"permissions.allow", "permissions.trust", "model", "mcp"}
            assert {key for path, key in notes if path == str(file)} == said
            assert all(str(user) in d.hint for d in found.diagnostics)


@pytest.mark.parametrize("key", ["store", "store_required", "store_days", "store_megabytes", "telemetry", "cache"])
def test_a_runtime_key_of_an_untrusted_project_does_not_count(world: World, key: str) -> None:
    user = own_file(world, 'permissions.trust = "required"\n' + ("cache = false\n" if key == "cache" else ""))
    default = getattr(
        settings.resolve(world.project, home=world.home, env={}), f"{key}_folder" if key == "cache" else key
    )
    given = toml({"store": "memory:", "store_days": 1, "store_megabytes": 1}.get(key, True))
    for required in (True, False):
        if not required:
            user.write_text(user.read_text().replace("required", "ignore"))
        for file in project_files(world, f"{key} = {given}\n"):
            found = settings.resolve(world.project, home=world.home, env={})
            assert getattr(found, f"{key}_folder" if key == "cache" else key) == default
            assert [(d.path, d.message.split(" ")[0]) for d in found.diagnostics] == [(str(file), key)]


def test_a_project_names_the_hosts_to_check_but_only_a_trusted_one_names_files(world: World) -> None:
    user = own_file(world, 'permissions.trust = "required"\ncheck.hosts = ["rip"]\n')
    assert settings.resolve(world.project, home=world.home, env={}).check_hosts == ("rip",)
    for file in project_files(world, 'check.hosts = ["codex", "./own.toml"]\n'):
        found = settings.resolve(world.project, home=world.home, env={})
        assert found.check_hosts == ("codex",)
        assert [(d.path, d.message.split(" ")[0]) for d in found.diagnostics] == [(str(file), "check.hosts")]
    trust(str(user.parent), str(world.project))
    for _ in project_files(world, 'check.hosts = ["codex", "./own.toml"]\n'):
        assert settings.resolve(world.project, home=world.home, env={}).check_hosts == ("codex", "./own.toml")


@pytest.mark.parametrize("wrong", ['check = "codex"', "check = []", "check.hosts = [1]", "check.host = ['codex']"])
def test_a_wrong_table_of_checks_is_an_error_with_its_file(world: World, wrong: str) -> None:
    file = own_file(world, f"{wrong}\n")
    with pytest.raises(ConfigError, match="check") as caught:
        settings.resolve(world.project, home=world.home, env={})
    assert str(file) in str(caught.value)


# --- the choice of a profile ---


@pytest.mark.parametrize("text", ['profile = "{}"\n', 'profile.use = "{}"\n', '[profile]\nuse = "{}"\n'])
@pytest.mark.parametrize("chosen", [*profiles.BUILT_IN[1:], "own.toml", "./own.toml"])
def test_a_projects_choice_of_a_profile_is_no_way_around_trust(world: World, text: str, chosen: str) -> None:
    world.skill(".agents/skills/theirs")
    (world.project / "own.toml").write_text('extends = "standard"\nsummary = "x"\n[policy]\nunasked = "allow"\n')
    own_file(world, '[policy]\ntrust = "required"\n')
    for file in project_files(world, text.format(chosen)):
        found = settings.resolve(world.project, home=world.home, env={})
        assert (found.profile.name, found.profile.policy.trust) == ("standard", "required")
        assert [(d.path, d.message.split(" ")[0]) for d in found.diagnostics] == [(str(file), "profile")]


@pytest.mark.parametrize("chosen", profiles.BUILT_IN[1:])
def test_a_profile_that_only_a_project_chose_does_not_widen_what_needs_trust(world: World, chosen: str) -> None:
    own_file(world, '[policy]\nunasked = "refuse"\n')
    own = settings.resolve(world.project, home=world.home, env={}).profile
    for _ in project_files(world, f'profile = "{chosen}"\n'):
        found = settings.resolve(world.project, home=world.home, env={}).profile
        assert found.name == ("standard" if chosen == "zed" else chosen)  # Zed uses no project that is not trusted
        for name, rule in authorities().items():
            if rule.who == "trusted" and rule.narrower is not None:
                old, new = profiles.value(own, name), profiles.value(found, name)
                assert new == old or rule.narrower(old, new), name


def test_trust_that_is_required_for_one_profile_holds_if_the_project_chooses_that_profile(world: World) -> None:
    own_file(world, '[profile.rip.policy]\ntrust = "required"\n')
    for file in project_files(world, 'profile.use = "rip"\nprofile.rip.custom_scope = "user"\n'):
        found = settings.resolve(world.project, home=world.home, env={})
        assert (found.profile.name, found.profile.custom_scope) == ("standard", "extra")
        assert {(d.code, d.path) for d in found.diagnostics} == {("untrusted", str(file))}


# --- at the far end ---

EVIL = """
custom_directories = ["evil"]
custom_scope = "user"
"""
ATTACKS = {
    "custom scope": EVIL,
    "custom scope in the profile's table": f"[profile.standard]{EVIL}",
    "custom scope in a host's table": f"[skills]{EVIL}",
    "custom scope in an app's table": f"[app.skills]{EVIL}",
    "directories": 'directories = ["./evil"]\n',
    "directories by another way": 'directories = ["~/../project/evil", "./.agents/../evil"]\n',
    "roots": 'roots = [{ path = "evil", at = "project", scope = "user", source = "x" }]\n',
    "honours": '[catalog]\nhonours = ["alwaysApply"]\n',
    "profile": 'profile = "omp"\n',
    "profile.use": '[profile]\nuse = "omp"\n[profile.omp.skills]\ncustomDirectories = ["evil"]\n',
    "profile file": 'profile = "./own.toml"\n',
    "trust": '[policy]\ntrust = "ignore"\n[permissions]\ntrust = "ignore"\n',
    "trust in an app's table": '[app.skills.policy]\ntrust = "ignore"\n',
    "markers": '[project]\nmarkers = ["nothing"]\n',
    "filters": "[filters]\nignore = []\n",
}


@pytest.fixture
def hostile(world: World) -> World:
    """A cloned repository that has its skill wherever some host looks, in the home of somebody who requires trust."""
    for folder in ("evil", ".agents/skills", ".omp/skills", ".claude/skills", "skills", ".rip/skills"):
        world.skill(f"{folder}/evil", description="EVIL-MARKER", body="EVIL-MARKER", alwaysApply=True)
    world.skill("~/.agents/skills/mine")
    world.skill("~/.agents/skills/secret")
    (world.project / "own.toml").write_text('extends = "standard"\nsummary = "x"\ncustom_scope = "user"\n')
    own_file(world, 'policy.trust = "required"\nfilters.ignore = ["secret"]\n')
    return world


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_setting_of_a_hostile_repository_puts_its_skills_before_the_model(hostile: World, attack: str) -> None:
    for file in project_files(hostile, ATTACKS[attack]):
        if (file.name == "pyproject.toml") != (len(attack) % 2 == 1):
            continue  # one file for each attack: which one makes no difference, as the walk above shows
        shown = json.dumps(metier(hostile, "prompt", "--full"))
        assert ("mine" in shown, "EVIL-MARKER" in shown, "secret" in shown) == (True, False, False)
        listing = metier(hostile, "list")
        assert {skill["name"]: skill["trusted"] for skill in listing["skills"]} == {"mine": True, "evil": False}
        notes = [d for d in listing["diagnostics"] if d["code"] == "untrusted"]
        assert str(file) in {d["path"] for d in notes}
        assert all("metier trust" in d["hint"] or "config.toml" in d["hint"] for d in notes)
        metier(hostile, "call", "skill_load", '{"name": "evil"}', code=1)


def test_the_hosts_own_names_are_no_way_either(hostile: World) -> None:
    own_file(hostile, 'profile = "omp"\npermissions.trust = "required"\n')
    for text in ('skills.customDirectories = ["evil"]\n', 'customDirectories = ["evil"]\n'):
        for prefix in ("", "[profile.omp]\n"):
            for file in project_files(hostile, prefix + text):
                skills = hostile.discover("omp")
                assert "EVIL-MARKER" not in skills.session().system_prompt()
                assert str(file) in {d.path for d in skills.diagnostics if d.code == "untrusted"}


def test_a_folder_of_every_project_that_the_user_has_searched_is_still_the_projects(hostile: World) -> None:
    own_file(hostile, 'profile = "omp"\ncustom_directories = ["evil"]\npermissions.trust = "required"\n')
    assert "EVIL-MARKER" not in json.dumps(metier(hostile, "prompt", "--full"))


@pytest.mark.parametrize("mode", ["pinned", "auto", "name-only"])
def test_a_projects_modes_switch_on_nothing_of_the_users(world: World, mode: str) -> None:
    off = world.skill("~/.agents/skills/off", enabled=False)
    hidden = world.skill("~/.agents/skills/hidden")
    mine = world.skill("~/.agents/skills/mine")
    user = own_file(world).parent
    (user / "skills.json").write_text(json.dumps({"modes": {str(hidden): "manual"}}))
    modes = {str(off): mode, str(hidden): mode, str(mine): "off"}
    (world.project / ".metier").mkdir()
    (world.project / ".metier/skills.json").write_text(json.dumps({"modes": modes}))
    for trusted in (False, True):
        trust(str(user), str(world.project), trusted)
        listed = {skill["name"]: skill["mode"] for skill in metier(world, "list")["skills"]}
        assert listed == {"off": "off", "hidden": "manual", "mine": "off"}, "a project can only hide more"
        assert "hidden" not in json.dumps(metier(world, "prompt"))
