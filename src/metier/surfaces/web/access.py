"""Who may use a server: programs that send the token, and browsers that signed in with it.

A browser signs in with the token or with the code of the link that the server printed, and gets a cookie. The code
works once, so that a link in a terminal or in a browser's history is of no use to anybody later. Each sign-in has an
id, which the store keeps until the browser signs out; all servers on the store therefore agree on who is signed in,
and a copy of a cookie ends with it. The cookie carries a MAC of its id under the token, so that a made-up cookie never
reaches the store, and a new token ends all sign-ins.
"""

import asyncio
import contextlib
import hmac
import ipaddress
import os
import re
import secrets
import stat
import tempfile
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import Message, Receive

from metier.errors import ConfigError
from metier.files.shapes import is_table
from metier.record.store import StateConflict, Store, StoreError
from metier.record.store.base import now_ms

COOKIE: Final = "metier_sign_in"
"""The name of the cookie, before the port. Browsers do not separate cookies by port."""

DAYS: Final = 30
SIGN_INS: Final = 200
"""Sign-ins that are remembered. Of more, the oldest ends."""

CHECK_SECONDS: Final = 15.0
"""How often an open request is checked for a sign-out at another server. One at this server ends it at once."""

FIRST_SECONDS: Final = 0.05
SLOWEST_SECONDS: Final = 3.0
"""The delay of the first wrong attempt, which doubles with each further one, and the longest delay."""

WAITING: Final = 5
ALL_WAITING: Final = 200
"""Wrong attempts of one source, and of all, that wait for their answer. Further ones are refused at once."""

FORGET_SECONDS: Final = 60.0
SOURCES: Final = 10_000
"""How long, and of how many sources, wrong attempts are remembered."""

_FORM: Final = re.compile(rb"[A-Za-z0-9_-]{32,200}\n?")
_KEY: Final = "sign-ins"
_COOKIES: Final = 8
"""Cookies of one name that are looked at. Another server on the same host name can set some, too."""


class SignIns:
    """The browsers that signed in, by the ids of their sign-ins."""

    def __init__(self, store: Store, token: str) -> None:
        self._store, self._token = store, token
        self._ended: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    async def begin(self) -> str:
        """Begin a sign-in, and return the value of its cookie."""
        new = secrets.token_urlsafe(24)
        await run_in_threadpool(self._change, new, now_ms() + DAYS * 86_400_000)
        return f"{new}.{self._mac(new)}"

    async def find(self, cookies: Iterator[str]) -> str:
        """The id of the first cookie that is signed in, or an empty string."""
        known = [one for value in cookies if (one := self._id(value))]
        if not known:
            return ""
        current, _ = await run_in_threadpool(self._read)
        return next((one for one in known if one in current), "")

    async def end(self, sign_in: str) -> None:
        """End a sign-in, and the requests that it made and that are still open."""
        await run_in_threadpool(self._change, sign_in, 0)
        open_requests = self._ended.get(sign_in)
        if open_requests is not None:
            open_requests.set()

    async def receive(self, sign_in: str, receive: Receive) -> Message:
        """The next message of a client, or that it is gone, once its sign-in has ended."""
        ended = self._ended.setdefault(sign_in, asyncio.Event())
        message, end = asyncio.ensure_future(receive()), asyncio.ensure_future(ended.wait())
        try:
            while True:
                await asyncio.wait((message, end), timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if message.done():
                    return await message
                if ended.is_set() or not await self._is_current(sign_in):
                    return {"type": "http.disconnect"}
        finally:
            message.cancel()
            end.cancel()

    async def _is_current(self, sign_in: str) -> bool:
        try:
            return sign_in in (await run_in_threadpool(self._read))[0]
        except StoreError:
            return True  # it cannot be known now; the next check may

    def _id(self, cookie: str) -> str:
        given, _, mac = cookie.partition(".")
        return given if hmac.compare_digest(mac.encode(), self._mac(given).encode()) else ""

    def _mac(self, sign_in: str) -> str:
        return hmac.new(self._token.encode(), b"metier sign-in " + sign_in.encode(), "sha256").hexdigest()

    def _read(self) -> tuple[dict[str, int], int]:
        """The sign-ins that have not ended, and when they do, with the version of the document."""
        document = self._store.load_state(_KEY, _KEY)
        if document is None or not is_table(document.value):
            return {}, document.version if document else 0
        now = now_ms()
        kept = {one: end for one, end in document.value.items() if isinstance(end, int) and end > now}
        return kept, document.version

    def _change(self, sign_in: str, until_ms: int) -> None:
        while True:
            kept, version = self._read()
            kept[sign_in] = until_ms
            latest = sorted(((one, end) for one, end in kept.items() if end), key=lambda item: item[1])[-SIGN_INS:]
            try:
                self._store.save_state(_KEY, _KEY, dict(latest), version)
                return
            except StateConflict:
                continue  # another one signed in or out


@dataclass(slots=True)
class _Source:
    failures: int = 0
    free_at: float = 0.0
    waiting: int = 0


class WrongAttempts:
    """Slows down wrong tokens. The attempts of one source are answered one after the other, each later than the last.

    Only wrong attempts wait, so whoever has the token is never kept out by others at the same address.
    """

    def __init__(
        self,
        slowest: float = SLOWEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._slowest, self._clock, self._sleep, self._waiting = slowest, clock, sleep, 0
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    async def wait(self, address: str) -> bool:
        """Wait until a wrong attempt may be answered. Return false, at once, if too many wait already."""
        now = self._clock()
        place = _network(address)
        source = self._sources.pop(place, None) or _Source()
        self._sources[place] = source
        while len(self._sources) > SOURCES:
            self._sources.popitem(last=False)
        if source.waiting >= WAITING or self._waiting >= ALL_WAITING:
            return False
        if now > source.free_at + FORGET_SECONDS:
            source.failures = 0
        delay = min(self._slowest, FIRST_SECONDS * 2 ** min(source.failures, 20))
        source.free_at = max(now, source.free_at) + delay
        source.failures += 1
        source.waiting, self._waiting = source.waiting + 1, self._waiting + 1
        try:
            await self._sleep(source.free_at - now)
        finally:
            source.waiting, self._waiting = source.waiting - 1, self._waiting - 1
        return True


def _network(address: str) -> str:
    """An IPv6 client has a whole network of addresses, so they count as one."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


class Access:
    """The token of one server, and everything that was derived from it. Without a token everybody may come in."""

    def __init__(self, store: Store, token: str, slowest: float = SLOWEST_SECONDS) -> None:
        self.token = token
        self.sign_ins = SignIns(store, token)
        self.wrong = WrongAttempts(slowest)
        self.code = secrets.token_urlsafe(24)
        """The code of the link to sign in. It is empty once it was used."""

    def is_token(self, given: str) -> bool:
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def take_code(self, given: str) -> bool:
        """Whether this is the code of the link. It is not, from then on."""
        if not (self.code and hmac.compare_digest(given.encode(), self.code.encode())):
            return False
        self.code = ""
        return True

    def has_bearer(self, headers: Headers) -> bool:
        """Whether the request tries a token, right or wrong."""
        return headers.get("authorization", "").lower().startswith("bearer")

    def sends_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given)

    async def signed_in(self, headers: Headers) -> str:
        """The id of the browser's sign-in, or an empty string."""
        return await self.sign_ins.find(_cookies(headers))


def cookie_name(headers: Headers) -> str:
    """The name of the cookie for the port that the browser used, which is not the server's own behind a proxy."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def _cookies(headers: Headers) -> Iterator[str]:
    """The values of our cookie. Cookies of other servers may be malformed, so each one is looked at by itself."""
    name, left = cookie_name(headers), _COOKIES
    for part in headers.get("cookie", "").split(";"):
        key, _, value = part.partition("=")
        if key.strip() == name and left:
            left -= 1
            yield value.strip()


# --- the token of the user ---
# Loopback is shared by all users of a machine, so an address proves nothing; being able to read this file does. It is
# made once and appears whole, with its final mode. A file that others could read or could have written is refused.


def token(folder: str) -> str:
    """The token in the user's configuration folder. It is made if there is none."""
    file = os.path.join(folder, "token")
    try:
        try:
            return _read(file)
        except FileNotFoundError:
            _make(file)
            return _read(file)
    except OSError as error:
        hint = "set METIER_TOKEN, or listen on a socket with --socket PATH"
        raise ConfigError(f"the token cannot be kept: {error.strerror}", file=file, hint=hint) from error


def _read(file: str) -> str:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(file, "is not a file")
        if found.st_uid != os.geteuid():
            raise _refused(file, "belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _refused(file, "can be used by other users")
        content = stream.read(1_000)
    if not _FORM.fullmatch(content):
        raise _refused(file, "does not hold a token")
    return content.decode().strip()


def _refused(file: str, why: str) -> ConfigError:
    return ConfigError(f"the file of the token {why}", file=file, key="token", hint="delete it; a new one is made")


def _make(file: str) -> None:
    """Make the file with a new token, unless another process was faster."""
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        write_private(file, secrets.token_urlsafe(32) + "\n", replace=False)


def write_private(file: str, text: str, *, replace: bool) -> None:
    """Write a file with mode 600, which appears whole. Without `replace`, an existing file raises `FileExistsError`."""
    descriptor, temporary = tempfile.mkstemp(prefix=".metier-", dir=os.path.dirname(file))  # exclusive, with mode 600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        if replace:
            os.replace(temporary, file)
        else:
            os.link(temporary, file)
    except OSError as error:
        error.filename = file
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
