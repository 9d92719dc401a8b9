"""
The statement that begins a write whose result is certain: it looks for the key, puts the record, becomes the tenant.

What an INSERT of plain values comes to is known before it is sent, so its record need not wait for it. Nothing of the
service's is left to do after the tenant's statements then, and the role ends with the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from onceward._core.record import Write, new_tuple
from onceward.service.sql.postgres.session import PipelineStep
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_wire import NumberedStatement, Value, numbered_statement

_FREE: Final = """set_config('lock_timeout', %(lock_ms)s::text, true),
    CASE 1 / CASE WHEN EXISTS (SELECT FROM onceward_records WHERE id = %(id)s::bytea) THEN 0 ELSE 1 END
    WHEN 1 THEN sqrt(CASE WHEN pg_try_advisory_xact_lock(%(lock)s::bigint) THEN 1 ELSE -1 END) END"""
"""
An error where there is a record (division by zero), or else where somebody is at it (a root), before anything is put;
and how long that may wait for somebody who puts a record without such a lock.

One expression, with a call in it that PostgreSQL has to make: what nobody reads is left out otherwise. Whoever replays
must not be stopped by the lock of another who does.
"""
_BECOME: Final = f""", {rows.DURABLE},
    set_config('search_path', %(schema)s::text, true), set_config('statement_timeout', %(statement_ms)s::text, true),
    set_config('role', %(schema)s::text, true)"""
"""Settings of this transaction, when the record is there. Whether it may write needs no word: sessions do."""
_ORDER: Final = (*(one for one in Write._fields if one != "relaxed"), "lock", "schema", "lock_ms", "statement_ms")


def record_first(records: str, record: Sequence[Value], id: bytes, tenant: Sequence[bytes]) -> PipelineStep:
    """
    Put a settled record, or fail.

    `records` is the schema of the records, `record` the values of this one, and `tenant` names its schema, which is its
    role, and its limits for locks and statements. The lock is that of any look: the first eight bytes of the id.
    """
    name, sql, _ = _putting(records)
    step: PipelineStep = new_tuple(PipelineStep, (sql, [*record, id[:8], *tenant], name, True))
    return step


@cache
def _putting(records: str) -> NumberedStatement:
    sql = rows.insert_statement(_BECOME, first=_FREE)
    return numbered_statement("record_first", rows.qualified(records, sql), _ORDER)
