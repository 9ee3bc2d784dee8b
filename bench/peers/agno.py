"""agno: its local loader, without the validation, which refuses the standard's form of `allowed-tools`."""

from agno.skills import LocalSkills


def load(folder: str) -> int:
    return len(LocalSkills(folder, validate=False).load())
