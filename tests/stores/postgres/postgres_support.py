"""What the tests of this folder share: both colours behind one handle, and another session that gets in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from onceward._core.record import Write
from onceward.stores import _postgres_rows as rows
from servers.handles import COLOURS, Handle, handle

__all__ = ["COLOURS", "Handle", "handle", "query", "session"]


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


def query(url: str, sql: str) -> list[Any]:
    """The rows of a statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []
