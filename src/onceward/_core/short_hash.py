"""
SHA-256 of what is short: by the interpreter's own code, where it has that.

`hashlib` takes OpenSSL's, which is faster from a few hundred bytes on. But it goes a long way to its first byte: after
a wait for the disk or the network, when nothing of that is in the processor's caches, the two hashes of a call take
4 µs more than these do. In a loop that waits for nothing these take 0.4 µs more for each hash.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import _Hash as HASH

_own: Any
try:
    from _sha2 import sha256 as _own  # type: ignore[import-not-found, no-redef]
except ImportError:
    try:
        from _sha256 import sha256 as _own  # type: ignore[import-not-found, no-redef]  # Before Python 3.12.
    except ImportError:  # An interpreter may be built without.
        _own = hashlib.sha256

SHORT = 512
"""Bytes up to which this is worth it."""

short_sha256: Callable[..., HASH] = _own
