"""
Whether operations ran, by the records of their keys: for charges whose holder died. It reads the files and asks no
worker.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from onceward._core.keys import environment_key, record_id
from onceward.gate.call_factory import KEY, STEP
from onceward.runtime.environment import REAL, Environment
from onceward.service.sql.database_files import SUFFIX, check_name
from onceward.service.sql.requests import Identity, Keyed
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS

_BUSY_SECONDS = 1.0


def operation_name(namespace: str, database: str, identity: Identity) -> str:
    """What a charge notes of an operation: where its record is, without the key itself."""
    return f"{namespace}/{database}/{record_id_of(identity).hex()}"


def record_id_of(identity: Identity) -> bytes:
    """The id of the record of a request."""
    environment = identity.scope.partition(":")[0]
    if isinstance(identity, Keyed):
        return record_id(KEY, identity.scope, environment_key(environment, identity.key))
    return record_id(STEP, identity.scope, environment_key(environment, identity.plan), identity.step)


def find_ran(root: Path, operations: Sequence[str], environment: Environment = REAL) -> dict[str, float]:
    """
    Those of these operations that ran, and how many seconds ago.

    A database that is gone says nothing. What a database cannot say now, because its file is busy, may have run just
    now: whoever asks leaves it, and asks again.
    """
    found: dict[str, float] = {}
    for operation in operations:
        namespace, database, id = operation.split("/")
        path = root / check_name(namespace, "namespace") / f"{check_name(database, 'database')}{SUFFIX}"
        try:
            at = _settled_at(path, bytes.fromhex(id))
        except DRIVER_ERRORS:
            at = environment.wall_us() if path.exists() else None
        if at is not None:
            found[operation] = max(0.0, (environment.wall_us() - at) / 1_000_000)
    return found


def _settled_at(path: Path, id: bytes) -> int | None:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'onceward_records'").fetchall():
            return None
        row = connection.execute("SELECT settled_at FROM onceward_records WHERE id = ?", (id,)).fetchone()
        return None if row is None or row[0] is None else int(row[0])
