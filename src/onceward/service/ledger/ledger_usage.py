"""
What tenants hold in the ledger, for quotas: a delta is a record, and takes its texts and some hundred bytes more.
"""

from __future__ import annotations

from onceward.stores.tables import Row, SharedTransactionDriver, Sql, SqlSteps

DELTA_BYTES = 600
"""What a delta takes besides its texts: ids, hashes, and its lines in four indexes."""

_ENTRIES = """SELECT scope, count(*), coalesce(sum(length(reason) + coalesce(length(metadata), 0)), 0)
    FROM onceward_ledger_entries GROUP BY scope"""
_RECORDS = """SELECT scope, count(*), coalesce(sum(coalesce(length(result), 0) + coalesce(length(error), 0)), 0)
    FROM onceward_records GROUP BY scope"""


def measure_ledger(driver: SharedTransactionDriver) -> list[tuple[str, int, int]]:
    """What each scope holds: (scope, records, bytes)."""
    entries = driver.look(_entries)
    held = [(scope, int(number), int(size) + DELTA_BYTES * int(number)) for scope, number, size in entries]
    # On SQLite the records of its keys are in its own file; on PostgreSQL they are the store's, and counted with it.
    records = driver.look(_records) if driver.dialect == "sqlite" else []
    return held + [(scope, int(number), int(size)) for scope, number, size in records]


def _entries() -> SqlSteps[list[Row]]:
    return (yield Sql(_ENTRIES, {}))


def _records() -> SqlSteps[list[Row]]:
    return (yield Sql(_RECORDS, {}))
