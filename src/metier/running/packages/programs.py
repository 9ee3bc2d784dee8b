"""The installers of this machine, and how they are called: uv for Python, and npm for Node.

Each call has a time limit and a workplace: a folder below the user's cache that nobody else can enter or replace, with
a home for the installer. Installers look for settings and projects in the folders above them, so a shared folder such
as /tmp is no place for them. So no file counts that lies above that folder, in a skill or where others can write. Of
the user's own files and variables, installers get what is named here: where packages come from, by which proxy, and
with which passwords. uv does not read the settings of pip, so where it has none for an index, it is given those of pip.
pip itself is not called: it follows an address in the metadata of a package, and runs what it finds there, before
anybody was asked.
"""

import configparser
import functools
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

from metier.files.shapes import is_table
from metier.running.packages import PackagesUnavailable

BUILDING: Final = ".building-"


class Workplace(NamedTuple):
    """Where an installer runs."""

    home: str
    folder: str
    """Its current folder, which becomes the environment."""


@contextmanager
def workplace(parent: str) -> Generator[Workplace]:
    """A new one in a folder of the user. Raises `PackagesUnavailable` if others could replace it."""
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        os.chmod(parent, 0o700)
        for above in Path(os.path.realpath(parent)).parents:
            if not is_ours(above.stat()):
                why = f"{above}, which belongs to another user or can be written by others"
                raise PackagesUnavailable(f"{parent} is below {why}; XDG_CACHE_HOME can name another folder")
        folder = tempfile.mkdtemp(prefix=BUILDING, dir=parent)
    except OSError as error:
        raise PackagesUnavailable(f"{parent} cannot be used for packages: {error.strerror}") from error
    try:
        made = Workplace(os.path.join(folder, "home"), os.path.join(folder, "files"))
        os.mkdir(made.home, 0o700)
        os.mkdir(made.folder, 0o700)
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def uv() -> tuple[str, ...]:
    """uv, with the file of its settings. Raises `PackagesUnavailable` where there is none."""
    beside = os.path.dirname(sys.executable)  # the extra `scripts` puts it there
    if found := shutil.which("uv") or shutil.which("uv", path=beside):
        if (file := uv_file()) and _builds(_text(file)):
            way_out = "UV_CONFIG_FILE can name another file"
            raise PackagesUnavailable(
                f"{file} has no-binary, with which uv builds packages, and none is built; {way_out}"
            )
        return (found, *(("--config-file", file) if file else ("--no-config",)))
    raise PackagesUnavailable("uv is not installed here; it comes with: pip install 'metier[scripts]'")


def uv_pip(command: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    """A command of `uv pip`. It knows no variable for no-index, so the one that stands for it becomes an option."""
    without = variables.get("UV_NO_INDEX", "").lower() not in ("", "0", "false", "no", "off", "n", "f")
    return (*uv(), "pip", command, *(("--no-index",) if without else ()))


def _builds(settings: str) -> bool:
    """Whether uv builds some package even where it is told to build none."""
    import tomllib  # only where uv has settings

    with suppress(tomllib.TOMLDecodeError):  # uv says what is wrong
        table = tomllib.loads(settings)
        pip = table.get("pip")
        return any(key.startswith("no-binary") for key in (*table, *(pip if is_table(pip) else ())))
    return False


def call(command: Sequence[str], *, workplace: Workplace, seconds: float, variables: Mapping[str, str]) -> str:
    """Run an installer and return what it printed. Raises `PackagesUnavailable` with its last words if it fails."""
    name = os.path.basename(command[0])
    try:
        done = subprocess.run(  # noqa: S603
            list(command),
            cwd=workplace.folder,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            umask=0o022,
        )
    except subprocess.TimeoutExpired:
        raise PackagesUnavailable(f"{name} did not end within {seconds:.0f} seconds") from None
    except OSError as error:
        raise PackagesUnavailable(f"{name} could not be started: {error.strerror}") from error
    if done.returncode:
        raise PackagesUnavailable(_last_words(done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode("utf-8", "replace")


def _last_words(text: str) -> str:
    """The error of an installer, on one line."""
    lines = [line.strip(" │╰─▶×╭├\t") for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Resolved ", "Using ", "warning:", "WARNING:"))]
    return " ".join(" ".join(kept).split())[-1500:] or "the installer failed and said nothing"


@functools.cache
def npm() -> str:
    """The path of npm. Raises `PackagesUnavailable` where there is none."""
    if found := shutil.which("npm"):
        return found
    raise PackagesUnavailable("npm is not installed here; it comes with Node.js")


# --- the settings of the user ---


_NOT_GIVEN: Final = re.compile(
    r"npm_|pip_|uv_|python|virtual_env$|node_options$|node_path$|prefix$|destdir$|xdg_(?:config|data|cache)_",
    re.IGNORECASE,
)
"""Variables that say how an installer works. Those that the user's settings may have are given again."""
_NPM: Final = re.compile(
    r"registry|@[\w.~-]+:registry|//[^\s=]+:(?:_auth|_authToken|_password|username|email|certfile|keyfile)|proxy"
    r"|https?-proxy|no-?proxy|ca(?:\[\])?|cafile|cert|key|strict-ssl|cache|offline|prefer-offline|before"
    r"|min-release-age|fetch-[a-z-]+|replace-registry-host",
    re.IGNORECASE,
)
_UV: Final = re.compile(
    r"UV_(?:INDEX(?:_\w+)?|DEFAULT_INDEX|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|KEYRING_PROVIDER|NATIVE_TLS|SYSTEM_CERTS"
    r"|INSECURE_HOST|HTTP_\w+|REQUEST_TIMEOUT|CONCURRENT_\w+|CACHE_DIR|LINK_MODE|OFFLINE|EXCLUDE_NEWER|CREDENTIALS_DIR)"
)
_INDEXES: Final = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX")
_FROM_PIP: Final = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
}


def environment(name: Literal["uv", "npm"], home: str) -> dict[str, str]:
    """The variables for an installer whose home is this folder."""
    variables = {key: value for key, value in os.environ.items() if not _NOT_GIVEN.match(key)}
    variables |= {"HOME": home, "TMPDIR": home}
    if os.path.isfile(netrc := os.environ.get("NETRC") or os.path.expanduser("~/.netrc")):
        variables["NETRC"] = netrc
    return (_of_uv() if name == "uv" else _of_npm()) | variables


def _of_npm() -> dict[str, str]:
    """The variables of npm whose keys may be in its settings."""
    keys = {name: name[len("npm_config_") :] for name in os.environ if name.lower().startswith("npm_config_")}
    return {name: os.environ[name] for name, key in keys.items() if _NPM.fullmatch(key) or _NPM.fullmatch(_dashed(key))}


def npmrc(files: Iterable[str]) -> str:
    """The settings for npm, from files of which later ones count more. Lines are taken as they are, or not at all."""
    lines = [f"cache={os.path.expanduser('~/.npm')}"]
    for path in files:
        for line in _text(path).splitlines():
            if line.lstrip().startswith("["):
                break  # the keys of a section are other keys
            key, _, value = line.partition("=")
            if _NPM.fullmatch(key.strip()):
                lines.append(f"{key}={_at_home(value.strip())}")
    return "".join(f"{line}\n" for line in lines)


def _of_pip() -> Mapping[str, str]:
    """The settings of pip, as pip reads them: files first, then variables."""
    config = os.path.join(_user_folder("XDG_CONFIG_HOME", ".config"), "pip", "pip.conf")
    mac = "/Library/Application Support/pip/pip.conf"
    files = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", mac, os.path.expanduser("~/.pip/pip.conf"), config]
    files += [os.path.expanduser(f"~{mac}"), os.path.join(sys.prefix, "pip.conf")]
    own = os.environ.get("PIP_CONFIG_FILE")
    parser = configparser.RawConfigParser(strict=False)
    try:
        for file in [] if own == os.devnull else [*files, *([own] if own else [])]:
            parser.read_string(_text(file))
    except configparser.Error:
        parser = configparser.RawConfigParser()
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {_dashed(key): value for key, value in parser.items(section)}
    return found | {_dashed(key[4:]): value for key, value in os.environ.items() if key[:4] == "PIP_"}


def _of_uv() -> dict[str, str]:
    given = {key: value for key, value in os.environ.items() if _UV.fullmatch(key)}
    given.setdefault("UV_CACHE_DIR", os.path.join(_user_folder("XDG_CACHE_HOME", ".cache"), "uv"))
    passwords = os.path.join(_user_folder("XDG_DATA_HOME", ".local/share"), "uv", "credentials")
    if os.path.isdir(passwords):
        given.setdefault("UV_CREDENTIALS_DIR", passwords)
    if not any(key in given for key in _INDEXES) and not uv_file():
        for key, value in _of_pip().items():
            if key in _FROM_PIP and value:
                separator = "," if key == "find-links" else " "
                given.setdefault(_FROM_PIP[key], separator.join(value.split()))
        # The indexes of pip have equal rank: the best version of all of them counts.
        given.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return given


def uv_file() -> str:
    """The settings of uv for this user, else for this machine; empty if there are none. Never those of a project."""
    config = os.path.join(_user_folder("XDG_CONFIG_HOME", ".config"), "uv", "uv.toml")
    own = os.environ.get("UV_CONFIG_FILE")
    files = (own,) if own else () if os.environ.get("UV_NO_CONFIG") else (config, "/etc/uv/uv.toml")
    return next((file for file in files if _text(file)), "")


def _text(path: str) -> str:
    """A file with settings; empty if there is none. Raises `PackagesUnavailable` where others could have written it."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return ""
        if not is_ours(status):
            raise PackagesUnavailable(
                f"{path} belongs to another user or can be written by others; `chmod go-w` mends it"
            )
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def is_ours(status: os.stat_result) -> bool:
    """Whether only this user and root, who owns `/`, can change a file, or replace what this user has in a folder.

    A group counts as others, except the user's own one and that of root.
    """
    root = os.stat("/")
    others = 0o002 if status.st_gid in (0, root.st_gid, os.getegid()) else 0o022
    is_kept = not status.st_mode & others or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX)
    return bool(is_kept) and status.st_uid in (0, root.st_uid, os.geteuid())


def _user_folder(variable: str, usual: str) -> str:
    return os.environ.get(variable) or os.path.join(os.path.expanduser("~"), usual)


def _at_home(value: str) -> str:
    """The value with the user's home, which is not that of the installer."""
    return re.sub(r"(?<![^\s\"'])~(?=/)", lambda _: os.path.expanduser("~"), value)


def _dashed(key: str) -> str:
    return re.sub(r"(?<!^)_", "-", key).lower()
