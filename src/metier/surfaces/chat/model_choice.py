"""The model that answers: a provider, a name, an address, and where its key comes from.

The configuration belongs to the owner of the server and may name any address. A page may name only a provider's own
address, a public https address or, once a person has confirmed it, this machine; redirects are never followed. A key
from the environment is sent only to the configured address or the provider's own, and a key from a page only to the
address given with it. Invariant: a key is in memory and in the keyring only, and no text of ours contains it.
"""

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from metier.errors import ConfigError, MetierError
from metier.files.addresses import is_loopback, is_public, parse_address
from metier.record.store import Store
from metier.running.secrets.storage import SecretStorage, find_keyring

Provider = Literal["offline", "openai", "anthropic", "google", "ollama"]

PROVIDERS: Final[tuple[Provider, ...]] = ("offline", "openai", "anthropic", "google", "ollama")
OLLAMA: Final = "http://127.0.0.1:11434/v1"
SILENCE_SECONDS: Final = 120.0
"""How long a model server may be silent before the turn ends with an error."""

TEXT_CHARACTERS: Final = 500
"""The longest name or address."""

CHOICE: Final = "model-choice"
"""The document of the server's choice, and the session that it belongs to."""

_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "ollama": ("OLLAMA_API_KEY",),
}
_KEYS: Final = ("provider", "name", "base_url", "tools", "images", "timeout")


class UnconfirmedAddress(ConfigError):
    """A page names an address on this machine, and nobody has confirmed that it may."""


class ModelUnavailable(MetierError):
    """The server of a model cannot be asked. The message says why, and never contains the key."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model to use. The provider `offline` is the offline guide."""

    provider: Provider = "offline"
    name: str = ""
    base_url: str = ""
    tools: bool = True
    images: bool = False
    """Whether the model is sent the images of a chat."""
    timeout: float = SILENCE_SECONDS
    key: str = field(default="", repr=False)

    def as_dict(self) -> dict[str, object]:
        """The data to show: whether there is a key, never the key."""
        shown = {"provider": self.provider, "model": self.name or "offline guide", "base_url": self.base_url}
        flags = {"tools": self.tools, "images": self.images, "offline": self.provider == "offline"}
        return {**shown, "has_key": bool(self.key), **flags}

    def kept(self) -> dict[str, object]:
        """The data to keep: everything but the key."""
        return {name: getattr(self, name) for name in ("provider", "name", "base_url", "tools", "images")}

    @property
    def label(self) -> str:
        return "offline guide" if self.provider == "offline" else f"{self.provider}:{self.name}"

    @property
    def local(self) -> bool:
        """Whether the model runs on this machine."""
        return is_loopback(urlsplit(self.base_url).hostname or "")


def configured(table: Mapping[str, object], env: Mapping[str, str] | None = None) -> ModelChoice:
    """The model of the `[model]` table of the configuration, with its key from the environment."""
    unknown = next((key for key in table if key not in _KEYS), None)
    if unknown is not None:
        raise ConfigError(f"unknown key model.{unknown}", key=unknown, hint=f"known: {', '.join(_KEYS)}")
    choice = _checked(table, "model.")
    variables = os.environ if env is None else env
    key = variables.get("METIER_MODEL_KEY", "")
    if not key and not choice.base_url:
        key = next((found for name in _VARIABLES.get(choice.provider, ()) if (found := variables.get(name))), "")
    return _with_key(choice, key)


def from_kept(value: Mapping[str, object]) -> ModelChoice | None:
    """The choice of kept data, whose address was checked when it was chosen. `None` if it is no choice any more."""
    try:
        return _checked({key: value[key] for key in _KEYS if key in value}, "")
    except ConfigError:
        return None


def requested(given: Mapping[str, object], own: ModelChoice, current: ModelChoice) -> ModelChoice:
    """The model that a page asks for. `own` is the configured one, whose address and key may be kept.

    `current` is the one in use. Its key stays as long as the address and the provider stay.
    Raises `UnconfirmedAddress` for an address on this machine that was not `confirmed`.
    """
    choice = _checked({**given, "name": given.get("model", "")}, "")
    key = given.get("api_key")
    key = key if isinstance(key, str) else ""
    if not key and (choice.provider, choice.base_url) == (current.provider, current.base_url):
        key = current.key
    if (choice.provider, choice.base_url) in ((own.provider, own.base_url), (own.provider, "")):
        if own.base_url and not choice.base_url:
            choice = replace(choice, base_url=own.base_url)
        return _with_key(choice, key or own.key)
    refuse_address(choice.base_url)
    known = (choice.provider, choice.base_url) == (current.provider, current.base_url)
    if choice.local and not known and given.get("confirmed") is not True:
        raise UnconfirmedAddress(
            f"{choice.base_url} is a server on this machine. It gets the whole chat and can answer anything, so use it "
            "only if it is your model server.",
            key="base_url",
        )
    return _with_key(choice, key)


def refuse_address(base_url: str) -> None:
    """Raise `ConfigError` for an address that a page may not name."""
    if not base_url:
        return
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if is_loopback(host):
        return
    if parts.scheme != "https":
        raise ConfigError(
            "an address from a page must use https or be on this machine",
            key="base_url",
            hint="any other address can be set as model.base_url in the configuration file",
        )
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, parts.port or 443, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise ConfigError(f"the host {host} cannot be resolved", key="base_url") from error
    if not all(is_public(parse_address(one)) for one in found):
        raise ConfigError(
            f"{host} is in a private network, which a page may not use",
            key="base_url",
            hint="set model.base_url in the configuration file",
        )


def _checked(given: Mapping[str, object], prefix: str) -> ModelChoice:
    wanted = given.get("provider", "offline")
    provider: Provider | None = next((known for known in PROVIDERS if known == wanted), None)
    if provider is None:
        hint = f"known: {', '.join(PROVIDERS)}"
        raise ConfigError(f"there is no provider {wanted!r}", key=f"{prefix}provider", hint=hint)
    name, base_url = _line(given, "name", prefix), _line(given, "base_url", prefix)
    if provider != "offline" and not name:
        raise ConfigError("the model needs a name", key=f"{prefix}name")
    if base_url:
        _check_url(base_url, f"{prefix}base_url")
    tools, timeout = given.get("tools", True), given.get("timeout", SILENCE_SECONDS)
    if not isinstance(tools, bool):
        raise ConfigError(f"{prefix}tools must be true or false", key=f"{prefix}tools")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 3600:
        raise ConfigError(f"{prefix}timeout must be a number of seconds up to 3600", key=f"{prefix}timeout")
    if provider == "offline":
        return ModelChoice(timeout=float(timeout))
    # The models of the big providers see images. What runs elsewhere often does not, and would refuse the request.
    images = given.get("images", provider in ("openai", "anthropic", "google") and not base_url)
    if not isinstance(images, bool):
        raise ConfigError(f"{prefix}images must be true or false", key=f"{prefix}images")
    return ModelChoice(
        provider=provider, name=name, base_url=base_url, tools=tools, images=images, timeout=float(timeout)
    )


def _line(given: Mapping[str, object], key: str, prefix: str) -> str:
    value = given.get(key) or ""
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS or not value.isprintable():
        raise ConfigError(f"{prefix}{key} must be a line of text", key=f"{prefix}{key}")
    return value


def _check_url(url: str, key: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid, parts = False, urlsplit("")
    if not valid or parts.username or parts.password:
        hint = "for example https://example.com/v1, without a user name or password"
        raise ConfigError("the address must begin with http:// or https://", key=key, hint=hint)


def _with_key(choice: ModelChoice, key: str) -> ModelChoice:
    """The choice with its key; for Ollama, also with its default address."""
    base_url = OLLAMA if choice.provider == "ollama" and not choice.base_url else choice.base_url
    return replace(choice, base_url=base_url, key=key if choice.provider != "offline" else "")


# --- over restarts ---


class KeptModels:
    """The choices in one store, which last over restarts: for the server, and for single chats.

    The store has the provider, the name and the address. A key is in the system keyring, under the provider and the
    address that it belongs to; without a keyring it stays in memory and is asked for again. The server's choice is
    forgotten when the owner configures another model.
    """

    def __init__(self, store: Store, folder: str, own: ModelChoice) -> None:
        """`folder` is the user's configuration folder, `own` the configured model."""
        self._store, self._own = store, own
        self._secrets = SecretStorage(os.path.join(folder, "models")) if folder else None
        self._memory: dict[str, str] = {}

    def server_choice(self) -> ModelChoice:
        """The model that was chosen last for all chats, or the configured one."""
        document = self._store.load_state(CHOICE, CHOICE)
        value: Mapping[str, object] = document.value if document is not None else {}
        if not value or value.get("over") != _full_name(self._own):
            return self._own
        return self.with_key(from_kept(value)) or self._own

    def keep(self, choice: ModelChoice) -> None:
        """Keep the choice for all chats, and its key where there is a keyring."""
        self.keep_key(choice)
        self._store.save_state(CHOICE, CHOICE, {**choice.kept(), "over": _full_name(self._own)})

    def keep_key(self, choice: ModelChoice) -> bool:
        """Keep a key in the keyring. Return whether it will be there after a restart."""
        name = _secret_name(choice)
        if not choice.key or self._is_own(choice):
            return bool(choice.key)
        self._memory[name] = choice.key
        if self._secrets is None or find_keyring().backend is None:
            return False
        try:
            if self._secrets.value(name) != choice.key:
                self._secrets.set(name, choice.key)
        except MetierError:
            return False
        return True

    def with_key(self, choice: ModelChoice | None) -> ModelChoice | None:
        """The choice with the key that belongs to its address."""
        if choice is None or choice.key or choice.provider == "offline":
            return choice
        if self._is_own(choice):
            return replace(choice, key=self._own.key)
        return replace(choice, key=self._key(_secret_name(choice)))

    def _is_own(self, choice: ModelChoice) -> bool:
        return bool(self._own.key) and _place(choice) == _place(self._own) and choice.key in ("", self._own.key)

    def _key(self, name: str) -> str:
        if name in self._memory:
            return self._memory[name]
        if self._secrets is None or find_keyring().backend is None:
            return ""
        try:
            return self._secrets.value(name) or ""
        except ConfigError:
            return ""


def _place(choice: ModelChoice) -> tuple[str, str]:
    return choice.provider, choice.base_url


def _full_name(choice: ModelChoice) -> str:
    return f"{choice.provider} {choice.name} {choice.base_url}"


def _secret_name(choice: ModelChoice) -> str:
    return f"KEY_{hashlib.sha256(' '.join(_place(choice)).encode()).hexdigest()[:32]}"
