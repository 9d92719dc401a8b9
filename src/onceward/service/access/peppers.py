"""
The pepper: the key under which tokens are hashed. It is not in the database, so a stolen database is worthless.

    ONCEWARD_PEPPER=NEW             from the environment; several, NEW,OLD: new tokens get the first, all are accepted
    agent.access.pepper             otherwise, of a SQLite store: a file beside it, for its owner alone
    ONCEWARD_PEPPER=none            spoken: no pepper. Tokens are then kept as SHA-256; their 192 bits still cannot be
                                    guessed, but whoever can write to the database can make a token

Every row names the pepper that it was made with, by a digest of it, so that a pepper can be replaced: NEW,OLD until the
last old token is rotated.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward.service.private_file import FileExposed, make_private_file, read_private_file

VARIABLE = "ONCEWARD_PEPPER"
NONE = "none"
PEPPER_CHARACTERS_MIN = 32
"""`openssl rand -hex 32` prints 64."""

_MAKE_ONE = f"set {VARIABLE} to at least {PEPPER_CHARACTERS_MIN} random characters (openssl rand -hex 32)"
_NOBODY = b"no token has this digest"


class Peppers:
    """The peppers that are known here, the current one first. Never shown, logged or repeated in an error."""

    def __init__(self, known: list[str]) -> None:
        self._keys: dict[str, bytes | None] = {}
        for text in known:
            key = None if text == NONE else text.encode()
            self._keys[NONE if key is None else sha256(b"onceward/pepper/1" + key).hexdigest()[:16]] = key
        self.current = next(iter(self._keys), "")

    def __repr__(self) -> str:
        return f"Peppers({', '.join(self._keys)})"

    @property
    def ids(self) -> frozenset[str]:
        """What the rows call the peppers that are known here."""
        return frozenset(self._keys)

    def digest(self, purpose: bytes, text: bytes, pepper: str | None = None) -> bytes:
        """The digest of a text under a pepper (the current one). Under one that is not known: of no use to anybody."""
        name = self.current if pepper is None else pepper
        message = b"onceward/" + purpose + b"/1:" + text
        if name not in self._keys:
            return hmac.digest(_NOBODY, message, "sha256")
        key = self._keys[name]
        return sha256(message).digest() if key is None else hmac.digest(key, message, "sha256")

    def fits(self, purpose: bytes, text: bytes, pepper: str, digest: bytes) -> bool:
        """Whether a digest is that of a text. As long for a wrong one as for the right one, whatever is known."""
        made = self.digest(purpose, text, pepper)
        same = hmac.compare_digest(made, digest)
        return same and pepper in self._keys


def load_peppers(file: Path | None, random: Callable[[int], bytes], *, create: bool) -> Peppers:
    """The peppers from the environment or, without any there, from a file that is made if need be."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return Peppers([_checked(text.strip()) for text in given.split(",")])
    if file is None and create:
        raise pepper_missing_error()
    if file is not None and create and not file.exists():
        _make(file, random)
    return Peppers([_checked(_contents(file))]) if file is not None and file.exists() else Peppers([])


def pepper_missing_error() -> ConfigurationError:
    """What to say where there is none, and one is needed. Looking and revoking need none."""
    return ConfigurationError(
        f"tokens are protected by a key that is kept outside the database (a pepper), and there is none: {_MAKE_ONE}, "
        f"the same for every "
        f"process, and keep it like a password; or set {VARIABLE}={NONE} to do without"
    )


def _checked(text: str) -> str:
    if text == NONE or (len(text) >= PEPPER_CHARACTERS_MIN and text.isascii() and text.isprintable()):
        return text
    raise ConfigurationError(f"a pepper is too short, or has characters that are not visible ASCII: {_MAKE_ONE}")


def _make(file: Path, random: Callable[[int], bytes]) -> None:
    """Make the file whole or not at all: whoever reads it meanwhile must not find half a pepper."""
    try:
        make_private_file(file, random(32).hex(), random)
    except OSError as error:
        raise StoreUnavailable(f"cannot make the pepper's file {file}: {error.strerror}; or {_MAKE_ONE}") from error


def _contents(file: Path) -> str:
    try:
        return read_private_file(file)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the pepper's file {file}: {error.strerror}; it must be a file of this user, and no link"
        ) from None
    except FileExposed:
        raise ConfigurationError(
            f"the pepper's file {file} can be read or replaced by other users; it must belong to this user, with mode "
            f"0600 (chmod 600 {file}). If others may have read it, make a new one and rotate the tokens"
        ) from None
