"""No path, URL or link reads a byte from outside of a skill's folder, even while links are swapped.

Twenty thousand hostile spellings, each with the reason that must refuse it, run against real folders with secrets
around them; then files, folders and the skill's own folder are swapped for links as fast as another process can.
"""

import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from metier.errors import BadArguments, MetierError, PathEscape, ResourceError, ResourceNotFound, SkillNotFound
from metier.files import beneath
from metier.files import urls as skill_urls
from metier.files.beneath import Content
from metier.files.source import DiskFiles
from metier.session.session import Session
from metier.values.results import Resource
from metier.values.skill import Skill
from worlds import World

pytestmark = pytest.mark.system

READS = 20_000
"""Reads while links are swapped, for each of the two ways to open a file."""

UPS = [".." for _ in range(9)]
LOOKS_LIKE_DOTS = ["．．", "‥", "․․", "。。", "··", "٠٠", "ꓸꓸ", "。．", "．.", "․."]
LOOKS_LIKE_SLASH = ["／", "∕", "⁄", "⧸", "╱", "ノ"]
DOTS = ["%2e%2e", "%2E%2E", ".%2e", "%2e.", "%2E%2e"]
SLASHES = ["/", "%2f", "%2F", "%5c", "%5C", "\\", "/./", "//"]


@dataclass(frozen=True)
class Place:
    """A skill with files, links at every level, and secrets around it."""

    world: World
    skill: Path
    outside: Path
    marker: str
    """It is in the content of every file outside and in some names, but in no requested path."""

    def session(self, profile: str = "standard") -> Session:
        settings = {"enabled": True, "directories": [str(self.skill.parent)]} if profile == "remcochat" else {}
        return self.world.discover(profile, settings=settings).session()


LEVELS = ["", "sub/", "sub/deep/"]
FILES = [f"{level}ok.md" for level in LEVELS]


@pytest.fixture
def place(world: World) -> Place:
    marker = secrets.token_hex(12)
    text = f"SECRET {marker}\n"
    skill = world.skill(".agents/skills/probe", files={file: f"legit {file}\n" for file in FILES}).parent
    outside = world.project / "outside"
    for folder in (outside, world.project, skill.parent, skill.parent / "probe-twin", outside / "etc"):
        folder.mkdir(exist_ok=True)
        for name in ("secret.txt", "passwd", f"named-{marker}.md", "ok.md"):
            (folder / name).write_text(text)
    world.skill(".agents/skills/other", body=text, files={"secret.txt": text})
    for level in LEVELS:
        links(skill / level, outside)
    return Place(world, skill, outside, marker)


def targets(folder: Path, outside: Path) -> dict[str, str]:
    """Links by name. All of them lead outside or must not be followed."""
    up = os.path.relpath(outside, folder)
    return {
        "abs-file": str(outside / "secret.txt"),
        "rel-file": f"{up}/secret.txt",
        "abs-folder": str(outside),
        "rel-folder": up,
        "roundabout": f"../{'/'.join(['..'] * 12)}{outside}",
        "back-in": f"{up}/../.agents/skills/probe",
        "root": "/",
        "etc": "/etc",
        "hosts": "/etc/passwd",
        "proc-self": "/proc/self",
        "proc-root": "/proc/self/root",
        "proc-cwd": "/proc/self/cwd",
        "proc-fd": "/proc/self/fd",
        "environ": "/proc/self/environ",
        "zero": "/dev/zero",
        "null": "/dev/null",
        "tty": "/dev/tty",
        "hop": "abs-file",
        "hops": "hop",
        "by-folder": "rel-folder/secret.txt",
    }


def links(folder: Path, outside: Path) -> None:
    for name, target in targets(folder, outside).items():
        (folder / name).symlink_to(target)
    for name, target in (("circle", "circle"), ("ping", "pong"), ("pong", "ping"), ("here", "."), ("gone", "nowhere")):
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        back = os.open(".", os.O_RDONLY)
        try:
            os.chdir(folder)  # the path of a socket must be short
            listener.bind("plug")
        finally:
            os.fchdir(back)
            os.close(back)


# --- the spellings ---

Case = tuple[str, str]
"""A path or URL, and the reason why it is refused."""


def paths(place: Place) -> Iterator[Case]:
    names = ["secret.txt", "passwd", f"{place.outside.name}/secret.txt", "etc/passwd", "named.md", "x"]
    names += ["probe-twin/ok.md", "other/SKILL.md", "ok.md", ""]
    starts = ["", "./", "sub/", "sub/deep/", "nope/", "sub//", "here/", "ok.md/"]
    for before, count, between, name in itertools.product(starts, range(1, 9), ["/", "//", "/./", "\\", "\\/"], names):
        yield before + between.join([*UPS[:count], name]), "traversal"
    for start, name in itertools.product(
        ["/", "//", "///", "\\", "\\\\host\\", "\\\\?\\", "C:", "c:/", "Z:\\", "~/", "~root/", "~"],
        [*names, str(place.outside / "secret.txt")[1:], "etc/passwd", "proc/self/environ", "../secret.txt", "dev/zero"],
    ):
        yield start + name, "absolute"
    for dots, slash, count, name in itertools.product(LOOKS_LIKE_DOTS, LOOKS_LIKE_SLASH, range(1, 5), names[:4]):
        yield slash.join([*([dots] * count), name]), "not-found"
        yield "/".join([*([dots] * count), name]), "not-found"
    for dots, slash, count, name in itertools.product(DOTS, SLASHES[1:5], range(1, 4), names[:4]):
        yield slash.join([*([dots] * count), name]), "not-found"  # not a URL, so nothing is decoded
    for position, name in itertools.product(range(12), names[:6]):
        hostile = f"../../{name}/sub/ok.md"
        yield hostile[:position] + "\x00" + hostile[position:], "nul"
    yield from ((f"sub{slash}ok.md", "backslash") for slash in ("\\", "\\\\", "\\/"))
    for level, length in itertools.product(LEVELS, (256, 257, 1000, 4000)):
        yield f"{level}{'a' * length}", "too-long"
        yield f"{level}{'é' * length}", "too-long"
    yield from (("x/" * length, "too-long") for length in (2049, 3000, 50_000))
    yield from ((f"{'here/' * 1000}ok.md", "too-long") for _ in range(1))
    yield from ((path, "folder") for path in ("", ".", "./", "sub", "sub/", "sub/deep", "here", "sub/here/deep"))
    yield from ((f"{level}{torn}", "encoding") for level in LEVELS for torn in ("\ud800", "a\udfff.md"))
    yield from linked(place)


def linked(place: Place) -> Iterator[Case]:
    """The links at every level: directly, through links that stay inside, and with more path after them."""
    tails = ["", "/", "/secret.txt", "/passwd", "/etc/passwd", "/ok.md", "/environ", "/self/environ", "/0", "/."]
    ways = ["", "here/", "here/here/", "./"]
    for level, name, way, tail in itertools.product(LEVELS, targets(place.skill, place.outside), ways, tails):
        yield f"{way}{level}{name}{tail}", "link"
    for level, name, tail in itertools.product(LEVELS, ("circle", "ping", "pong"), ("", "/x", "/x/ok.md")):
        yield f"{level}{name}{tail}", "loop"
    yield from ((f"{level}{'here/' * 41}ok.md", "loop") for level in LEVELS)
    yield from ((f"{level}gone{tail}", "not-found") for level in LEVELS for tail in ("", "/x"))
    yield from ((f"{level}{name}", "not-a-file") for level in LEVELS for name in ("pipe", "plug"))
    yield from ((f"{level}ok.md/{name}", "not-found") for level in LEVELS for name in ("x", "secret.txt"))


def urls(place: Place) -> Iterator[Case]:
    names = ["secret.txt", f"{place.outside.name}/secret.txt", "etc/passwd", "x"]
    for dots, slash, count, name in itertools.product([*DOTS, ".."], SLASHES, range(1, 10), names):
        for before in ("", "sub/", "sub%2f"):
            once = before + slash.join([*([dots] * count), name])
            yield f"skill://probe/{once}", "traversal"
            twice = once.replace("%", "%25")
            if twice != once and ".." not in twice and "\\" not in twice:
                yield f"skill://probe/{twice}", "not-found"
                yield f"skill://probe/{twice.replace('%', '%25')}", "not-found"
    for start, name in itertools.product(["%2f", "/", "%2F%2f", "%5c", "C:", "%63:%5c", "%7e/", "~"], names):
        yield f"skill://probe/{start}{name}", "absolute"
    for position, name in itertools.product(range(8), names):
        hostile = f"../../{name}"
        yield f"skill://probe/{hostile[:position]}%00{hostile[position:]}", "nul"
    for bad, name in itertools.product(["%c0%ae%c0%ae/", "%ff%fe", "%e0%80%ae", "%f0%80%80%af", "%ed%a0%80"], names):
        yield f"skill://probe/{bad}{name}", "encoding"
    for start, name in itertools.product(
        ["file://", "file:///", "SKILL://", "skill:/", "skill:", "http://", "", " "], names
    ):
        yield f"{start}{name}", "scheme"
    odd_names = [
        "..",
        "%2e%2e",
        "..%2f..",
        "",
        "probe%2f..",
        "probe%00",
        ".",
        "probe?x=",
        "probe#",
        "me@probe",
        "PROBE",
    ]
    for odd, name in itertools.product([*odd_names, "probe%20"], names):
        yield f"skill://{odd}/{name}", "no-skill"
    for path, reason in linked(place):
        yield (
            f"skill://probe/{path.replace('/', '%2f') if len(path) % 2 else path}",
            reason if path.strip("/") else "folder",
        )


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to open a file beneath a folder: by one system call, and component by component."""
    if request.param == "openat2" and not beneath._has_openat2():
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr(beneath, "_has_openat2", lambda: request.param == "openat2")
    return request.param


def read(session: Session, name: str, path: str | None) -> Resource:
    return session.read(name, path)


def read_unrecorded(session: Session, name: str, path: str | None) -> Content:
    """Read without a session, whose events and listing take most of the time."""
    if path is None:
        name, path = skill_urls.parse_url(name)
    return DiskFiles().resource(session.skills[name], beneath.check_relative(path), 10**6)


def refusal(
    session: Session, name: str, path: str | None, marker: str, reading: Callable[..., Resource | Content] = read
) -> str:
    """The reason of a refusal. In any case, no secret may be shown."""
    try:
        shown, reason = str(reading(session, name, path)), "none"
    except ResourceError as error:
        shown, reason = f"{error} {getattr(error, 'available', '')}", error.reason
    except SkillNotFound as error:
        shown, reason = str(error), "no-skill"
    except BadArguments as error:  # what no file can be called is refused before a session looks at it
        shown, reason = str(error), "nul" if "NUL" in str(error) else "encoding"
    assert marker not in shown, (name, path)
    return reason


def test_twenty_thousand_hostile_spellings_are_each_refused_with_their_own_reason(place: Place, way: str) -> None:
    cases = [("probe", path, reason) for path, reason in dict(paths(place)).items()]
    cases += [(url, None, reason) for url, reason in dict(urls(place)).items()]
    assert len(cases) >= 20_000
    session = place.session()
    found: Counter[str] = Counter()
    for number, (name, path, reason) in enumerate(cases):
        if number % 2000 == 1999:
            assert_silent(session, place.marker)
            session = place.session()
        recorded = way == "openat2" and number % 5 == 0
        given = refusal(session, name, path, place.marker, read if recorded else read_unrecorded)
        assert given == reason, (name, path)
        found[given] += 1
    assert found == Counter(reason for _, _, reason in cases)
    assert set(found) == {
        "traversal",
        "absolute",
        "not-found",
        "nul",
        "backslash",
        "too-long",
        "folder",
        "encoding",
        "link",
        "loop",
        "not-a-file",
        "scheme",
        "no-skill",
    }
    assert min(found.values()) >= 3
    for file in FILES:
        for route in (file, f"here/{file}", f"./{file}"):
            assert session.read("probe", route).text == f"legit {file}\n"


def assert_silent(session: Session, marker: str) -> None:
    """Check that neither the listing nor the record of a session has anything from outside."""
    assert marker not in session.load("probe").text
    assert marker not in json.dumps(session.events)


@pytest.mark.parametrize("inside", ["sub/../ok.md", "sub/deep/../../ok.md", "./sub/./../ok.md", "nope/../ok.md"])
def test_where_a_host_normalises_parents_they_may_stay_inside_and_never_leave(
    place: Place, inside: str, way: str
) -> None:
    session = place.session("remcochat")
    assert session.read("probe", inside).text == "legit ok.md\n"
    for path in (f"../{inside}", f"{inside}/../../secret.txt", "sub/../../secret.txt", "here/../../secret.txt"):
        assert refusal(session, "probe", path, place.marker) in ("traversal", "not-found")
    assert refusal(session, "probe", "sub/../abs-file", place.marker) == "link"


def test_the_listing_of_a_skill_shows_regular_files_inside_and_nothing_else(place: Place, way: str) -> None:
    assert sorted(place.session().load("probe").files) == sorted(FILES)


@pytest.mark.parametrize("kind", ["link", "parent"])
def test_a_skills_folder_that_became_a_link_since_is_refused(place: Place, kind: str, way: str) -> None:
    session = place.session()
    moved = place.skill if kind == "link" else place.skill.parent
    moved.rename(place.outside / "moved")
    moved.symlink_to(place.outside / "moved")
    for attempt in (lambda: session.read("probe", "ok.md"), lambda: session.load("probe")):
        with pytest.raises(PathEscape) as refused:
            attempt()
        assert refused.value.reason == "link"
        assert place.marker not in str(refused.value)
    session.skills.refresh()
    assert session.skills.session().read("probe", "ok.md").text == "legit ok.md\n", "a new scan finds its new place"


def test_a_skill_whose_skill_file_is_a_link_keeps_its_own_files(place: Place, way: str) -> None:
    folder = place.skill.parent / "linked"
    folder.mkdir()
    (folder / "SKILL.md").symlink_to("../probe/SKILL.md")
    (folder / "own.md").write_text("own\n")
    place.world.skill(".agents/skills/probe", "linked")
    session = place.session()
    assert session.read("linked", "own.md").text == "own\n"
    assert session.load("linked").files == ("own.md",)
    folder.rename(place.outside / "moved")
    folder.symlink_to(place.outside)
    assert refusal(session, "linked", "secret.txt", place.marker) in ("link", "not-found")


# --- the race ---

SWAPPER = """
import ctypes, os, sys
skill, bag = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
inside, here, exchange = os.open(skill, os.O_RDONLY), -100, 2
pairs = [(inside, b"secret.txt", "file"), (inside, b"folder", "folder"), (here, os.fsencode(skill), "skill")]
pairs = [(at, name, os.fsencode(os.path.join(bag, other))) for at, name, other in pairs]
count = 0
while count % 50 or not os.path.exists(os.path.join(bag, "stop")):
    for at, name, other in pairs:
        if libc.renameat2(at, name, here, other, exchange):
            sys.exit(f"renameat2: {os.strerror(ctypes.get_errno())}")
    count += 1
print(count)
"""


@pytest.fixture
def swapped(place: Place, tmp_path: Path) -> Iterator[Skill]:
    """A skill whose file, folder and own folder are constantly swapped with links to the outside."""
    bag = tmp_path / "bag"
    bag.mkdir()
    (place.skill / "folder").mkdir()
    for file in ("folder/secret.txt", "secret.txt"):
        (place.skill / file).write_text("inside\n")
    for name, target in (("file", place.outside / "secret.txt"), ("folder", place.outside), ("skill", place.outside)):
        (bag / name).symlink_to(target)
    skill = place.session().skills["probe"]
    command = [sys.executable, "-c", SWAPPER, str(place.skill), str(bag)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield skill
        finally:
            (bag / "stop").touch()
            told, _ = child.communicate()
    assert child.returncode == 0
    assert int(told) > 1000, "hardly anything was swapped"


def test_a_link_swapped_in_between_changes_nothing(swapped: Skill, place: Place, way: str) -> None:
    marker, wanted = place.marker.encode(), itertools.cycle(("secret.txt", "folder/secret.txt"))
    files, outcomes = DiskFiles(), Counter[str]()
    for number in range(READS):
        try:
            content = files.resource(swapped, next(wanted), 100).data
            if number % 50 == 0:
                content += " ".join(files.listing(swapped, 100, 10**6).files).encode()
        except MetierError as error:
            outcomes[type(error).__name__] += 1
            content = str(error).encode()
        else:
            outcomes["read"] += 1
            assert content.startswith(b"inside\n")
        assert marker not in content
    assert sum(outcomes.values()) == READS
    assert outcomes["read"] > READS // 200
    assert outcomes[PathEscape.__name__] > READS // 200
    assert set(outcomes) <= {"read", PathEscape.__name__, ResourceNotFound.__name__}
