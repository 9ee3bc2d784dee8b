"""An index of tiny wheels that a test builds itself: a folder, set up for pip and uv by their variables."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import parts
from metier.running.packages import programs


def wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    code: str | None = None,
    needs: str = "",
    program: str = "",
    inside: Mapping[str, str] | None = None,
) -> Path:
    """A wheel with one module of the same name, which has its version.

    `program` is a console script of it, and `inside` has other files.
    """
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": code if code is not None else f"version = {version!r}\ndef main(): print('program', version)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files |= inside or {}
    if program:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{program} = {module}:main\n"
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{module}-{version}-py3-none-any.whl"
    rows: list[str] = []
    with zipfile.ZipFile(place, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(text.encode())}")
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return place


def use(monkeypatch: pytest.MonkeyPatch, installer: str, folder: Path, cache: Path) -> None:
    """Have an installer take its packages from a folder, and from nowhere else."""
    folder.mkdir(parents=True, exist_ok=True)
    if installer == "uv":
        parts.require("uv")
    else:
        monkeypatch.setattr(programs, "_uv", lambda: None)
    indexes = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_FIND_LINKS")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", *indexes):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))
    monkeypatch.setenv("UV_CONFIG_FILE", "/dev/null")
