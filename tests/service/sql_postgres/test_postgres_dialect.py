"""What is told of a statement without running it, where databases are on PostgreSQL."""

from __future__ import annotations

import pytest

from onceward.service.sql.dialects import LOOKED_AT_MAX, POSTGRES, SQLITE
from onceward.service.sql.limits import DEFAULT_LIMITS, PUBLISHED


@pytest.mark.parametrize(
    ("sql", "writes"),
    [
        ("SELECT 1", False),
        ("select 'delete' as word -- insert", False),
        ("WITH a AS (SELECT 1) SELECT * FROM a", False),
        ('SELECT "update" FROM t', False),
        ("SELECT $$ insert into t $$", False),
        ("INSERT INTO t VALUES (1)", True),
        ("WITH a AS (DELETE FROM t RETURNING 1) SELECT * FROM a", True),
        ("WITH a AS (SELECT 1) MERGE INTO t USING a ON true WHEN MATCHED THEN DELETE", True),
        ("SELECT nextval('s')", True),
        ("SELECT E'\\'' , 1; DELETE FROM t", True),
        ("EXPLAIN ANALYZE UPDATE t SET a = 1", True),
        ("CREATE TABLE t (id int)", True),
        ("SELECT 1" + " " * LOOKED_AT_MAX, True),
    ],
)
@pytest.mark.fault("pg-a-write-behind-with-needs-no-key")
def test_what_may_write_is_told_before_it_is_run(sql: str, writes: bool) -> None:
    """
    By PostgreSQL's own rules of quoting, and behind WITH: an agent needs a key for it, and room is set aside.
    """
    assert (POSTGRES.may_write(sql), POSTGRES.only_reads(sql)) == (writes, not writes)


def test_each_kind_publishes_the_limits_that_it_holds() -> None:
    """
    All of them for SQLite; for PostgreSQL those that are not SQLite's own.
    """
    assert SQLITE.published(DEFAULT_LIMITS).keys() == set(PUBLISHED.values())
    assert POSTGRES.published(DEFAULT_LIMITS).keys() < set(PUBLISHED.values())
