"""`metier profiles` and `metier doctor`."""

from calling import Run
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]


def test_profiles_lists_the_hosts_and_shows_the_rules_of_one(run: Run) -> None:
    assert [p["name"] for p in run("profiles", "--json").json][:3] == ["standard", "codelia", "omp"]
    assert run("profiles", "omp", "--json").json["name"] == "omp"
    assert "[discovery]" in run("profiles", "omp").out
    assert run("profiles", "standart").code == 2


def test_doctor_says_what_works_and_where_settings_come_from(mixed: World, run: Run) -> None:
    (mixed.project / ".metier").mkdir()
    (mixed.project / ".metier/config.toml").write_text("[catalog]\nmax_skills = 9\n")
    shown = run("doctor").out
    for expected in ("python", "bubblewrap", "cache", "catalog.max_skills", "5 found: 2 offered, 1 shadowed"):
        assert expected in shown
    assert run("doctor", "--json").json["settings"] == {
        "catalog.max_skills": str(mixed.project / ".metier/config.toml")
    }
