"""Filling a store with settled records as a gate leaves them, faster than a gate could."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from onceward._core.codec import encode
from onceward._core.keys import record_id
from onceward._core.record import NOW, Write

SECOND = 1_000_000
DAY = 86_400 * SECOND
DUE_MAX = 10_000
AT_ONCE = 50_000
"""Rows in a transaction."""
PIPELINED = 1_000
"""Commands in a round trip."""


class Filled(NamedTuple):
    """What it came to."""

    bytes: int


class Row(NamedTuple):
    """One settled record; durations in microseconds."""

    key: str
    settled_ago: int
    replay_left: int
    forget_left: int
    fingerprint: bytes
    version: bytes
    token: bytes


def rows(many: int) -> Iterator[Row]:
    """
    Records in the random order of ids that claims come in, so that pages are as full.

    Of every ten (at most so many in all) the first is to be forgotten and the second to be shrunk.
    """
    chance = random.Random(many)
    due = min(many // 10, DUE_MAX)
    for number in range(many):
        settled_ago = chance.randrange(SECOND, DAY // 2)
        # By a second only: a server that drops by itself what is long past would leave a purge nothing to do.
        replay_left = DAY - settled_ago if number >= 2 * due else -SECOND
        forget_left = replay_left + 30 * DAY if number >= due else -SECOND
        key = f"live:charge:order-{number:08d}"
        draws = b"\x01" + chance.randbytes(32), chance.randbytes(16), chance.randbytes(16)
        yield Row(key, settled_ago, replay_left, forget_left, *draws)


_KEPT = encode({"charge": "ch_000000000001", "status": "succeeded", "amount": 129900})


def _columns(row: Row, now: int) -> tuple[Any, ...]:
    """In the order of the table, which is the same in every database."""
    settled = now - row.settled_ago
    return (
        *(record_id("key", "live:acme", row.key), "key", "live:acme", row.key, "charge", None, "settled", "blind", 0),
        *(row.fingerprint, row.version, row.token, settled, 1, settled, settled),
        *(None, now + row.replay_left, now + row.forget_left, _KEPT.codec, _KEPT.data, None, None),
    )


def fill(url: str, many: int) -> Filled:
    """Straight into the tables of a store whose schema is there."""
    scheme = url.partition(":")[0]
    return {"sqlite": _fill_sqlite, "postgresql": _fill_postgres, "redis": _fill_redis}[scheme](url, many)


def _fill_sqlite(url: str, many: int) -> Filled:
    path = Path(url.removeprefix("sqlite:///"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -600000")
    insert = f"INSERT INTO onceward_records VALUES ({', '.join('?' * 23)})"
    made, now = rows(many), time.time_ns() // 1000
    for begin in range(0, many, AT_ONCE):
        connection.execute("BEGIN")
        chunk = (_columns(next(made), now) for _ in range(min(AT_ONCE, many - begin)))
        connection.executemany(insert, chunk)
        connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)
    return Filled(path.stat().st_size)


def _fill_postgres(url: str, many: int) -> Filled:
    import psycopg

    from onceward.stores._postgres_rows import COLUMNS

    now = time.time_ns() // 1000
    with psycopg.connect(url, autocommit=True) as connection:
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY onceward_records ({', '.join(COLUMNS)}, due_at) FROM STDIN".encode()) as copy,
        ):
            for row in rows(many):
                # Kept for less than a day: its settle has set when purge looks.
                copy.write_row((*_columns(row, now), now + row.replay_left if row.replay_left < 0 else None))
        connection.execute("VACUUM ANALYZE onceward_records")
        connection.execute("CHECKPOINT")
        [(size,)] = connection.execute("SELECT pg_total_relation_size('onceward_records')").fetchall()
    return Filled(size)


def _fill_redis(url: str, many: int) -> Filled:
    """Through the store's own script, in pipelines: what is to be forgotten last, so that it is still there."""
    import redis

    from onceward.stores._redis_connection import RedisConnection
    from onceward.stores._redis_packed_rows import PackedRows
    from onceward.stores._redis_rows import SHARDS
    from onceward.stores._redis_url import parse
    from onceward.stores.redis import RedisStore

    address = parse(url)
    client = redis.Redis.from_url(url.partition("?")[0])
    RedisStore(url).close()
    before, packed = client.info("memory")["used_memory"], PackedRows(address.options.prefix, SHARDS)
    link = RedisConnection(address)
    link.open()
    commands: list[Any] = []
    for row in sorted(rows(many), key=lambda row: -row.forget_left):
        commands.append(*packed.put(_write(row), None))
        if len(commands) == PIPELINED:
            _sent(link, commands)
            commands = []
    _sent(link, commands)
    link.drop()
    used: int = client.info("memory")["used_memory"] - before
    client.close()
    return Filled(used)


def _sent(link: Any, commands: list[Any]) -> None:
    for answer in link.exchange(commands) if commands else ():
        if isinstance(answer, Exception):
            raise answer


def _write(row: Row) -> Write:
    return Write(
        *(record_id("key", "live:acme", row.key), "key", "live:acme", row.key, "charge", None, "settled", "blind", 0),
        *(row.fingerprint, row.version, row.token, 1, 1, NOW, NOW),
        # A put never ends in the past: what is due here is due at once.
        *(None, max(row.replay_left, 1), max(row.forget_left, 1), _KEPT.codec, _KEPT.data, None),
        rise=True,
    )
