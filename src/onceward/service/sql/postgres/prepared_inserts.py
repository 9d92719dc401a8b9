"""
Tenants' inserts that a session has prepared, because it has seen them before: the server does not parse them anew.

A parameter keeps the type that its column had when the statement was prepared. If the column gets another type, a value
would be read as the old type and turned into the new one, and a time would lose its zone without a word. So an insert
is prepared together with a check, which has the insert's columns as its result: PostgreSQL refuses a prepared statement
whose result has changed its type. The check runs behind the insert in the same transaction, while the insert's lock
keeps the table as it is. Whatever an insert fails with, it is sent again as a text before that is believed.

Both are prepared in one transaction, under the lock that the insert takes when it is parsed. If that transaction does
not commit, both are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from onceward.service.sql.postgres.statement_checker import InsertTarget

USES_BEFORE: Final = 2
"""How often a session has seen a text before it prepares it: to prepare costs two uses of what it saves."""
PARTS_MAX: Final = 500
"""
Of what a session prepares until it is closed: an insert is one, and each of its columns.

A server process keeps about 12 KiB for each of them, however often it is used. What comes later is sent as text.
"""
CHARACTERS_MAX: Final = 1_000
"""Of a text that is prepared."""
SEEN_MAX: Final = 1_000

SECONDS: Final = (
    "SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) "
    "pg_catalog.transaction_timestamp())"
)
"""Seconds since the transaction began, asked as the tenant: so every name in it says where it is from."""


class PreparedInsert:
    """One insert of one tenant, under names of ours."""

    __slots__ = ("check_name", "check_sql", "is_established", "name")

    def __init__(self, number: int, schema: str, target: InsertTarget) -> None:
        self.name = b"onceward_insert_%d" % number
        self.check_name = b"onceward_check_%d" % number
        self.check_sql = check_statement(schema, target)
        self.is_established = False
        """Whether the transaction that prepared it has committed."""


class _Seen(NamedTuple):
    uses: int
    prepared: PreparedInsert | None = None


class PreparedInserts:
    """Those of one session."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, bytes], _Seen] = OrderedDict()
        self._made = self._parts = 0

    def find(self, schema: str, sql: bytes, target: InsertTarget | None) -> PreparedInsert | None:
        """An insert that is used now, if it is prepared or should be; else None, and it is remembered."""
        if target is None or len(sql) > CHARACTERS_MAX:
            return None
        place = schema, sql
        seen = self._seen.get(place)
        if seen is not None and seen.prepared is not None:
            self._seen.move_to_end(place)
            return seen.prepared
        uses = 0 if seen is None else seen.uses
        parts = self._parts + 1 + len(target.columns)
        if uses < USES_BEFORE or parts > PARTS_MAX:
            self._keep(place, _Seen(uses + 1))
            return None
        self._made, self._parts = self._made + 1, parts
        made = PreparedInsert(self._made, schema, target)
        self._keep(place, _Seen(uses, made))
        return made

    def forget(self, schema: str, sql: bytes) -> None:
        """It does not fit any more, or was not prepared: the next one has another name."""
        self._seen.pop((schema, sql), None)

    def _keep(self, place: tuple[str, bytes], seen: _Seen) -> None:
        self._seen[place] = seen
        self._seen.move_to_end(place)
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)


def check_statement(schema: str, target: InsertTarget) -> bytes:
    """
    The time, and a NULL of the type of each column of an insert. It reads no row: the planner leaves the columns out.

    A prepared statement is parsed anew when a table of its text has changed, also where its plan does not read that.
    """
    table = f"{_quoted(schema)}.{_quoted(target.table)}"
    columns = (f", CASE WHEN false THEN (SELECT {_quoted(one)} FROM {table}) END" for one in target.columns)  # noqa: S608
    return (SECONDS + "".join(columns)).encode()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
