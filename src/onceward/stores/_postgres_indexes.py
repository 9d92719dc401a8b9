"""
The indexes of schema 3 in a table that is already large: made and dropped beside its writers, one statement at a time.

`postgres_0003_due.sql` makes them in a small table itself, and its text is the only one: here it is read. Each
statement is a transaction of its own, so a process that dies in between leaves a table in which everything works, and
whoever runs this again goes on from there. An index that was left unfinished is dropped and made anew.

Until it is done, records are written and replayed as always; only purges and listings of unsettled records are slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from onceward.runtime.environment import REAL
from onceward.stores._migration_scripts import migration_scripts
from onceward.stores._postgres_functions import Looks
from onceward.stores._postgres_rows import MIGRATION_LOCK

INDEX_LOCK = MIGRATION_LOCK + 1
"""Held while indexes are made: one process does it, and the others wait until it has."""
LOCK_SECONDS = 2
"""How long a statement may wait that others wait behind: an index over all partitions."""
TRIES = 30
PAUSE_SECONDS = 0.5

_MADE = re.compile(r"CREATE INDEX IF NOT EXISTS (\w+) ON onceward_records (.+?);")
_DROPPED = re.compile(r"DROP INDEX IF EXISTS ([\w, ]+);")
_PARTS = """SELECT relid::regclass::text, relname FROM pg_partition_tree(to_regclass('onceward_records'))
    JOIN pg_class ON oid = relid WHERE isleaf"""
_KNOWN = """SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid IN (SELECT to_regclass('onceward_records')
    UNION ALL SELECT relid FROM pg_partition_tree(to_regclass('onceward_records')))"""


class IndexStep(NamedTuple):
    """One statement, and whether others wait while it waits."""

    sql: str
    blocks: bool = False


class IndexPlan(NamedTuple):
    """The indexes of the latest schema: how each is made, and which are not needed any more."""

    made: dict[str, str]
    dropped: tuple[str, ...]


@cache
def index_plan() -> IndexPlan:
    """As the migration says it."""
    [script] = [text for number, text in migration_scripts("onceward.stores", "postgres") if number == 3]
    [dropped] = _DROPPED.findall(script)
    return IndexPlan(dict(_MADE.findall(script)), tuple(dropped.split(", ")))


def index_steps(look: Looks) -> list[IndexStep]:
    """What is left to do, in order. Nothing is changed."""
    plan, parts, known = index_plan(), look.rows(_PARTS), dict(look.rows(_KNOWN))
    steps: list[IndexStep] = []
    for name, how in plan.made.items():
        if not known.get(name):
            steps += _partitioned(name, how, parts, known) if parts else _whole(name, how, known)
    for name in plan.dropped:
        if name in known:
            steps.append(IndexStep(f"DROP INDEX {'' if parts else 'CONCURRENTLY '}IF EXISTS {name}", bool(parts)))
    return steps


def _whole(name: str, how: str, known: dict[str, bool]) -> Iterator[IndexStep]:
    if name in known:  # It was left unfinished.
        yield IndexStep(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    yield IndexStep(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON onceward_records {how}")


def _partitioned(name: str, how: str, parts: list[Any], known: dict[str, bool]) -> Iterator[IndexStep]:
    """In each partition, beside its writers; then one over all of them, which takes those over as they are."""
    for part, part_name in parts:
        its = f"{part_name}_{name.removeprefix('onceward_')}"
        if known.get(its):
            continue
        if its in known:
            yield IndexStep(f"DROP INDEX CONCURRENTLY IF EXISTS {its}")
        yield IndexStep(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {its} ON {part} {how}")
    yield IndexStep(f"CREATE INDEX IF NOT EXISTS {name} ON onceward_records {how}", blocks=True)


def index_sql() -> str:
    """The same for an administrator, who runs it outside of a transaction."""
    plan = index_plan()
    made = [
        f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON onceward_records {how};" for name, how in plan.made.items()
    ]
    dropped = [f"DROP INDEX CONCURRENTLY IF EXISTS {name};" for name in plan.dropped]
    return "\n".join(made + dropped)


@contextmanager
def alone(execute: Callable[[str], Any]) -> Iterator[None]:
    """
    Hold the lock, on a connection of its own that is used for nothing else, for the length of a `with` block.

    It is asked for again and again. Whoever waited for it in a statement would have a snapshot that CREATE INDEX
    CONCURRENTLY waits for, and both would wait for each other.
    """
    execute("BEGIN")
    execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    while not execute(f"SELECT pg_try_advisory_xact_lock({INDEX_LOCK})").fetchone()[0]:
        REAL.sleep(PAUSE_SECONDS)
    try:
        yield
    finally:
        execute("ROLLBACK")
