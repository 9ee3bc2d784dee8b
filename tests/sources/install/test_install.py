"""Installing a local skill: what policy decides, what is on disk afterwards, and what is recorded."""

import json
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.attack.hostile import zipped
from metier.errors import ConfigError, PolicyDenied, StoreError
from metier.policy.decide import Request
from metier.record.store import Draft, Frame
from metier.record.store.memory import MemoryStore
from metier.sources.install import InstallRequest, Offer
from metier.sources.install.fetch import INDEX
from sources.install.places import NO_DIGEST, OPEN, place
from sources.install.skillsite import Site, listener
from worlds import World

pytest_plugins = ["sources.install.install_fixtures"]


@pytest.mark.system
@pytest.mark.behaviour("R-051")
@pytest.mark.parametrize("permissions", [{}, {"profile": "read-only"}, {"ask": [{"tool": "skill_run"}]}])
def test_by_default_a_remote_install_is_refused_and_no_connection_is_tried(
    world: World, monkeypatch: pytest.MonkeyPatch, permissions: Mapping[str, object]
) -> None:
    def tried(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    with listener() as knocks:
        url = f"http://127.0.0.1:{knocks.port}"
        monkeypatch.setattr(socket, "getaddrinfo", tried)
        monkeypatch.setattr(socket, "create_connection", tried)
        here = place(world, permissions, approve=lambda _: True)
        for source in (url, f"{url}/x.zip", "https://skills.example.com", "https://skills.example.com/x.skill"):
            assert here.refused(source, "x") == "denied"
        monkeypatch.undo()
        assert knocks.count() == 0
    assert [frame["reason"] for frame in here.record()] == ["PolicyDenied"] * 4


@pytest.mark.system
def test_where_a_rule_asks_each_host_is_asked_about_once_and_a_no_ends_it(world: World, site: Site) -> None:
    site.offer("probe", zipped())
    asked: list[str] = []

    def answer(request: Request) -> bool:
        asked.append(request.path)
        return len(asked) > 1

    here = place(world, {"ask": [{"tool": "install"}]}, answer)
    assert here.refused(site.url, "probe") == "denied"
    assert (asked, site.connections) == ([f"{site.url}{INDEX}"], 0)
    here.take(site.url, "probe")
    assert len(asked) == 2
    assert place(world, {"ask": [{"tool": "install"}]}).refused(site.url, "probe") == "denied"


@pytest.mark.system
def test_a_redirect_is_judged_by_policy_like_the_first_address(world: World, site: Site) -> None:
    site.pages["/private/x.zip"] = zipped()
    site.redirect("/public/x.zip", "/private/x.zip")
    rules = {"allow": [{"tool": "install"}], "deny": [{"tool": "install", "path": "*/private/*"}]}
    assert place(world, rules).refused(f"{site.url}/public/x.zip") == "denied"
    assert site.asked == ["/public/x.zip"]


@pytest.mark.system
def test_a_rule_for_one_place_or_name_opens_and_closes_just_that(world: World, site: Site) -> None:
    site.offer("probe", zipped())
    elsewhere = place(world, {"allow": [{"tool": "install", "path": "https://skills.example.com/*"}]})
    assert elsewhere.refused(site.url, "probe") == "denied"
    assert site.connections == 0
    site.pages["/x.zip"] = zipped()
    rules = {**OPEN, "deny": [{"tool": "install", "skill_name": "probe"}]}
    assert place(world, rules).refused(f"{site.url}/x.zip") == "denied", "though the name comes out later"
    for rules in ({"allow": [{"tool": "install", "path": f"{site.url}/*"}]}, {"profile": "full-auto"}):
        assert place(world, rules).take(site.url, "probe", replace=True).name == "probe"


def test_a_local_source_needs_no_rule_but_obeys_one_and_the_answer(world: World) -> None:
    source = world.skill("probe", version="1.0").parent
    deny, named = {"deny": [{"tool": "install"}]}, {"deny": [{"tool": "install", "skill_name": "probe"}]}
    for rules in (deny, named, {"profile": "read-only"}, {"ask": [{"tool": "install"}]}):
        assert place(world, rules, lambda _: False).refused(source, lenient=True) == "denied"
    here = place(world)
    with pytest.raises(Exception, match="`version` is not part of the standard"):
        here.take(source)
    world.skill("probe")
    world.skill("~/.agents/skills/other")

    def answer(yes: bool) -> str:
        def look(_: Offer) -> bool:
            assert [skill.name for skill in world.discover()] == ["other"], "nothing is there before the answer"
            return yes

        return here.installer.install(InstallRequest(str(source)), look).tree

    with pytest.raises(PolicyDenied, match="the answer was no"):
        answer(False)
    assert not (world.home / ".agents/skills/probe").exists()
    assert here.refused(source, digest=NO_DIGEST) == "digest"
    tree = answer(True)
    assert here.take(source, digest=tree, replace=True).tree == tree


# --- on disk ---


def test_nothing_is_overwritten_unless_asked_for(world: World) -> None:
    world.skill("probe", body="one")
    here = place(world)
    first = here.take(world.project / "probe")
    world.skill("probe", body="two")
    assert here.refused(world.project / "probe") == "exists"
    assert (here.skills / "probe/SKILL.md").read_text().endswith("one")
    (here.skills / "probe/own-notes.md").write_text("x")
    here.take(world.project / "probe", replace=True)
    assert (here.skills / "probe/SKILL.md").read_text().endswith("two")
    assert os.listdir(here.skills / "probe") == ["SKILL.md"]
    assert here.record()[-1]["replaced"] == first.tree


class FullStore(MemoryStore):
    """A memory store that has no space for the event of an install once it is `full`."""

    full = False

    def append(
        self, session_id: str, stream_kind: str, stream_id: str, drafts: Iterable[Draft], *rest: Any, **given: Any
    ) -> list[Frame]:
        found = list(drafts)
        if self.full and found[0].type == "skill_installed":
            raise StoreError("no space", reason="full")
        return super().append(session_id, stream_kind, stream_id, found, *rest, **given)


@pytest.mark.parametrize("before", [True, False])
def test_what_fails_at_the_last_step_leaves_everything_as_it_was(world: World, before: bool) -> None:
    world.skill("probe", body="one")
    sink = FullStore()
    here = place(world, sink=sink)
    if before:
        here.take(world.project / "probe")
    folder = world.home / ".agents"
    was = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    world.skill("probe", body="two")
    sink.full = True
    with pytest.raises(StoreError):
        here.take(world.project / "probe", replace=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == was
    assert [f.problems for f in here.installer.verify()] == ([()] if before else [])


def test_a_project_gets_its_own_and_its_lock_file_names_no_folder_of_a_person(world: World, tmp_path: Path) -> None:
    here = place(world)
    world.skill("vendor/one")
    elsewhere = tmp_path / "elsewhere/two"
    World(world.home, tmp_path / "elsewhere").skill("two")
    here.take(world.project / "vendor/one", project=True)
    here.take(elsewhere, project=True)
    assert (world.project / ".agents/skills/one/SKILL.md").is_file()
    text = (world.project / ".agents/skills.lock.json").read_text()
    assert {name: one["source"] for name, one in json.loads(text)["skills"].items()} == {
        "one": "vendor/one",
        "two": "two",
    }
    assert str(tmp_path) not in text
    assert [finding.name for finding in here.installer.verify(project=True)] == ["one", "two"]


def test_a_project_whose_folder_leads_elsewhere_gets_nothing(world: World, tmp_path: Path) -> None:
    world.skill("probe")
    (tmp_path / "outside").mkdir()
    (world.project / ".agents").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="a link that leaves the project"):
        place(world).take(world.project / "probe", project=True)
    assert os.listdir(tmp_path / "outside") == []
