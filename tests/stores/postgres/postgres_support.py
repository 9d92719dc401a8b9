"""What the tests of this folder share: both colours behind one handle, and another session that gets in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from onceward._core.record import Write
from onceward.stores import _postgres_rows as rows
from onceward.stores import _postgres_upkeep as upkeep
from servers.handles import COLOURS, Handle, handle

__all__ = ["COLOURS", "Handle", "handle", "problems", "query", "session"]


@contextmanager
def session(url: str) -> Iterator[Callable[..., None]]:
    """Another session with a transaction open: puts in it, and is rolled back unless it is told to commit."""
    with psycopg.connect(url) as connection:

        def put(write: Write, expect: bytes | None = None) -> None:
            sql = rows.JOINED_CLAIM if expect is None else rows.JOINED_SWAP
            connection.execute(sql, rows.put_parameters(write, expect, "5s", False))

        put.connection = connection  # type: ignore[attr-defined]
        yield put
        connection.rollback()


EMPTY = ("DELETE FROM onceward_records", "UPDATE onceward_meta SET value = 0 WHERE name = 'fence_floor'")
"""What one test leaves is not the next one's, a fence ahead of the clock least of all."""


def query(url: str, sql: str) -> list[Any]:
    """The rows of a statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def problems(url: str) -> dict[str, str]:
    """What `onceward store check` finds wrong, besides the disk that the tests' servers do not wait for."""
    return {one.name: one.detail for one in upkeep.check(url) if not one.ok and one.name != "fsync"}
