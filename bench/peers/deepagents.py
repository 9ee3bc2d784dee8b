"""deepagents: what its skills middleware does before an agent runs, on a backend for real files."""

from deepagents.backends.filesystem import FilesystemBackend
from deepagents.middleware.skills import _list_skills


def load(folder: str) -> int:
    return len(_list_skills(FilesystemBackend(root_dir=folder, virtual_mode=False), folder))
