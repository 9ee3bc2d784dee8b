"""An index of tiny packages that a test builds itself: a folder, set up for uv by the variables of pip."""

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest


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


def sdist(folder: Path, name: str, version: str = "1.0", *, code: str, needs: str = "", static: bool = False) -> None:
    """A package without a wheel. `code` runs where it is built; if `static`, what it needs can be read without that."""
    head = f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n"
    files = {
        "PKG-INFO": head
        + ("" if static else "Dynamic: Requires-Dist\n")
        + (f"Requires-Dist: {needs}\n" if needs else ""),
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": code,
        "setup.py": code,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, cache: Path) -> None:
    """Have uv take its packages from a folder, and from nowhere else."""
    folder.mkdir(parents=True, exist_ok=True)
    indexes = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_FIND_LINKS")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", *indexes):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))
    monkeypatch.setenv("UV_CONFIG_FILE", "/dev/null")
