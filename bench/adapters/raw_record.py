"""
The limit of a fresh call: the rows that a record takes, written by hand, and no rule.

What our rules have to find later is stored: fingerprint, version, token, fence, lease, holder, until when a result is
replayed and when it is forgotten (on PostgreSQL also an index by which a purge finds what is due). Nothing is
compared, looked for or decided, and nothing is purged. What lies between raw and this is what is kept; between this and
ours lies our code.

On SQLite like `raw.py`, on PostgreSQL (`raw_record_postgres.py`) like `raw_postgres.py`.
"""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from bench.adapters.raw import Raw, RawGroup
from bench.work import Request, Result, Work

COLUMNS = {
    "id": "BLOB NOT NULL PRIMARY KEY",
    "kind": "TEXT NOT NULL",
    "scope": "TEXT NOT NULL",
    "key": "TEXT NOT NULL",
    "operation": "TEXT NOT NULL",
    "state": "TEXT NOT NULL",
    "guarantee": "TEXT NOT NULL",
    "fingerprint": "BLOB NOT NULL",
    "version": "BLOB NOT NULL",
    "token": "BLOB NOT NULL",
    "fence": "INTEGER NOT NULL",
    "attempt": "INTEGER NOT NULL",
    "first_at": "INTEGER NOT NULL",
    "lease_until": "INTEGER",
    "holder": "BLOB",
    "settled_at": "INTEGER",
    "replay_until": "INTEGER",
    "forget_at": "INTEGER",
    "codec": "TEXT",
    "result": "BLOB",
}
CLAIMED = tuple(COLUMNS)[:15]
SETTLED = ("state", "version", "lease_until", "holder", "settled_at", "replay_until", "forget_at", "codec", "result")
CLAIM = f"INSERT INTO records ({', '.join(CLAIMED)}) VALUES ({', '.join('?' * len(CLAIMED))})"
SETTLE = f"UPDATE records SET {', '.join(f'{column} = ?' for column in SETTLED)} WHERE id = ?"
FIND = "SELECT result FROM records WHERE id = ?"
_LEASE, _REPLAY, _FORGET = 30_000_000, 86_400_000_000, 2 * 86_400_000_000
_HOLDER = os.urandom(80)


class Claim(NamedTuple):
    """What is written first."""

    id: bytes
    values: tuple[Any, ...]


def claim(key: str, request: Request) -> Claim:
    """The row of a claim, in the order of `CLAIMED`. Bytearrays, because sqlite3 takes five times as long for bytes."""
    now, chance = time.time_ns() // 1_000, os.urandom(32)
    id = sha256(key.encode()).digest()
    fingerprint = bytearray(b"\x01" + sha256(json.dumps(request, sort_keys=True).encode()).digest())
    version, token = bytearray(chance[:16]), bytearray(chance[16:])
    name = ("key", "live:acme", key, "charge", "claimed", "keyed")
    return Claim(
        id,
        (bytearray(id), *name, fingerprint, version, token, now, 1, now, now + _LEASE, bytearray(_HOLDER)),
    )


def settling(id: bytes, result: Result) -> tuple[Any, ...]:
    """What is written then, in the order of `SETTLED`, and the id."""
    now = time.time_ns() // 1_000
    kept = json.dumps(result).encode()
    return (
        *("settled", bytearray(os.urandom(16)), None, None, now, now + _REPLAY, now + _FORGET, "json/1", kept),
        bytearray(id),
    )


class RawRecord(Raw):
    """Two durable statements for a fresh operation, each of the columns of a record."""

    def __init__(self, folder: Path, work: Work) -> None:
        super().__init__(folder, work)
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        self._writer.execute(f"CREATE TABLE records ({columns}) STRICT")

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle."""
        id, values = claim(key, request)
        with self._lock:
            self._writer.execute(CLAIM, values)
        result = self._work.effect()
        with self._lock:
            self._writer.execute(SETTLE, settling(id, result))
        return result

    def replay(self, key: str, request: Request) -> Result:
        """Find."""
        row = self._reader().execute(FIND, (sha256(key.encode()).digest(),)).fetchone()
        result: Result = json.loads(row[0])
        return result


class RawRecordGroup(RawRecord, RawGroup):
    """The same statements, sent to one thread that commits whatever is queued in one transaction."""

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; each waits for its batch."""
        id, values = claim(key, request)
        self._wait(CLAIM, values)
        result = self._work.effect()
        self._wait(SETTLE, settling(id, result))
        return result

    async def afresh(self, key: str, request: Request) -> Result:
        """The blocking one: only to be checked, never timed."""
        return self.fresh(key, request)
