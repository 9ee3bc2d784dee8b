"""A catalog as JSON: nothing is lost."""

from dataclasses import replace

from metier.catalog import snapshot
from metier.catalog.build import Catalog, by_name
from metier.hosts import profiles
from metier.hosts.roots import Place
from metier.values.skill import Diagnostic, Root, Shadowed, Skill, Skipped

ROOT = Root(path="/r", scope="user", source="extra", priority=3, require_description=False, depth=2, explicit=True)


def skill(name: str) -> Skill:
    return Skill(
        name=name,
        description="Does it.",
        path=f"/r/{name}/SKILL.md",
        real_path=f"/real/{name}/SKILL.md",
        root=ROOT,
        mtime_ns=5,
        size=6,
        frontmatter={"name": name, "metadata": {"a": [1, "é"]}},
        model_invocable=False,
        user_invocable=False,
        mode="pinned",
        trusted=False,
    )


def catalog() -> Catalog:
    winner = skill("x")
    loser = replace(winner, path="/r/y/SKILL.md", root=Root(path="/other", scope="repo", source="repo"))
    return Catalog(
        profile=profiles.build(profiles.load("standard")),
        place=Place(cwd="/c", home="/h", project="/p", env={}),
        roots=(ROOT,),
        skills=(winner,),
        shadowed=(Shadowed(loser, winner, identical=True),),
        skipped=(Skipped("/s", "ignored", "why", "s"),),
        failed=("/f/SKILL.md",),
        diagnostics=(
            Diagnostic("a", "error", "m", path="/f", line=1, column=2, hint="h"),
            Diagnostic("b", "info", "m", reason="permission"),
        ),
        per_root={},
        truncated=True,
        by_name=by_name([winner]),
    )


def test_a_restored_catalog_is_the_one_that_was_dumped() -> None:
    one = catalog()
    other = snapshot.restore(snapshot.dump(one))
    assert snapshot.dump(other) == snapshot.dump(one)
    assert (other.place, other.skills, other.shadowed) == (one.place, one.skills, one.shadowed)
    assert (other.skipped, other.failed, other.diagnostics) == (one.skipped, one.failed, one.diagnostics)
    assert (other.truncated, other.by_name) == (one.truncated, one.by_name)
    assert other.roots == (*one.roots, one.shadowed[0].skill.root)
