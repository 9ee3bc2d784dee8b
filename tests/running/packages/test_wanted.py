"""What a script needs, by what is declared and by its imports. Nothing here asks an index."""

import pytest

from metier.files.tree import SkillTree, TreeFile
from metier.running.packages.declared import declared, requirement
from metier.running.packages.inferred import distribution_of, inferred
from metier.running.packages.interpreters import fits
from metier.running.packages.programs import environment

NOT_TOML = "its PEP 723 header is not valid TOML; dependencies not installed"


def of(files: dict[str, str]) -> SkillTree:
    return SkillTree(tuple(TreeFile(path, text.encode()) for path, text in sorted(files.items())))


@pytest.mark.parametrize(
    ("header", "wanted", "note"),
    [
        ("# /// script\n# dependencies = ['b>1', 'a']\n# ///\n", ("a", "b>1"), None),
        (
            "#!/usr/bin/env python3\n# licence\n\n# /// script\n#\n# dependencies = [\n#   'a',\n# ]\n# ///\n",
            ("a",),
            None,
        ),
        ("# /// script\r\n# dependencies = ['a']\r\n# ///\r\n", ("a",), None),
        ("# /// script\n# dependencies = []\n# ///\nimport yaml\n", (), None),
        ("# /// script\n# dependencies = [\n# ///\n", (), NOT_TOML),
        ("# /// script\n# a = " + "[" * 20_000 + "\n# ///\n", (), NOT_TOML),
        ("# /// script\n# dependencies = 'a'\n# ///\n", (), "dependencies must be a list"),
    ],
)
def test_a_header_counts_before_everything_else(header: str, wanted: tuple[str, ...], note: str | None) -> None:
    found = declared(of({"scripts/a.py": header, "requirements.txt": "other\n"}), "scripts/a.py")
    assert found is not None
    assert (found.requirements, found.source) == (wanted, "its PEP 723 header")
    assert [note in one for one in found.notes] == ([True] if note else []) if note else not found.notes


@pytest.mark.parametrize(
    "text", ["# /// script\n# dependencies = ['a']\n", "# /// other\n# ///\n", "# /// script\n" * 400]
)
def test_what_is_no_header_does_not_count(text: str) -> None:
    assert declared(of({"scripts/a.py": text}), "scripts/a.py") is None


def test_the_nearest_file_counts_and_brings_no_index_address_or_path() -> None:
    lines = "--index-url https://evil.example\n-e .\ngit+https://x.example/y\n./local\nRequests>=2 # why\n-r more.txt\n"
    files = {
        "requirements.txt": "far\n",
        "scripts/requirements.txt": lines,
        "scripts/more.txt": "rich[extra]~=13.0 ; python_version < '4' --hash=sha256:00\nx --index-url https://evil\n",
        "pyproject.toml": "[project]\ndependencies = ['project']\nrequires-python = '>=3.12'\n",
        "scripts/deep/a.py": "",
    }
    found = declared(of(files), "scripts/deep/a.py")
    assert found is not None
    assert found.requirements == ("Requests>=2", "rich[extra]~=13.0 ; python_version < '4'")
    assert found.source == "scripts/requirements.txt"
    (note,) = found.notes
    assert note == f"{found.source} has the option '--index-url https://evil.example', which does not count"
    assert [entry.rpartition("asks for ")[2] for entry in found.refused] == [
        "'-e .'",
        "'git+https://x.example/y'",
        "'./local'",
        "'x --index-url https://evil'",
    ], "each address, path and option behind a name is named"
    del files["scripts/requirements.txt"], files["requirements.txt"]
    found = declared(of(files), "scripts/deep/a.py")
    assert found is not None
    assert (found.requirements, found.source, found.python) == (("project",), "pyproject.toml", ">=3.12")


@pytest.mark.parametrize(
    "text",
    ["a @ https://x", "a --hash=x", "a; b -r c", "../a", "-r x", "a\nb", "a;", "https://x/a.whl", "", "a==1\x00"],
)
def test_what_an_installer_could_take_for_more_than_a_name_is_no_requirement(text: str) -> None:
    assert requirement(text) == ""


def test_imports_are_followed_through_modules_of_the_skill_and_named_as_distributions() -> None:
    files = {
        "scripts/a.py": "import os, yaml, shared\nfrom google.cloud import storage\nfrom . import beside\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import only_typing\n"
        "def late():\n    import cv2\ntry:\n    import PIL.Image\nexcept ImportError: pass\nimport lib.inner, bpy\n",
        "scripts/beside.py": "import docx\n",
        "lib/inner.py": "import sklearn.svm\n",
        "lib/__init__.py": "",
        "other/shared.py": "import requests\n",
        "scripts/unused.py": "import torch\n",
    }
    found = inferred(of(files), "scripts/a.py")
    assert found is not None
    assert found.requirements == (
        "google-cloud-storage",
        "opencv-python-headless",
        "pillow",
        "python-docx",
        "pyyaml",
        "requests",
        "scikit-learn",
    )
    assert found.inferred == found.requirements
    assert distribution_of("google.generativeai.types") == "google-generativeai"
    assert distribution_of("google") == ""
    assert inferred(of({"scripts/a.py": "def broken(:\n"}), "scripts/a.py") is None


@pytest.mark.parametrize(
    ("declared", "yes", "no"),
    [
        (">=3.10,<3.13", (3, 12, 9), (3, 13, 0)),
        ("~=3.11", (3, 13, 1), (4, 0, 0)),
        ("==3.11.*", (3, 11, 7), (3, 12, 0)),
        ("!=3.12.*, >=3.9", (3, 11, 0), (3, 12, 4)),
        (">3.10", (3, 11, 0), (3, 10, 0)),
    ],
)
def test_versions_of_python_are_compared_as_declared(declared: str, yes: tuple[int, ...], no: tuple[int, ...]) -> None:
    assert fits(yes, declared)
    assert not fits(no, declared)


def test_uv_is_given_the_index_of_pip_unless_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert environment("uv", "/home")["UV_INDEX_URL"] == "https://index.example/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")
    assert "UV_INDEX_URL" not in environment("uv", "/home")
