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
import os
import re
import secrets
import stat
import tempfile
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

_FORM: Final = re.compile(rb"[A-Za-z0-9_-]{32,200}\n?")
_KEY: Final = "sign-ins"


class Access:
    """The token of one server, and the browsers that signed in with it. Without a token everybody may come in."""

    def __init__(self, store: Store, token: str) -> None:
        self.token, self._store = token, store
        self.code = secrets.token_urlsafe(24)
        """The code of the link to sign in. It is empty once it was used."""
        self._ended: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def is_token(self, given: str) -> bool:
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def sends_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given)

    def take_code(self, given: str) -> bool:
        """Whether this is the code of the link. It is not, from then on."""
        if not (self.code and hmac.compare_digest(given.encode(), self.code.encode())):
            return False
        self.code = ""
        return True

    async def begin(self) -> str:
        """Begin a sign-in, and return the value of its cookie."""
        new = secrets.token_urlsafe(24)
        await run_in_threadpool(self._change, new, now_ms() + DAYS * 86_400_000)
        return f"{new}.{self._mac(new)}"

    async def signed_in(self, headers: Headers) -> str:
        """The id of the browser's sign-in, or an empty string."""
        known = [one for value in _cookies(headers) if (one := self._id(value))]
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
        return hmac.new(self.token.encode(), b"metier sign-in " + sign_in.encode(), "sha256").hexdigest()

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


def cookie_name(headers: Headers) -> str:
    """The name of the cookie for the port that the browser used, which is not the server's own behind a proxy."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def _cookies(headers: Headers) -> list[str]:
    """The values of our cookie. Another server on the same host name can set more of them, and malformed ones."""
    name = cookie_name(headers)
    pairs = (part.partition("=") for part in headers.get("cookie", "").split(";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name]


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
    folder = os.path.dirname(file)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".metier-", dir=folder)  # with mode 600
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(32) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, file)
    finally:
        os.unlink(temporary)
