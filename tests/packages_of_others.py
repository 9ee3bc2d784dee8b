"""Packages of others, installed as an installer leaves them: a module, and a `dist-info` folder with entry points."""

from pathlib import Path


def install(site: Path, module: str, source: str, group: str, entry: str) -> None:
    """Install a module with one entry point, such as `name = module:attribute`, into a folder of packages."""
    info = site / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{module}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
