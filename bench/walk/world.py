"""The files of one walk: a project, a home, skills of every kind in both, and what can happen to them meanwhile."""

import os
import random
import shutil
from dataclasses import dataclass, field
from typing import Final

from metier.hosts import profiles
from metier.hosts.schema import Profile
from metier.testing import write_skill

WORDS: Final = ("invoice", "csv file", "release notes", "translate", "picture", "review of code", "backup", "report")
TOOLS: Final = (None, None, "Read", "Read Bash(git:*) skill_run", "skill_run", "Bash")
SCRIPTS: Final = {
    "scripts/say.sh": '#!/bin/sh\necho "said $*"\n',
    "scripts/slow.sh": "#!/bin/sh\necho first\nsleep 0.05\necho last >&2\n",
    "scripts/fail.sh": "#!/bin/sh\necho failed >&2\nexit 3\n",
    "scripts/write.sh": '#!/bin/sh\necho made > "$WORK_DIR/out.txt"\ncat\n',
    "scripts/odd.sh": "#!/bin/sh\nprintf 'caf\\351 \\000 end\\n'\n: > \"$WORK_DIR/$(printf 'caf\\351')\"\n",
}
PATHS: Final = ("references/a.md", "SKILL.md", "big.md", "data.bin", "scripts/say.sh", "none.md", "../x", "references")
BROKEN: Final = ("---\nname: [\n---\n", "no frontmatter at all\n", "---\ndescription:\n---\n# x\n", "")


@dataclass(slots=True)
class World:
    """See the module. All paths are below `folder`."""

    folder: str
    profile: Profile
    chance: random.Random
    names: list[str] = field(default_factory=list[str])
    edits: int = 0

    @property
    def project(self) -> str:
        return os.path.join(self.folder, "project")

    @property
    def home(self) -> str:
        return os.path.join(self.folder, "home")

    @property
    def roots(self) -> list[str]:
        """The folders that this profile searches, the project's before those of the home."""
        rules = self.profile
        on = dict(rules.toggles)
        places = [
            (root.path, root.at == "home")
            for root in rules.roots
            if root.at != "system" and not root.registry and (root.toggle in ("", "any") or on.get(root.toggle))
        ]
        places += ((path.removeprefix("~/"), path.startswith("~")) for path in rules.directories)
        found = [os.path.join(self.home if at_home else self.project, path) for path, at_home in places]
        inside = [path for path in found if path.startswith(self.project)]
        return [*inside[:2], *[path for path in found if path.startswith(self.home)][:1]]

    def build(self) -> None:
        """Write 4 to 8 skills: some of the same name in two folders, some that are broken."""
        os.makedirs(os.path.join(self.project, ".git"))
        os.makedirs(self.home)
        self.names = [f"s{number}" for number in range(self.chance.randint(4, 8))]
        for name in self.names:
            self.write(name, self.chance.choice(self.roots))
        double = self.chance.choice(self.names)
        for root in self.roots:
            self.write(double, root)
        if self.chance.random() < 0.6:
            self.write("broken", self.roots[0], self.chance.choice(BROKEN))
            self.names.append("broken")
        if self.chance.random() < 0.5:
            with open(os.path.join(self.project, "AGENTS.md"), "w", encoding="utf-8") as stream:
                stream.write("Be brief.\n")

    def write(self, name: str, root: str, text: str | None = None) -> None:
        """Write a skill, new or over an old one."""
        chance = self.chance
        self.edits += 1
        body = f"# {name}, version {self.edits}\nWork on $ARGUMENTS. See references/a.md and $s1.\n"
        body += "a line of é 𝄞\n" * chance.choice((0, 0, 3, 200))
        files: dict[str, str | bytes] = {
            "references/a.md": f"the reference of {name}, version {self.edits}\n",
            "data.bin": b"\0\1\2",
            **(SCRIPTS if chance.random() < 0.7 else {}),
        }
        if chance.random() < 0.15:
            files["big.md"] = f"{name} {self.edits}\n" * 40_000
        write_skill(
            os.path.join(root, name),
            description=f"Use it for {chance.choice(WORDS)} and {chance.choice(WORDS)}.",
            body=body,
            files=files,
            text=text,
            allowed_tools=chance.choice(TOOLS),
            model="large" if chance.random() < 0.2 else None,
            disable_model_invocation=True if chance.random() < 0.1 else None,
            user_invocable=False if chance.random() < 0.1 else None,
        )

    def edit(self) -> str:
        """Change something on disk. Return what."""
        chance = self.chance
        name = chance.choice(self.names)
        homes = [root for root in self.roots if os.path.isdir(os.path.join(root, name))] or [self.roots[0]]
        root = chance.choice(homes)
        skill = os.path.join(root, name)
        file = os.path.join(skill, "SKILL.md")
        kind = chance.choice(
            (
                *("body", "body", "frontmatter", "yaml", "remove", "again", "new", "chmod", "mtime", "reference"),
                *("script", "rename", "latin", "link"),
            )
        )
        if kind in ("body", "again"):
            if kind == "again":
                _remove(skill)
            self.write(name, root)
        elif kind == "frontmatter" and os.path.isfile(file):
            with open(file, "rb") as stream:
                text = stream.read()
            with open(file, "wb") as stream:
                stream.write(text.replace(b"description: ", b"license: MIT\ndescription: ", 1))
        elif kind == "yaml":
            self.write(name, root, chance.choice(BROKEN))
        elif kind == "remove":
            _remove(skill)
        elif kind == "new":
            self.names.append(f"s{len(self.names)}")
            self.write(self.names[-1], chance.choice(self.roots))
        elif kind == "chmod" and os.path.isfile(file):
            os.chmod(file, chance.choice((0o000, 0o644, 0o644)))
        elif kind == "mtime" and os.path.isfile(file):
            os.utime(file)
        elif kind == "rename" and os.path.isdir(skill):
            shutil.rmtree(f"{skill}-moved", ignore_errors=True)
            os.rename(skill, f"{skill}-moved")
        elif kind == "latin":
            self.write(name, root, f"---\nname: {name}\ndescription: caf\udce9\n---\n# caf\udce9 $ARGUMENTS\n")
        elif kind == "link" and os.path.isdir(skill):
            other = os.path.join(self.folder, f"elsewhere-{self.edits}")
            self.edits += 1
            os.rename(skill, other)
            os.symlink(other, skill)
        elif kind in ("reference", "script"):
            relative = "references/a.md" if kind == "reference" else "scripts/say.sh"
            path = os.path.join(skill, relative)
            if os.path.isfile(path):
                with open(path, "a", encoding="utf-8") as stream:
                    stream.write(f"# and more {self.edits}\n")
        return f"{kind} {name}"

    def hide(self) -> None:
        """Move the files away: a record needs none of them."""
        for folder in (self.project, self.home):
            os.rename(folder, f"{folder}-gone")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove(skill: str) -> None:
    if os.path.islink(skill):
        os.unlink(skill)
    else:
        shutil.rmtree(skill, ignore_errors=True)


def profile_of(name: str) -> Profile:
    """A built-in profile, switched on."""
    return profiles.build(profiles.override(profiles.load(name), {"enabled": True}, origin="the walk").raw)
