"""
PostgreSQL's notices on the caller's connection, whichever driver it uses.

A commit that did not wait for its synchronous standby succeeds with a warning (see
`onceward.stores._postgres_errors.NoticeListener`). Each driver reports notices in its own way; psycopg2 reports only
the text, which is recognised in English.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceward.stores._postgres_errors import NoticeListener

_IN_WORDS = "synchronous replication"


@contextmanager
def collect_notices(connection: Any, heard: NoticeListener) -> Iterator[None]:
    """Listen on a connection of psycopg, asyncpg, pg8000 or psycopg2 for the length of a block."""
    if hasattr(connection, "add_notice_handler"):  # psycopg
        connection.add_notice_handler(heard)
        try:
            yield
        finally:
            connection.remove_notice_handler(heard)
    elif hasattr(connection, "add_log_listener"):  # asyncpg

        def listener(_: object, message: Any) -> None:
            severity = getattr(message, "severity_en", None) or message.severity
            heard.hear(severity, message.sqlstate, getattr(message, "server_source_function", None))

        connection.add_log_listener(listener)
        try:
            yield
        finally:
            connection.remove_log_listener(listener)
    else:
        before = list(getattr(connection, "notices", ()))
        yield
        known = {id(notice) for notice in before}  # They keep the last few, so that counting would not do.
        for notice in getattr(connection, "notices", ()):
            if id(notice) not in known:
                _read(notice, heard)


def _read(notice: Any, heard: NoticeListener) -> None:
    if isinstance(notice, dict):  # pg8000
        told = {field: value.decode(errors="replace") for field, value in notice.items()}
        heard.hear(told.get(b"V", told.get(b"S")), told.get(b"C"), told.get(b"R"))
    elif isinstance(notice, str) and _IN_WORDS in notice:  # psycopg2
        heard.hear("WARNING", "01000", None)
