"""Which model answers: a provider, a name, an address, and where its key comes from.

The configuration is the owner's and may name any address. A page may name only a provider's own address, this machine,
or a public address over https; redirects are never followed. A key goes only where it was meant to go: one from the
environment to the address of the configuration or of its provider, one from a page to the address given with it.
Invariant: a key is in memory only, and in no text of ours.
"""

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from metier.errors import ConfigError

Provider = Literal["offline", "openai", "anthropic", "google", "ollama"]

PROVIDERS: Final[tuple[Provider, ...]] = ("offline", "openai", "anthropic", "google", "ollama")
OLLAMA: Final = "http://127.0.0.1:11434/v1"
SILENCE_SECONDS: Final = 120.0
"""How long a model server may say nothing before the turn ends with an error."""

_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "ollama": ("OLLAMA_API_KEY",),
}
_KEYS: Final = ("provider", "name", "base_url", "tools", "timeout")


@dataclass(frozen=True, slots=True)
class Choice:
    """A model to talk to. Without a provider, the offline guide answers."""

    provider: Provider = "offline"
    name: str = ""
    base_url: str = ""
    tools: bool = True
    timeout: float = SILENCE_SECONDS
    key: str = field(default="", repr=False)

    def as_dict(self) -> dict[str, Any]:
        """What may be shown: whether there is a key, never the key."""
        offline = self.provider == "offline"
        return {
            "provider": self.provider,
            "model": self.name or "offline guide",
            "base_url": self.base_url,
            "has_key": bool(self.key),
            "tools": self.tools,
            "offline": offline,
        }

    @property
    def label(self) -> str:
        return "offline guide" if self.provider == "offline" else f"{self.provider}:{self.name}"

    @property
    def local(self) -> bool:
        return _is_loopback(urlsplit(self.base_url).hostname or "")


def configured(table: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Choice:
    """The model of the `[model]` table of the configuration, with its key from the environment."""
    unknown = next((key for key in table if key not in _KEYS), None)
    if unknown is not None:
        raise ConfigError(f"unknown key model.{unknown}", key=unknown, hint=f"known: {', '.join(_KEYS)}")
    choice = _checked(table, "model.")
    surroundings = os.environ if env is None else env
    key = surroundings.get("METIER_MODEL_KEY", "")
    if not key and not choice.base_url:
        key = next((found for name in _VARIABLES.get(choice.provider, ()) if (found := surroundings.get(name))), "")
    return _at_home(choice, key)


def asked_for(given: Mapping[str, Any], owner: Choice) -> Choice:
    """The model that a page asks for. `owner` is the one of the configuration, whose address and key may be kept."""
    choice = _checked({**given, "name": given.get("model", "")}, "")
    key = cast("str", given.get("api_key") or "")
    if (choice.provider, choice.base_url) in ((owner.provider, owner.base_url), (owner.provider, "")):
        if owner.base_url and not choice.base_url:
            choice = _with(choice, base_url=owner.base_url)
        return _at_home(choice, key or owner.key)
    refuse_address(choice.base_url)
    return _at_home(choice, key)


def refuse_address(base_url: str) -> None:
    """Refuse an address that a page may not name."""
    if not base_url:
        return
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if _is_loopback(host):
        return
    if parts.scheme != "https":
        raise ConfigError(
            "an address from the page must be https, or on this machine",
            key="base_url",
            hint="set model.base_url in the configuration file for any other",
        )
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, parts.port or 443, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise ConfigError(f"the address of {host} is not known", key="base_url") from error
    if any(not ipaddress.ip_address(one.partition("%")[0]).is_global for one in found):
        raise ConfigError(
            f"{host} is in a private network, which a page may not name",
            key="base_url",
            hint="set model.base_url in the configuration file",
        )


def _checked(given: Mapping[str, Any], where: str) -> Choice:
    provider = given.get("provider", "offline")
    if provider not in PROVIDERS:
        raise ConfigError(
            f"there is no provider {provider!r}", key=f"{where}provider", hint=f"known: {', '.join(PROVIDERS)}"
        )
    name, base_url = given.get("name") or "", given.get("base_url") or ""
    for key, value in (("name", name), ("base_url", base_url)):
        if not isinstance(value, str) or len(value) > 500 or not value.isprintable():
            raise ConfigError(f"{where}{key} must be a line of text", key=f"{where}{key}")
    if provider != "offline" and not name:
        raise ConfigError("the model needs a name", key=f"{where}name")
    if base_url:
        _check_url(base_url, f"{where}base_url")
    tools, timeout = given.get("tools", True), given.get("timeout", SILENCE_SECONDS)
    if not isinstance(tools, bool):
        raise ConfigError(f"{where}tools must be true or false", key=f"{where}tools")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 3600:
        raise ConfigError(f"{where}timeout must be a number of seconds up to 3600", key=f"{where}timeout")
    if provider == "offline":
        return Choice(timeout=float(timeout))
    return Choice(provider, name, base_url, tools, float(timeout))


def _check_url(url: str, key: str) -> None:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
        parts = urlsplit("")
    if not right or parts.username or parts.password:
        hint = "such as https://example.com/v1, without a user name or password"
        raise ConfigError("the address must begin with http:// or https://", key=key, hint=hint)


def _at_home(choice: Choice, key: str) -> Choice:
    """With its key, and Ollama at the place where it listens."""
    home = OLLAMA if choice.provider == "ollama" and not choice.base_url else choice.base_url
    return _with(choice, base_url=home, key=key if choice.provider != "offline" else "")


def _with(choice: Choice, **changed: Any) -> Choice:
    return replace(choice, **changed)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
