"""What adding an entry made besides the entry itself, so that removing it leaves the file as it was."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from metier.files.shapes import is_list


@dataclass(frozen=True, slots=True)
class Undo:
    """Only structure is kept, and no content of the file: it may have secrets."""

    created: bool = False
    """The file is new."""
    section: bool = False
    """The table of servers is new."""
    blank: str = ""
    """The empty text or object that was replaced, or the empty line before the entry."""
    folders: tuple[str, ...] = ()
    """New folders, the innermost last."""

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "folders": list(self.folders)}

    @classmethod
    def read(cls, found: Mapping[str, object]) -> "Undo":
        """A record of an earlier call. What is not valid counts as not made."""
        blank, folders = found.get("blank"), found.get("folders")
        return cls(
            created=found.get("created") is True,
            section=found.get("section") is True,
            blank=blank if isinstance(blank, str) and not blank.strip(" \t\r\n{}") else "",
            folders=tuple(one for one in folders if isinstance(one, str)) if is_list(folders) else (),
        )
