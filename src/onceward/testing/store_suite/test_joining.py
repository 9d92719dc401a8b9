"""Joining: a transaction of the caller's stays the caller's, and nothing is kept that it did not commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward._core.errors import IllegalMove
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.test_disciplines import Spoiled, connection, counted

__all__ = ["TestJoining", "connection"]


class TestJoining:
    """For stores that say that they join, and let the suite have a connection."""

    def test_in_the_callers_own_transaction_the_caller_decides(
        self, do: Do, gate: Callable[..., Any], connection: Any
    ) -> None:
        """
        Rolled back, neither the rows nor the record stand; committed, all of them do.
        """
        ours, seen = gate(), []
        for end in (_checked(connection).rollback, connection.commit):
            _insert(connection)
            do(ours.atomic(connection, "k", lambda: _insert(connection)))
            end()
            seen.append((counted(connection), do(ours.records.get("k")) is not None))
            connection.rollback()  # Counting may have begun a transaction.

        assert seen == [(0, False), (2, True)]

    def test_what_fails_there_undoes_only_itself(self, do: Do, gate: Callable[..., Any], connection: Any) -> None:
        """
        The caller's own row of before stands, and can be committed.
        """

        def spoil() -> None:
            _insert(connection)
            raise Spoiled

        ours = gate()
        _insert(_checked(connection))
        with pytest.raises(Spoiled):
            do(ours.atomic(connection, "k", spoil))
        connection.commit()

        assert (counted(connection), do(ours.records.get("k"))) == (1, None)

    def test_a_function_that_commits_by_itself_is_found_out(
        self, do: Do, gate: Callable[..., Any], connection: Any
    ) -> None:
        """
        Its rows stand, and no answer could commit with them: that is told, and no answer is stored.
        """

        def commit() -> str:
            _insert(connection)
            connection.commit()
            return "done"

        ours = gate()
        _checked(connection)
        with pytest.raises(IllegalMove):
            do(ours.atomic(connection, "k", commit))
        found = do(ours.records.get("k"))

        assert found is None or found.state != "settled"


def _checked(connection: Any) -> Any:
    if connection is None:
        pytest.skip("the suite has no connection that the store could join")
    return connection


def _insert(connection: Any) -> None:
    connection.cursor().execute("INSERT INTO effects VALUES ('one')")
