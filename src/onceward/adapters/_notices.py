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
def collect_notices(connection: Any, listener: NoticeListener) -> Iterator[None]:
    """Listen on a connection of psycopg, asyncpg, pg8000 or psycopg2 for the length of a block."""
    if hasattr(connection, "add_notice_handler"):  # psycopg
        connection.add_notice_handler(listener)
        try:
            yield
        finally:
            connection.remove_notice_handler(listener)
    elif hasattr(connection, "add_log_listener"):  # asyncpg

        def on_message(_: object, message: Any) -> None:
            severity = getattr(message, "severity_en", None) or message.severity
            listener.hear(severity, message.sqlstate, getattr(message, "server_source_function", None))

        connection.add_log_listener(on_message)
        try:
            yield
        finally:
            connection.remove_log_listener(on_message)
    else:
        before = list(getattr(connection, "notices", ()))
        yield
        known = {id(notice) for notice in before}  # They keep the last few, so that counting would not do.
        for notice in getattr(connection, "notices", ()):
            if id(notice) not in known:
                _read(notice, listener)


def _read(notice: Any, listener: NoticeListener) -> None:
    if isinstance(notice, dict):  # pg8000
        fields = {field: value.decode(errors="replace") for field, value in notice.items()}
        listener.hear(fields.get(b"V", fields.get(b"S")), fields.get(b"C"), fields.get(b"R"))
    elif isinstance(notice, str) and _IN_WORDS in notice:  # psycopg2
        listener.hear("WARNING", "01000", None)
