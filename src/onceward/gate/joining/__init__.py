"""
Joining the caller's own transaction: one small adapter per database library.

An adapter performs four effects on the caller's connection (begin, put, commit, rollback) and nothing else; what
they are for is decided in `_core/joined.py`. `join` finds the adapter by the connection's type, without importing
any library that is not already in use.
"""

from __future__ import annotations

from typing import Any, Protocol

from onceward._core.errors import ConfigurationError
from onceward._core.record import Standing, Write


class Joined(Protocol):
    """The caller's connection, as the flow of atomic mode needs it."""

    def begin(self) -> bool:
        """Open a transaction (True) or, inside one, a savepoint (False)."""

    def put(self, write: Write, expect: bytes | None) -> Standing:
        """Same as `Store.put`, inside the transaction."""

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Same as `Store.extend`, inside the transaction."""

    def commit(self) -> None:
        """End the innermost thing that `begin` opened, keeping it; `IllegalMove` if somebody else had ended it."""

    def rollback(self) -> bool:
        """End the innermost thing that `begin` opened, undoing it; False if somebody else had ended it already."""


def join(connection: Any, store: object) -> Joined:
    """The adapter for this connection; refused unless it is open on the gate's own database."""
    library = type(connection).__module__.partition(".")[0]
    bases = {base.__module__.partition(".")[0] for base in type(connection).__mro__}
    if "sqlite3" in bases or "_sqlite3" in bases:
        from onceward.gate.joining.sqlite3 import JoinedSqlite3

        return JoinedSqlite3(connection, store)
    if "psycopg" in bases:
        from onceward.gate.joining.psycopg import JoinedPsycopg

        return JoinedPsycopg(connection, store)
    raise ConfigurationError(
        f"atomic mode does not know connections of {library}.{type(connection).__name__}; it knows sqlite3.Connection "
        "and psycopg.Connection"
    )
