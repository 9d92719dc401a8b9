"""
Encrypts the payloads of dead letters, so that only the holder of a key can read them.

The cipher is Fernet (AES-128 in CBC mode with HMAC-SHA256) from the `cryptography` package, an extra of its own
(`pip install 'onceward[sealed]'`). Anything with `seal` and `unseal` can take its place: a key service, say.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from onceward._core.errors import ConfigurationError


@runtime_checkable
class Seal(Protocol):
    """Turns a payload into bytes that others cannot read, and back."""

    def seal(self, payload: bytes) -> bytes:
        """Encrypt a payload."""

    def unseal(self, sealed: bytes) -> bytes:
        """Decrypt what was sealed; raise anything if that cannot be done."""


class Sealed:
    """
    Payloads under a key of yours: `Sealed(key)`, where the key is what `Sealed.new_key()` gave you once.

    To change keys, put the new one first: `Sealed(new, old)` seals with the new one and opens what either has sealed.
    """

    def __init__(self, *keys: str | bytes) -> None:
        if not keys:
            raise ConfigurationError("Sealed needs a key: make one with Sealed.new_key(), and keep it as a secret")
        fernet = _fernet()
        try:
            self._fernet = fernet.MultiFernet([fernet.Fernet(key) for key in keys])
        except (ValueError, TypeError):
            raise ConfigurationError(
                "a key for Sealed is 32 bytes in URL-safe base64, as Sealed.new_key() makes it"
            ) from None

    @staticmethod
    def new_key() -> str:
        """A new random key, as text. Keep it where your other secrets are: without it, nothing can be opened."""
        made: bytes = _fernet().Fernet.generate_key()
        return made.decode("ascii")

    def seal(self, payload: bytes) -> bytes:
        """Encrypt a payload with the first key."""
        return bytes(self._fernet.encrypt(payload))

    def unseal(self, sealed: bytes) -> bytes:
        """Decrypt what any of the keys has sealed."""
        return bytes(self._fernet.decrypt(sealed))

    def __repr__(self) -> str:
        return "<Sealed>"


def _fernet() -> Any:
    try:
        from cryptography import fernet
    except ImportError:
        raise ConfigurationError(
            "Sealed needs the cryptography package: pip install 'onceward[sealed]'; or keep payloads with a seal of "
            "your own (an object with seal and unseal)"
        ) from None
    return fernet
