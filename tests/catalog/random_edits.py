"""Random changes to a folder of skills, for tests of code that must notice them."""

import random
import shutil
from pathlib import Path

from metier.testing import write_skill

BROKEN = "---\nname: draft\ndescr"


class RandomEdits:
    """Edits a tree of skills at random, as people, editors and tools do."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root, self.chance = root, chance
        self.number = 0
        self.outside = root.parent / "outside"
        self.outside.mkdir()

    def new_name(self) -> str:
        self.number += 1
        return f"s{self.number}"

    def folders(self) -> list[Path]:
        return [folder for folder in self.root.rglob("*") if folder.is_dir() and not folder.is_symlink()]

    def skills(self) -> list[Path]:
        return [file.parent for file in self.root.rglob("SKILL.md")]

    def one_of(self, folders: list[Path]) -> list[Path]:
        """One of them, if there are any."""
        return self.chance.sample(folders, min(1, len(folders)))

    def act(self) -> None:
        often, sometimes = (self.create, self.edit), (self.save_by_rename, self.rename, self.remove)
        rarely = (self.break_one, self.group, self.regroup, self.attach)
        acts = (*often * 5, *sometimes * 3, *rarely * 2, self.link, self.ignored)
        self.chance.choice(acts)()

    def create(self) -> None:
        base = self.chance.choice([self.root, *(f for f in self.folders() if not (f / "SKILL.md").exists())])
        write_skill(base / self.new_name(), description=f"Number {self.number}.")

    def edit(self) -> None:
        for folder in self.one_of(self.skills()):
            write_skill(folder, description=f"Edited {self.new_name()}.")

    def save_by_rename(self) -> None:
        for folder in self.one_of(self.skills()):
            draft = Path(write_skill(self.outside / "draft", folder.name, description=f"Saved {self.new_name()}."))
            draft.replace(folder / "SKILL.md")

    def rename(self) -> None:
        for folder in self.one_of(self.skills()):
            folder.rename(folder.with_name(self.new_name()))

    def remove(self) -> None:
        for folder in self.one_of(self.skills()):
            folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)

    def break_one(self) -> None:
        for folder in self.one_of(self.skills()):
            (folder / "SKILL.md").write_text(BROKEN)

    def group(self) -> None:
        (self.root / self.new_name()).mkdir()

    def regroup(self) -> None:
        groups = [folder for folder in self.folders() if not (folder / "SKILL.md").exists()]
        for folder in self.one_of(groups):
            if self.chance.random() < 0.5:
                folder.rename(folder.with_name(self.new_name()))
            else:
                shutil.rmtree(folder)

    def link(self) -> None:
        write_skill(self.outside / self.new_name(), description="Linked.")
        (self.root / f"to-s{self.number}").symlink_to(self.outside / f"s{self.number}")

    def ignored(self) -> None:
        write_skill(self.root / "node_modules")
        write_skill(self.root / "node_modules" / "below")

    def attach(self) -> None:
        for folder in self.one_of(self.skills()):
            (folder / "references").mkdir(exist_ok=True)
            (folder / "references" / f"{self.new_name()}.md").write_text("A page.")
