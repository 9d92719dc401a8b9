"""
`Sealed`: seals what is stored under keys of yours, with AES-256-GCM from the `cryptography` package.

    gate = Gate("sqlite:///agent.db", scope="live:acme", seal=Sealed(key))            a key, from Sealed.new_key()
    gate = Gate("sqlite:///agent.db", scope="live:acme", seal=Sealed.from_file(path)) keys in a file, one on each line

    sealed bytes     01  24 random bytes  ciphertext and tag

The first key seals, and all of them open. A stored value names its key by an id, which is derived from the key and says
nothing about it. Every value has a key of its own, derived from the first twelve of its random bytes (HMAC-SHA256); the
other twelve are the nonce. So the limit of 2**32 values for random nonces under one key is never near: a busy store
would reach that within months.

The package is an extra (`pip install 'onceward[sealed]'`), because only those who seal need it. Anything with `seal`
and `unseal` can take its place: a key service, say.
"""

from __future__ import annotations

import hmac
import logging
import os
import stat
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError, SealKeyMissing
from onceward._core.sealing import SealContext, SealedData
from onceward.runtime.environment import REAL, Environment

AES_256_GCM = b"\x01"
RANDOM_BYTES = 24
TAG_BYTES = 16
KEY_BYTES = 32
FILE_BYTES_MAX = 65_536
LOOK_SECONDS = 1.0
"""Between two looks at a file of keys: a new key seals this soon after it is there."""

_FERNET = b"gAAAA"
"""How everything begins that Fernet sealed, which sealed the payloads of dead letters before."""

_log = logging.getLogger("onceward")


class _Key:
    """One key: its id, the key that values' keys are derived from, and the text that it was given as."""

    __slots__ = ("id", "root", "text")

    def __init__(self, text: str) -> None:
        raw = b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        if len(raw) != KEY_BYTES:
            raise ValueError("wrong length")
        self.text = text
        self.id = hmac.digest(raw, b"onceward/seal/1/id", "sha256")[:8].hex()
        self.root = hmac.digest(raw, b"onceward/seal/1/aes-256-gcm", "sha256")


class _Keys(NamedTuple):
    """Keys in use, and how their file looked. One value, so that no thread sees halves of two."""

    known: dict[str, _Key]
    first: _Key
    """It seals."""
    seen: tuple[int, ...] = ()


def _keys_of(keys: Sequence[str | bytes], seen: tuple[int, ...] = ()) -> _Keys:
    if not keys:
        raise ConfigurationError("Sealed needs a key: make one with Sealed.new_key(), and keep it as a secret")
    try:
        made = [_Key(one.decode("ascii") if isinstance(one, bytes) else one) for one in keys]
    except (ValueError, TypeError, AttributeError):
        raise ConfigurationError(
            "a key for Sealed is 32 random bytes in base64: Sealed.new_key(), or openssl rand -base64 32, makes one"
        ) from None
    return _Keys({one.id: one for one in reversed(made)}, made[0], seen)


class Sealed:
    """
    Stored values under keys of yours: `Sealed(key)`, where the key is what `Sealed.new_key()` gave you once.

    To change keys, put the new one first: `Sealed(new, old)` seals with the new one and opens what either has sealed;
    `use(new, old)` does so while the gate runs. Once nothing is sealed under the old one, leave it out: whatever is
    still sealed under it is lost.
    """

    def __init__(self, *keys: str | bytes, environment: Environment = REAL) -> None:
        self._ciphers = import_ciphers()
        self._environment = environment
        self._file: _KeyFile | None = None
        self._keys = _keys_of(keys)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, environment: Environment = REAL) -> Sealed:
        """
        The keys in a file, one on each line, the first for sealing; `#` begins a comment.

        The file must belong to this user, with mode 0600. It is read again when it changes, about a second later, and
        at once when a value is met whose key is not known. If it cannot be read then, that is logged and the keys stay.
        """
        file = _KeyFile(Path(path), environment)
        seen = file.look()
        made = cls(*file.read(), environment=environment)
        made._keys = made._keys._replace(seen=seen)
        made._file = file
        return made

    @staticmethod
    def new_key() -> str:
        """A new random key, as text. Keep it where your other secrets are: without it, nothing can be opened."""
        return urlsafe_b64encode(REAL.random(KEY_BYTES)).decode("ascii")

    def use(self, *keys: str | bytes) -> None:
        """Seal with the first of these keys from now on, and open with all of them, also while calls run."""
        self._keys = _keys_of(keys, self._keys.seen)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys, the one that seals first. No secrets: stored values name their key by it."""
        keys = self._current()
        return (keys.first.id, *(id for id in keys.known if id != keys.first.id))

    def seal(self, data: bytes, context: SealContext) -> SealedData:
        """Encrypt with the first key."""
        key = self._current().first
        chance = self._environment.random(RANDOM_BYTES)
        cipher, nonce = self._cipher(key, chance)
        return SealedData(key.id, AES_256_GCM + chance + cipher.encrypt(nonce, data, context.associated_data(key.id)))

    def unseal(self, sealed: SealedData, context: SealContext) -> bytes:
        """Decrypt what the key of that id has sealed; `SealKeyMissing` if it is not among the keys."""
        key = self._current().known.get(sealed.key_id) or self._current(now=True).known.get(sealed.key_id)
        if key is None:
            raise SealKeyMissing(
                f"this value is sealed under key {sealed.key_id}, and the keys here are {', '.join(self.key_ids)}: add "
                "that key after the others, Sealed(new, old). If the key was destroyed on purpose, the value is gone"
            )
        scheme, chance = sealed.data[:1], sealed.data[1 : 1 + RANDOM_BYTES]
        if scheme != AES_256_GCM or len(sealed.data) < 1 + RANDOM_BYTES + TAG_BYTES:
            raise ValueError("not sealed by this version")
        cipher, nonce = self._cipher(key, chance)
        return bytes(cipher.decrypt(nonce, sealed.data[1 + RANDOM_BYTES :], context.associated_data(key.id)))

    def unseal_fernet(self, token: bytes) -> bytes:
        """Decrypt a dead letter's payload that was sealed with Fernet, as it was at first, under one of these keys."""
        if not token.startswith(_FERNET):
            raise ValueError("not Fernet's")
        from cryptography import fernet

        return bytes(fernet.MultiFernet([fernet.Fernet(one.text) for one in self._keys.known.values()]).decrypt(token))

    def _cipher(self, key: _Key, chance: bytes) -> tuple[Any, bytes]:
        return self._ciphers.AESGCM(hmac.digest(key.root, chance[:12], "sha256")), chance[12:]

    def _current(self, *, now: bool = False) -> _Keys:
        """The keys; those of the file, if it has changed. Whatever is wrong with it, the operation goes on."""
        keys, file = self._keys, self._file
        if file is None or not (file.is_due() or now):
            return keys
        try:
            seen = file.look()
            if seen == keys.seen:
                return keys
            # Threads may read two states of the file, and end in the wrong order: then the next look sees a change.
            try:
                keys = self._keys = _keys_of(file.read(), seen)
            except ConfigurationError:
                keys = self._keys = self._keys._replace(seen=seen)  # What cannot be used is read, and logged, once.
                raise
            _log.info("onceward: %s has changed; key %s seals from now on", file.path, keys.first.id)
        except ConfigurationError as error:
            _log.warning("onceward: the keys stay as they are: %s", error)
        return keys

    def __repr__(self) -> str:
        return f"<Sealed {', '.join(self.key_ids)}>"


class _KeyFile:
    """A file of keys, and when it was last looked at."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path = path
        self._environment = environment
        self._looked_at = 0.0

    def is_due(self) -> bool:
        """Whether it was not just looked at."""
        return self._environment.monotonic() - self._looked_at >= LOOK_SECONDS

    def look(self) -> tuple[int, ...]:
        """What tells this state of the file from others. Look before reading: then no change goes unnoticed."""
        self._looked_at = self._environment.monotonic()
        try:
            found = self.path.stat()
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be read: {error.strerror}") from None
        return found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self) -> list[str]:
        """The keys in the file; `ConfigurationError` if others could have read or changed it."""
        try:
            # A link is followed: that is how orchestrators put secrets there, and change them at one stroke.
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be read: {error.strerror}") from None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0):
                raise ConfigurationError(
                    f"{self.path} can be read or changed by other users; a key file must belong to this user, with "
                    f"mode "
                    f"0600 (chmod 600 {self.path}). If others may have read it, put a new key first and reseal"
                )
            text = os.read(handle, FILE_BYTES_MAX).decode("utf-8", "replace")
        finally:
            os.close(handle)
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        keys = [line for line in lines if line]
        if not keys:
            raise ConfigurationError(f"{self.path} has no key: write one on each line, from Sealed.new_key()")
        return keys


def import_ciphers() -> Any:
    """The library's ciphers, or what to do about it if it is not there."""
    try:
        from cryptography.hazmat.primitives.ciphers import aead
    except ImportError:
        raise ConfigurationError(
            "Sealed needs the cryptography package: pip install 'onceward[sealed]'; or seal with an object of your own "
            "that has seal and unseal"
        ) from None
    return aead
