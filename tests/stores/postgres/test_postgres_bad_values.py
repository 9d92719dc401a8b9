"""Values that no column holds: refused with a typed error, nothing changed, and companions are not taken along."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, handle, query
from psycopg.pq import TransactionStatus

from onceward._core.record_types import FIXED_BY_CLAIM
from onceward.adapters._transaction import join
from onceward.errors import RecordRefused
from onceward.stores import open_store
from onceward.testing.store_suite.rows import reclaimed, row, settled
from servers.postgres import needed

needed()

BAD = {
    "a number above 64 bits": {"lease": 2**63},
    "a number below 64 bits": {"first_at": -(2**63) - 1},
    "a small number above 16 bits": {"doubt": 2**15},
    "a fence above 64 bits": {"fence": 2**80},
    "half of a surrogate pair": {"operation": "\ud800"},
    "a NUL": {"operation": "a\0b"},
}
"""Ranges that no declared option can reach, but a clock that is wrong, or a store of somebody else's, can."""


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
def test_a_value_that_no_column_holds_is_refused_and_changes_nothing(
    url: str, colour: str, bad: dict[str, Any]
) -> None:
    """
    To claim, to take over, to settle, and in the middle of a batch: its own caller hears of it, and nobody else.

    What a claim has fixed is not sent again with a settle, so it cannot be wrong there.
    """
    writes = [row("test:bad", f"k{number}") for number in range(3)]
    writes[1] = writes[1]._replace(**bad)
    with handle(url, colour) as store:
        held = store.put(row("test:bad", "held")).record
        swaps = [reclaimed(held)._replace(**bad)]
        if not bad.keys() & set(FIXED_BY_CLAIM):
            swaps.append(settled(held)._replace(**bad))
        for swap in swaps:
            with pytest.raises(RecordRefused, match="cannot hold this record"):
                store.put(swap, held.version)
        with pytest.raises(RecordRefused, match="cannot hold this record"):
            store.put(writes[1])
        together = store.together([(write, None) for write in writes])
        kept = store.call("load", held.id)
    keys = query(url, "SELECT key FROM onceward_records ORDER BY key")

    assert held.version == kept.version
    assert [True, RecordRefused, True] == [getattr(one, "landed", type(one)) for one in together]
    assert keys == [("held",), ("k0",), ("k2",)]


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
def test_in_the_callers_transaction_it_is_refused_and_the_connection_is_usable(url: str, bad: dict[str, Any]) -> None:
    """
    Rolled back, the connection is at rest, and nothing stands.
    """
    store = open_store(url)
    with psycopg.connect(url) as connection:
        joined = join(connection, store)
        joined.begin()
        with pytest.raises(RecordRefused, match="cannot hold this record"):
            joined.put(row("test:bad")._replace(**bad), None)
        joined.rollback()
        found = connection.info.transaction_status, query(url, "SELECT count(*) FROM onceward_records")
    store.close()

    assert found == (TransactionStatus.IDLE, [(0,)])
