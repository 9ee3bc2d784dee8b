"""The folders that are watched: which of them are forgotten with a folder above them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metier.catalog.watched_folders import WatchedFolders, _at_or_below

PATHS = st.lists(st.sampled_from(("a", "b", "ab", "a-b")), min_size=1, max_size=5).map(
    lambda parts: f"/{'/'.join(parts)}"
)


@given(st.lists(PATHS, max_size=12), st.frozensets(PATHS, max_size=4))
def test_the_paths_in_a_folder_are_those_whose_names_begin_with_it(paths: list[str], folders: frozenset[str]) -> None:
    inside = [path for path in paths if any(f"{path}/".startswith(f"{folder}/") for folder in folders)]
    assert _at_or_below(paths, folders) == inside


def test_what_is_known_of_a_parent_holds_for_all_that_have_it() -> None:
    paths = ["/s/a", "/s/a/x/1", "/s/a/x/2", "/s/a/y", "/s/b/x/1", "/s/b/x/2", "/s/ab", "/s"]
    assert _at_or_below(paths, {"/s/a"}) == ["/s/a", "/s/a/x/1", "/s/a/x/2", "/s/a/y"]
    assert _at_or_below(paths, {"/s/b/x"}) == ["/s/b/x/1", "/s/b/x/2"]
    assert _at_or_below(paths, {"/s"}) == paths
    assert _at_or_below(paths, {"/other"}) == []


def test_a_folder_that_moved_is_forgotten_with_all_below_it_and_can_be_watched_again(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    folders = [str(tmp_path / name) for name in ("a", "a/x", "a/x/deep", "ab", "b/x")]
    for folder in folders:
        Path(folder).mkdir(parents=True)
    watches = WatchedFolders()
    try:
        assert watches.follow(folders) == set(folders)
        watches.forget({str(tmp_path / "a"), str(tmp_path / "unknown")})
        assert len(watches) == 2
        watches.follow(folders)
        assert len(watches) == 5
    finally:
        watches.close()
