"""Keeps the chosen models over restarts: for the server, and for single chats.

The store has the provider, the name and the address. A key is in the system keyring, under the provider and the address
that it belongs to, so it is never sent to another one; without a keyring it stays in memory and is asked for again.
A choice is forgotten when the owner of the server configures another model.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from metier.chat.model_choice import ModelChoice, from_kept
from metier.errors import ConfigError, MetierError, StateConflict
from metier.record.store import Store
from metier.secrets.storage import SecretStorage, find_keyring

KEY: Final = "model-choice"
"""The document of the server's choice, and the session that it belongs to."""


class KeptModels:
    """The choices in one store. `folder` is the user's configuration folder."""

    def __init__(self, store: Store, folder: str, own: ModelChoice) -> None:
        self._store, self._own = store, own
        self._secrets = SecretStorage(os.path.join(folder, "models")) if folder else None
        self._memory: dict[str, str] = {}

    def server_choice(self) -> ModelChoice:
        """The model that was chosen last for all chats, or the configured one."""
        document = self._store.load_state(KEY, KEY)
        value: Mapping[str, object] = document.value if document is not None else {}
        if not value or value.get("over") != _name(self._own):
            return self._own
        return self.with_key(from_kept(value)) or self._own

    def keep(self, choice: ModelChoice) -> None:
        """Keep the choice for all chats, and its key where there is a keyring."""
        self.keep_key(choice)
        value = {**choice.kept(), "over": _name(self._own)}
        while True:
            document = self._store.load_state(KEY, KEY)
            try:
                self._store.save_state(KEY, KEY, value, document.version if document is not None else 0)
                return
            except StateConflict:
                continue

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


def _name(choice: ModelChoice) -> str:
    return f"{choice.provider} {choice.name} {choice.base_url}"


def _secret_name(choice: ModelChoice) -> str:
    return f"KEY_{hashlib.sha256(' '.join(_place(choice)).encode()).hexdigest()[:32]}"
