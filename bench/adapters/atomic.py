"""
A record and the caller's own row in one PostgreSQL transaction: ours, and the same by hand.

By hand: the key is put with INSERT ... ON CONFLICT DO NOTHING, then the business row, then the result beside the key,
and one commit. psycopg sends BEGIN by itself, so that these are five round trips. A replay is a SELECT by key.
Pipelined by hand, BEGIN travels with the key and the commit with the result: three trips, like those of the bare
transaction, which has no key. The key's answer is waited for, because the function may only run if it is ours.
"A record by hand" keeps what a record of ours has, in the same statements as "by hand".
"""

from __future__ import annotations

import json
import threading
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from bench.adapters import raw_record_postgres
from bench.adapters.batching import read_stored
from bench.adapters.raw import identity
from bench.adapters.raw_postgres import TABLE
from bench.adapters.raw_record import claim, settling
from bench.work import Request, Result, Work
from onceward import Gate

CHARGES = "CREATE TABLE IF NOT EXISTS charges (id bigserial PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL)"
CLAIM = "INSERT INTO operations (id) VALUES (%s) ON CONFLICT DO NOTHING"
SETTLE = "UPDATE operations SET result = %s WHERE id = %s"
FIND = "SELECT result FROM operations WHERE id = %s"
FIND_RECORD = "SELECT result FROM records WHERE id = %s"
INSERT = "INSERT INTO operations (id, result) VALUES (%s, %s)"
CHARGE = "INSERT INTO charges (customer, cents) VALUES (%s, %s)"


class Transactions:
    """A connection per thread, not in autocommit; the effect is a row."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        self._work, self._url = work, url
        self._local = threading.local()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE)
            connection.execute(CHARGES)

    def fresh(self, key: str, request: Request) -> Result:
        """Run once."""
        raise NotImplementedError

    def replay(self, key: str, request: Request) -> Result:
        """Give the kept result."""
        raise NotImplementedError

    async def afresh(self, key: str, request: Request) -> Result:
        """The blocking one: only to be checked, never timed."""
        return self.fresh(key, request)

    async def areplay(self, key: str, request: Request) -> Result:
        """Likewise."""
        return self.replay(key, request)

    def close(self) -> None:
        """Connections go with the process."""

    def connection(self) -> Any:
        """This thread's."""
        try:
            return self._local.connection
        except AttributeError:
            self._local.connection = psycopg.connect(self._url)
            return self._local.connection

    def charge(self, connection: Any, request: Request) -> Result:
        """The business row."""
        connection.execute(CHARGE, (request["customer"], request["amount_cents"]))
        return self._work.effect()


class Bare(Transactions):
    """The business row and its commit, without a key: sent again, it happens again."""

    keyed = False

    def fresh(self, key: str, request: Request) -> Result:
        """Charge, commit."""
        connection = self.connection()
        result = self.charge(connection, request)
        connection.commit()
        return result

    replay = fresh


class ByHand(Transactions):
    """The same statements without us."""

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, charge, settle, commit."""
        stored, connection = identity(key, request), self.connection()
        if connection.execute(CLAIM, (stored,)).rowcount != 1:
            raise RuntimeError("the key is taken")
        result = self.charge(connection, request)
        connection.execute(SETTLE, (json.dumps(result), stored))
        connection.commit()
        return result

    def replay(self, key: str, request: Request) -> Result:
        """Find."""
        connection = self.connection()
        row = connection.execute(FIND, (identity(key, request),)).fetchone()
        connection.commit()
        result: Result = json.loads(row[0])
        return result


class RecordByHand(ByHand):
    """The same statements with all that a record has: what must be found later, kept by no code of ours."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        super().__init__(folder, work, url)
        raw_record_postgres.make_table(url)

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, charge, settle, commit."""
        connection = self.connection()
        id, values = claim(key, request)
        if connection.execute(raw_record_postgres.CLAIM, values).rowcount != 1:
            raise RuntimeError("the key is taken")
        result = self.charge(connection, request)
        connection.execute(raw_record_postgres.SETTLE, settling(id, result))
        connection.commit()
        return result

    def replay(self, key: str, request: Request) -> Result:
        """Find."""
        connection = self.connection()
        row = connection.execute(FIND_RECORD, (sha256(key.encode()).digest(),)).fetchone()
        connection.commit()
        return read_stored(row[0])


class ByHandPipelined(ByHand):
    """The same statements, sent together where nothing has to be known in between."""

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, charge, settle and commit."""
        stored, connection = identity(key, request), self.connection()
        with connection.pipeline():
            claimed = connection.execute(CLAIM, (stored,))  # psycopg puts BEGIN before it, in the same piece.
        if claimed.rowcount != 1:
            raise RuntimeError("the key is taken")
        result = self.charge(connection, request)
        with connection.pipeline():
            connection.execute(SETTLE, (json.dumps(result), stored))
            connection.commit()
        return result


class ByHandLast(ByHand):
    """The business row first, then the key with its result: a racer is undone at the constraint, not held up."""

    def fresh(self, key: str, request: Request) -> Result:
        """Charge, put the key, commit."""
        connection = self.connection()
        result = self.charge(connection, request)
        connection.execute(INSERT, (identity(key, request), json.dumps(result)))
        connection.commit()
        return result


class Ours(Transactions):
    """`gate.atomic` on the caller's connection, which it begins and commits."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        super().__init__(folder, work, url)
        self._gate = Gate(url, scope="live:acme")

    def fresh(self, key: str, request: Request) -> Result:
        """Run once."""
        connection = self.connection()
        charge = partial(self.charge, connection, request)
        result: Result = self._gate.atomic(connection, key, charge, request=request, **self.options)
        return result

    replay = fresh

    def close(self) -> None:
        """Close the gate."""
        self._gate.close()


class OursLast(Ours):
    """The key is written with the result, at the end."""

    options: ClassVar[dict[str, Any]] = {"claim": "last"}
