"""
Who holds a claim: which process, on which host, since when. Written here, read here, and nowhere else.

    1 byte    the scheme: 1
    1 byte    1 if the claim passes on by its lease alone (takeover="lease"), else 0
    8 bytes   the beginning of the claim's token: whoever claims without saying who it is (an older version of Onceward)
              leaves what stood here before, and that must not speak for the new claim
    8 bytes   the machine, 8 bytes the boot, 8 bytes the namespaces of processes and of time; zeros: not known
    4 bytes   the process id
    8 bytes   when the process began, in the kernel's ticks since the boot
    4 bytes   the same in seconds since 1970, for people
    the rest  the host's name

Machine, boot and namespaces are digests: they are only ever compared, and a machine's id is not for others to see.
Whether a process still lives is looked up elsewhere (`runtime/processes.py`); this file computes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from onceward._core.record_types import Record

SCHEME = 1
MARK = 8
"""Bytes of a digest, and of a token."""
UNKNOWN = bytes(MARK)
HOST_MAX = 64
"""Bytes of a host's name: Linux allows no more."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLAIM = Struct(f">BB{MARK}s")
_PROCESS = Struct(f">{MARK}s{MARK}s{MARK}sIQI")


class Process(NamedTuple):
    """A process, told apart from every other one."""

    host: str
    machine: bytes
    boot: bytes
    space: bytes
    """The namespaces in which its id and its beginning mean something."""
    pid: int
    began: int
    """Ticks since the boot; 0: not known."""
    began_at: int
    """Seconds since 1970, for showing only; 0: not known."""

    def __str__(self) -> str:
        began = f", started {self.started_at.isoformat()}" if self.started_at is not None else ""
        return f"process {self.pid} on {self.host or 'an unnamed host'}{began}"

    @property
    def started_at(self) -> datetime | None:
        """When it began, for people."""
        return _EPOCH + timedelta(seconds=self.began_at) if self.began_at else None

    @property
    def place(self) -> tuple[bytes, bytes, bytes] | None:
        """Where its id means this process and no other; None: not known."""
        place = (self.machine, self.boot, self.space)
        return None if UNKNOWN in place or not self.began else place


def identity_digest(kind: str, text: str) -> bytes:
    """The digest of something that tells machines, boots or namespaces apart; empty text is not known."""
    return sha256(f"onceward {kind} {text}".encode()).digest()[:MARK] if text else UNKNOWN


def encode_process(process: Process) -> bytes:
    """A process as a claimant carries it."""
    host = process.host.encode(errors="replace")[:HOST_MAX]
    return _PROCESS.pack(*process[1:4], process.pid, process.began, process.began_at) + host


def decode_process(encoded: bytes) -> Process | None:
    """The process that `encode_process` wrote; None: it cannot be read."""
    if len(encoded) < _PROCESS.size:
        return None
    machine, boot, space, pid, began, began_at = _PROCESS.unpack_from(encoded)
    return Process(encoded[_PROCESS.size :].decode(errors="replace"), machine, boot, space, pid, began, began_at)


def stamp_holder(process: bytes, token: bytes, by_lease: bool) -> bytes:
    """The holder of the claim with that token, as it is stored."""
    return _CLAIM.pack(SCHEME, by_lease, token[:MARK]) + process


def restamp_holder(holder: bytes, token: bytes) -> bytes:
    """The same holder, named in a row that has got that token since."""
    return holder[: _CLAIM.size - MARK] + token[:MARK] + holder[_CLAIM.size :]


def holder_of(found: Record) -> Process | None:
    """The process that made the claim which stands there; None: it is not known, or cannot be read."""
    stored = found.holder
    if stored is None or len(stored) < _CLAIM.size:
        return None
    scheme, _, token = _CLAIM.unpack_from(stored)
    if scheme != SCHEME or token != found.token[:MARK]:
        return None
    return decode_process(stored[_CLAIM.size :])


def is_by_lease(found: Record) -> bool:
    """Whether whoever made the claim wants it to pass on by its lease alone. What cannot be read says yes."""
    return holder_of(found) is None or found.holder is None or found.holder[1] != 0
