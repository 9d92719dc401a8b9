"""
Applies the migration, and is killed (-9) at the statement of that number: python migrate_victim.py URL NUMBER [BATCH].

Statements are counted where the driver gets them, so that no point between two of them is left out. If there are fewer,
it ends by itself with the number of rows that got a key.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from typing import Any

import psycopg

from onceward.migrate import Application, open_database

BATCH_ROWS = 15


def main(url: str, number: int, batch_rows: int = BATCH_ROWS) -> None:
    """Count down, and die."""
    left = number

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if url.startswith("sqlite"):
        connect = sqlite3.connect

        def traced(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*args, **options)
            connection.set_trace_callback(count)
            return connection

        sqlite3.connect = traced  # type: ignore[assignment]
    else:
        _count_in(psycopg.Cursor, count)
        _count_in(psycopg.RawCursor, count)
        _count_in(psycopg.Connection, count, "commit")
    with open_database(url, 60.0) as database:
        table = database.look("expenses", "", "builtin")
        print(database.apply(table, Application(batch_rows=batch_rows), lambda text: None))


def _count_in(owner: Any, count: Any, name: str = "execute") -> None:
    """Before the statement is sent, and after its answer."""
    plain = getattr(owner, name)

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        count()
        result = plain(self, *args, **options)
        count()
        return result

    setattr(owner, name, counted)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
