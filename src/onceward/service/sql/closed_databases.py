"""
Databases that take no more writes, because they are moved elsewhere: no key may run on both sides.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from onceward.protocol.errors import SqlError, SqlKind

CLOSED_AT: Final = "closed_at"
"""The row of `onceward_meta` that closes a file, with the instant."""
_ASKED: Final = f"SELECT 1 FROM onceward_meta WHERE name = '{CLOSED_AT}'"  # noqa: S608 - a name of ours


def is_closed(connection: sqlite3.Connection) -> bool:
    """Whether a file is closed. Asked inside the transaction that would write."""
    return connection.execute(_ASKED).fetchone() is not None


def closed_error() -> SqlError:
    """What a caller is told."""
    return SqlError(
        SqlKind.READONLY,
        "this database is closed: it is moving, or has moved, to another service",
        hint="send the request there, with the same key: results from here are replayed there",
    )
