"""
What is in a tenant's schema: its tables and views with their columns, and about how many rows.
"""

from __future__ import annotations

import json
from typing import Final

from onceward.service.sql.postgres.session import PipelineStep, TenantSession
from onceward.service.sql.requests import ColumnInfo, TableInfo

TABLES_MAX: Final = 1_000
_TABLES: Final = b"""
SELECT one.relname::text, one.relkind IN ('v', 'm'), greatest(one.reltuples, 0)::bigint,
    (SELECT coalesce(json_agg(json_build_array(part.attname, format_type(part.atttypid, part.atttypmod),
            NOT part.attnotnull, EXISTS (SELECT FROM pg_index
                WHERE indrelid = one.oid AND indisprimary AND part.attnum = ANY (indkey))) ORDER BY part.attnum), '[]')
        FROM pg_attribute AS part
        WHERE part.attrelid = one.oid AND part.attnum > 0 AND NOT part.attisdropped)::text
FROM pg_class AS one JOIN pg_namespace AS space ON space.oid = one.relnamespace
WHERE space.nspname = $1::text AND one.relkind IN ('r', 'p', 'v', 'm') ORDER BY one.relname LIMIT $2::bigint
"""


async def read_tables(session: TenantSession, schema: str) -> list[TableInfo]:
    """The tables and views of a schema, by name."""
    [answer] = await session.execute(PipelineStep(_TABLES, [schema.encode(), str(TABLES_MAX).encode()]))
    return [
        TableInfo(
            name,
            "view" if is_view else "table",
            [ColumnInfo(*column) for column in json.loads(columns)],
            None if is_view else rows,
            False,
        )
        for name, is_view, rows, columns in session.rows_of(answer)
    ]
