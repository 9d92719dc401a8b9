"""The limit of a fresh call on PostgreSQL: the rows that a record takes, by hand (see `raw_record.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from bench.adapters.batching import read_stored
from bench.adapters.raw_postgres import RawPostgres
from bench.adapters.raw_record import CLAIMED, COLUMNS, SETTLED, claim, settling
from bench.work import Request, Result, Work

_KINDS = {"BLOB": "bytea", "INTEGER": "bigint", "TEXT": "text"}
_TABLE = ", ".join(f"{name} {_KINDS[kind.split()[0]]} {kind.partition(' ')[2]}" for name, kind in COLUMNS.items())
CLAIM = f"INSERT INTO records ({', '.join(CLAIMED)}) VALUES ({', '.join(['%s'] * len(CLAIMED))}) ON CONFLICT DO NOTHING"
_CLAIM_OR_GET = f"WITH claimed AS ({CLAIM} RETURNING id) SELECT result FROM records WHERE id = %s"
SETTLE = f"UPDATE records SET {', '.join(f'{column} = %s' for column in SETTLED)} WHERE id = %s"


def make_table(url: str) -> None:
    """The table of records, and its index of what is due."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS records ({_TABLE}) WITH (fillfactor = 80)")
        connection.execute("CREATE INDEX IF NOT EXISTS due ON records (first_at)")


class RawRecordPostgres(RawPostgres):
    """Two durable statements for a fresh operation, the first of them for a replay."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        super().__init__(folder, work, url)
        make_table(url)

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; or find."""
        connection: Any = self._connection()
        id, values = claim(key, request)
        found = connection.execute(_CLAIM_OR_GET, (*values, id)).fetchone()
        if found is not None:
            return read_stored(found[0])
        result = self._work.effect()
        connection.execute(SETTLE, settling(id, result))
        return result

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """The blocking one: only to be checked, never timed."""
        return self.fresh(key, request)

    areplay = afresh
