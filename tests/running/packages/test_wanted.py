"""What a script needs, by what is declared and by its imports. Nothing here asks an index."""

import pytest

from metier.files.tree import SkillTree, TreeFile
from metier.running.packages.declared import declared
from metier.running.packages.inferred import inferred
from metier.running.packages.interpreters import fits


def of(files: dict[str, str]) -> SkillTree:
    return SkillTree(tuple(TreeFile(path, text.encode()) for path, text in sorted(files.items())))


BROKEN = ("# /// script\n# dependencies = [\n# ///\n", "# /// script\n# a = " + "[" * 20_000 + "\n# ///\n")
HEADERS = {
    "# /// script\n# dependencies = ['b>1', 'a']\n# ///\n": ("a", "b>1"),
    "#!/usr/bin/env python3\n\n# /// script\n#\n# dependencies = [\n#   'a',\n# ]\n# ///\n": ("a",),
    "# /// script\r\n# dependencies = ['a']\r\n# ///\r\n": ("a",),
    "# /// script\n# dependencies = []\n# ///\nimport yaml\n": (),
    "# /// script\n# dependencies = 'a'\n# ///\n": (),
    **dict.fromkeys(BROKEN, ()),
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_counts_before_everything_else(header: str) -> None:
    found = declared(of({"scripts/a.py": header, "requirements.txt": "other\n"}), "scripts/a.py")
    assert found is not None
    assert (found.requirements, found.source) == (HEADERS[header], "its PEP 723 header")
    assert bool(found.notes) is (header in BROKEN or "= 'a'" in header)


def test_the_nearest_file_counts_and_brings_no_index_address_or_path() -> None:
    lines = "--index-url https://evil.example\n-e .\ngit+https://x.example/y\n./local\nRequests>=2 # why\n-r more.txt\n"
    files = {
        "requirements.txt": "far\n",
        "scripts/requirements.txt": lines,
        "scripts/more.txt": "rich[extra]~=13.0 ; python_version < '4' --hash=sha256:00\nx --index-url https://evil\n",
        "pyproject.toml": "[project]\ndependencies = ['project']\nrequires-python = '>=3.12'\n",
        "scripts/deep/a.py": "# /// script\n# dependencies = ['no end']\n",
    }
    found = declared(of(files), "scripts/deep/a.py")
    assert found is not None
    assert found.requirements == ("Requests>=2", "rich[extra]~=13.0 ; python_version < '4'")
    assert found.source == "scripts/requirements.txt"
    assert len(found.notes) == 1
    assert "'--index-url https://evil.example', which does not count" in found.notes[0]
    entries = ["'-e .'", "'git+https://x.example/y'", "'./local'", "'x --index-url https://evil'"]
    assert [entry.rpartition("asks for ")[2] for entry in found.refused] == entries
    del files["scripts/requirements.txt"], files["requirements.txt"]
    found = declared(of(files), "scripts/deep/a.py")
    assert found is not None
    assert (found.requirements, found.source, found.python) == (("project",), "pyproject.toml", ">=3.12")


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
    names = "google-cloud-storage opencv-python-headless pillow python-docx pyyaml requests scikit-learn"
    assert found.requirements == found.inferred == tuple(names.split())
    assert inferred(of({"scripts/a.py": "def broken(:\n"}), "scripts/a.py") is None


@pytest.mark.parametrize(
    ("declared", "yes", "no"),
    [
        (">=3.10,<3.13", (3, 12, 9), (3, 13, 0)),
        ("~=3.11", (3, 13, 1), (4, 0, 0)),
        ("!=3.12.*, >=3.9", (3, 11, 0), (3, 12, 4)),
    ],
)
def test_versions_of_python_are_compared_as_declared(declared: str, yes: tuple[int, ...], no: tuple[int, ...]) -> None:
    assert fits(yes, declared)
    assert not fits(no, declared)
