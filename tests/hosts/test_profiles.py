"""Profiles of the user's own, the layers of configuration, and errors that say which key, where, and what is right."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from metier import ConfigError
from metier.hosts import profiles, settings
from metier.hosts.profiles import BUILT_IN, Profile
from metier.hosts.trust import trust
from metier.surfaces.cli import cli
from worlds import World

SKILLS = ".agents/skills"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_profile(text: str, name: str = "own.toml") -> str:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(file)

    return write_profile


def built(name: str) -> Profile:
    return profiles.build(profiles.load(name))


def test_a_profile_of_ones_own_extends_another_and_decides_what_is_found(world: World, write: Any) -> None:
    for name in BUILT_IN:
        profile = built(name)
        assert (profile.name, bool(profile.summary), bool(profile.roots or profile.directories)) == (name, True, True)
    world.skill("prompts/skills/a")
    root = 'path = "prompts/skills"\nat = "project"\nscope = "repo"\nsource = "ours"'
    write(f'extends = "omp"\nsummary = "base"\n[filters]\nignore = ["x"]\n[[roots]]\n{root}\n', "sub/base.toml")
    text = 'extends = "./base.toml"\nsummary = "ours"\n[catalog]\nmax_skills = 7\n[project]\nmarkers = [".svn"]\n'
    file = write(text, "sub/own.toml")
    own, omp = built(file), built("omp")
    assert (own.name, own.summary, own.filters.ignore) == ("own", "ours", ("x",))
    assert (own.catalog.max_skills, own.catalog.honours) == (7, omp.catalog.honours), "tables merge"
    assert own.project.markers == (".svn",), "lists replace"
    assert [(s.name, s.source) for s in world.discover(profile=file)] == [("a", "ours")]


WRONG: list[tuple[str, int, str, str]] = [
    # the profile, the line, the key, what the message says
    ('summary = "x"\n\n[discovery]\nmax_deph = 3\n', 4, "discovery.max_deph", "did you mean discovery.max_depth?"),
    ('sumary = "x"\n', 1, "sumary", "did you mean summary?"),
    ('summary = "x"\n[discovry]\ndepth = 1\n', 2, "discovry", "did you mean discovery?"),
    ('summary = "x"\n[catalog]\norder = "size"\n', 3, "catalog.order", "one of 'name', 'folded-name', 'found'"),
    ('summary = "x"\n[catalog]\nmax_skills = "many"\n', 3, "catalog.max_skills", "a whole number"),
    ('summary = "x"\n[catalog]\nmax_skills = 1.5\n', 3, "catalog.max_skills", "a whole number"),
    ('summary = "x"\n[catalog]\nmax_skills = true\n', 3, "catalog.max_skills", "a whole number"),
    ('summary = "x"\nenabled = "perhaps"\n', 2, "enabled", "true or false"),
    ('summary = "x"\ndiscovery = 3\n', 2, "discovery", "a table"),
    ('summary = "x"\n[filters]\nignore = "x"\n', 3, "filters.ignore", "a list"),
    ('summary = "x"\n[filters]\nignore = ["a", 3]\n', 3, "filters.ignore[1]", "text"),
    ('summary = "x"\n[toggles]\na = "maybe"\n', 3, "toggles.a", "true or false"),
    ('summary = "x"\n[[roots]]\npath = "a"\n', 0, "", "must be given"),
]


def test_a_wrong_key_or_value_is_named_with_its_line_and_what_would_be_right(write: Any) -> None:
    for text, line, key, says in WRONG:
        file = write(text)
        with pytest.raises(ConfigError) as error:
            built(file)
        assert says in str(error.value)
        assert not line or (error.value.file, error.value.line, error.value.key) == (file, line, key)
        assert not line or str(error.value).startswith(f"{file}:{line}: ")


UNREADABLE: list[tuple[str | bytes, int, str]] = [
    ("a = \n", 1, "is not TOML"),
    ("a = 1\nb = [1,\n", 3, "is not TOML"),
    ("a = 1\na = 2\n", 2, "is not TOML"),
    ('a = 1\n\nb = "x\n', 3, "is not TOML"),
    ("a = 1\n\x00", 2, "is not TOML"),
    (b'summary = "x"\n# \xff\n', 2, "not UTF-8"),
    ("a = " + "[" * 100_000, 0, "own.toml"),
    ('extends = 3\nsummary = "x"\n', 0, "must be the name"),
    ('extends = "nowhere.toml"\nsummary = "x"\n', 0, "no profile file"),
    ('extends = "omq"\nsummary = "x"\n', 0, "did you mean omp"),
    ('extends = "./own.toml"\nsummary = "x"\n', 0, "extends itself"),
]
ABSENT = {
    "nowhere.toml": "there is no profile file",
    "./nowhere.toml": "there is no profile file",
    "standart": "did you mean standard?",
    "qqq": "known: standard, codelia",
    "": "there is no profile ''",
}


def test_a_profile_that_cannot_be_read_is_an_error_with_its_line_or_a_way_out(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    for content, line, says in UNREADABLE:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(ConfigError, match=says) as error:
            profiles.load(str(file))
        assert not line or (error.value.file, error.value.line) == (str(file), line)
    for name, says in ABSENT.items():
        with pytest.raises(ConfigError) as error:
            profiles.load(name)
        assert says in str(error.value)


def test_each_layer_outranks_those_below_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    user = world.home / ".config/metier/config.toml"
    project = world.project / ".metier/config.toml"
    pyproject = world.project / "pyproject.toml"
    for file in (user, project):
        file.parent.mkdir(parents=True)

    def now(**given: Any) -> tuple[str, bool, str, str]:
        found = settings.resolve(world.project, home=world.home, **given)
        origins = found.origins
        return (found.profile.name, found.profile.enabled, origins.get("profile", ""), origins.get("enabled", ""))

    assert now() == ("standard", True, "", "")
    user.write_text('profile = "codelia"\nenabled = false\n')
    assert now() == ("codelia", False, str(user), str(user))
    project.write_text('profile = "omp"\n')
    pyproject.write_text('[tool.metier]\nprofile = "rip"\nenabled = true\n')
    assert now() == ("codelia", False, str(user), str(user)), "an untrusted project sets nothing"
    pyproject.unlink()
    trust(str(user.parent), str(world.project))
    assert now() == ("omp", False, str(project), str(user))
    pyproject.write_text('[tool.metier]\nprofile = "rip"\nenabled = true\n')
    trust(str(user.parent), str(world.project))
    assert now() == ("rip", True, str(pyproject), str(pyproject))
    monkeypatch.setenv("METIER_PROFILE", "standard")
    monkeypatch.setenv("METIER_ENABLED", "false")
    assert now() == ("standard", False, "environment", "environment")
    assert now(profile="omp", overrides={"enabled": True}) == ("omp", True, "argument", "argument")


def test_the_desktops_folders_are_used_where_no_home_is_given(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(world.home / "conf"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    found = settings.resolve(world.project)
    assert found.config_folder == str(world.home / "conf" / "metier")
    assert found.cache_folder == str(world.home / ".cache" / "metier")
    assert settings.resolve(world.project, home=world.home).config_folder == str(world.home / ".config" / "metier")


@pytest.mark.parametrize(
    ("where", "text", "says"),
    [
        ("home/.config/metier/config.toml", "[catalog]\nmax_skils = 3\n", ":2: unknown key catalog.max_skils (did"),
        ("home/.config/metier/config.toml", "store_days = -1\n", "store_days must be a whole number, 0 or more"),
        ("home/.config/metier/config.toml", "[mcp]\ndescription_chars = -1\n", "must be a whole number, 0 or more"),
        ("home/.config/metier/config.toml", "[mcp]\nserver = 1\n", "unknown key mcp.server (did you mean mcp.servers"),
        ("home/.config/metier/config.toml", "check = ['codex']\n", ":1: check must be a table"),
        ("project/.metier/config.toml", "\nprofil = 'omp'\n", ":2: unknown key profil"),
        ("project/.metier/config.toml", "profile = 3\n", "profile must be text"),
        ("project/.metier/config.toml", "cache = 'perhaps'\n", "cache must be true or false"),
        ("project/.metier/config.toml", "cache = \n", ":1: is not TOML"),
        ("project/pyproject.toml", "[tool.metier.catalog]\nmax_skills = 'x'\n", ":2: catalog.max_skills must be"),
        pytest.param(
            "project/pyproject.toml", "[tool.metier]\ncatalog.max_skills = 'x'\n", ":2: catalog.max_skills must be",
        ),
        ("project/pyproject.toml", "[tool]\nmetier = 3 # tool.metier\n", "[tool.metier] must be a table"),
        ("project/.metier/config.toml", "profile = 'nowhere'\n", "there is no profile 'nowhere'"),
    ],
)  # fmt: skip
def test_a_broken_configuration_is_exit_code_2_with_its_place(world: World, where: str, text: str, says: str) -> None:
    file = world.home.parent / where
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        settings.resolve(world.project, home=world.home)
    assert says in str(error.value)
    assert error.value.exit_code == 2
    if "no profile" not in says:
        assert error.value.file == str(file)
    result = CliRunner().invoke(cli, ["--cwd", str(world.project), "--home", str(world.home), "list"])
    assert isinstance(result.exception, ConfigError)


def test_an_argument_or_variable_that_is_wrong_says_who_set_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"did you mean catalog\.max_skills"):
        world.discover(settings={"catalog": {"max_skils": 3}})
    monkeypatch.setenv("METIER_ENABLED", "perhaps")
    with pytest.raises(ConfigError, match=r"enabled must be true or false, not 'perhaps' \(set by environment"):
        world.discover()


def test_settings_may_be_nested_or_dotted_and_are_found_from_below(world: World) -> None:
    (world.project / "pyproject.toml").write_text("this is = = not TOML")  # that of others is none of our business
    for given in ({"catalog": {"max_skills": 3}}, {"catalog.max_skills": 3}, {"catalog.max_skills": "3"}):
        found = settings.resolve(world.project, home=world.home, overrides=given)
        assert found.profile.catalog.max_skills == 3
        assert found.origins["catalog.max_skills"] == "argument"
    world.configure("[catalog]\nmax_skills = 4\n")
    below = world.project / "a/b"
    below.mkdir(parents=True)
    assert settings.resolve(below, home=world.home).profile.catalog.max_skills == 4
    world.skill(f"{SKILLS}/a")
    off = world.discover(settings={"enabled": False})
    assert (len(off), off.roots, off.counts.found) == (0, (), 0)
    with pytest.raises(ConfigError, match="does not exist"):
        world.discover(cwd=world.project / "nowhere")
