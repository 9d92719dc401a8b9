"""
Reads the journal: runs, turns and calls as values, and the SQL that finds and deletes them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward._core.holders import Process, decode_process
from onceward._core.operation import to_datetime
from onceward.journal.notes import JournalNote, Note
from onceward.runtime.environment import Environment
from onceward.stores.tables import Row, Sql, SqlSteps

PAGE_MAX = 1_000
PRUNE_BATCH = 1_000
"""Rows that are deleted in one transaction: a few milliseconds."""


class CallView(NamedTuple):
    """One attempt at a tool call."""

    id: str
    scope: str
    run: str | None
    turn: int | None
    worker: str
    tool: str
    digest: str | None
    """Of the key: what `onceward records` and the logs show. None: there was no key."""
    fingerprint: str | None
    """Of the arguments."""
    arguments: str | None
    """As far as `redacted` told; None unless there is one."""
    outcome: str | None
    """How it ended; None: it is under way, or whoever made it was killed."""
    detail: str | None
    started_at: datetime
    finished_at: datetime | None
    call_id: str | None = None
    """The model's own name of the tool call."""
    process: Process | None = None
    """Which process made it; None in rows of the first schema."""


class TurnView(NamedTuple):
    """One turn of a run."""

    run: str
    seq: int
    status: str
    error: str | None
    begun: int
    """How often."""
    started_at: datetime
    finished_at: datetime | None


class RunView(NamedTuple):
    """One run."""

    id: str
    scope: str
    worker: str
    status: str
    """`running` without a `finished_at` is what a killed worker leaves."""
    input_ref: str | None
    error: str | None
    begun: int
    """How often: more than once, if it was resumed."""
    started_at: datetime
    finished_at: datetime | None
    attempts: int
    """At its tool calls, however they ended."""
    effects: int
    """Attempts that ran to their end: `executed`."""
    unended: int
    """Attempts without an end."""
    last_at: datetime
    """When something was last noted of it."""


_CALLS = """SELECT id, scope, run, turn, worker, tool, digest, fingerprint, arguments, outcome, detail, call_id,
    process, started_at, finished_at FROM onceward_journal_calls WHERE {} ORDER BY id {} LIMIT :limit"""
_TURNS = """SELECT run, seq, status, error, begun, started_at, finished_at FROM onceward_journal_turns
    WHERE scope = :scope AND run = :run ORDER BY seq LIMIT :limit"""
_OF_RUN = "(SELECT {} FROM onceward_journal_calls c WHERE c.scope = r.scope AND c.run = r.id{})"
_RUNS = f"""SELECT id, scope, worker, status, input_ref, error, begun, started_at, finished_at,
    {_OF_RUN.format("count(*)", "")},
    {_OF_RUN.format("count(*)", " AND c.outcome = 'executed'")}, {_OF_RUN.format("count(*)", " AND c.outcome IS NULL")},
    {_OF_RUN.format("max(coalesce(c.finished_at, c.started_at))", "")}
    FROM onceward_journal_runs r WHERE {{}} ORDER BY started_at DESC, id LIMIT :limit"""  # noqa: S608 - texts of ours
TABLES = {
    "onceward_journal_calls": "id",
    "onceward_journal_turns": "scope, run, seq",
    "onceward_journal_runs": "scope, id",
}
"""What there is by scope, with the columns of its key."""
_PRUNE = """DELETE FROM {table} WHERE ({key}) IN (
    SELECT {key} FROM {table} WHERE started_at < :now - :keep LIMIT :limit) RETURNING 1"""
_LINE = "SELECT id FROM onceward_journal_calls ORDER BY id DESC LIMIT 1 OFFSET :rows"
_BELOW = """DELETE FROM onceward_journal_calls WHERE id IN (
    SELECT id FROM onceward_journal_calls WHERE id <= :line LIMIT :limit) RETURNING 1"""


class CallFilter(NamedTuple):
    """Which attempts to show. A field that is None does not matter."""

    scope: str | None = None
    within: str | None = None
    """Scopes that belong to this one: itself, and those that begin with it and a colon."""
    run: str | None = None
    digest: str | None = None
    outcome: str | None = None
    unended: bool = False
    after: str | None = None
    """Go on after this id."""
    limit: int = 100
    oldest_first: bool = False


def calls(wanted: CallFilter) -> SqlSteps[list[CallView]]:
    """Attempts, the latest first unless `oldest_first`."""
    values = {name: value for name, value in wanted._asdict().items() if name in _ASKED and value is not None}
    where = [f"{name} = :{name}" for name in values] or ["1 = 1"]
    if wanted.within is not None:
        where.append("(scope = :within OR (scope {bytes} >= :within_low AND scope {bytes} < :within_high))")
        values |= {
            "within": wanted.within,
            "within_low": f"{wanted.within}:",
            "within_high": f"{wanted.within};",  # The character after the colon.
        }
    if wanted.unended:
        where.append("outcome IS NULL")
    if wanted.after is not None:
        where.append("id > :after" if wanted.oldest_first else "id < :after")
        values["after"] = wanted.after
    text = _CALLS.format(" AND ".join(where), "ASC" if wanted.oldest_first else "DESC")
    rows = yield Sql(text, {**values, "limit": check_limit(wanted.limit)})
    return [CallView._make((*row[:11], *_times(row), row[11], _process(row[12]))) for row in rows]


_ASKED = ("scope", "run", "digest", "outcome")


def turns(scope: str, run: str) -> SqlSteps[list[TurnView]]:
    """The turns of a run, in order."""
    rows = yield Sql(_TURNS, {"scope": scope, "run": run, "limit": PAGE_MAX})
    return [TurnView._make((*row[:-2], *_times(row))) for row in rows]


def runs(scope: str | None, id: str | None, limit: int) -> SqlSteps[list[RunView]]:
    """Runs, the latest first."""
    values: dict[str, Any] = {"scope": scope, "id": id}
    values = {name: value for name, value in values.items() if value is not None}
    where = " AND ".join(f"{name} = :{name}" for name in values) or "1 = 1"
    rows = yield Sql(_RUNS.format(where), {**values, "limit": check_limit(limit)})
    return [RunView._make((*row[:7], *_times(row[:9]), *row[9:12], _last(row))) for row in rows]


def prune(keep_us: int) -> SqlSteps[int]:
    """Delete some of what began longer ago; how many rows."""
    deleted = 0
    for table, key in TABLES.items():
        text = _PRUNE.format(table=table, key=key)
        deleted += len((yield Sql(text, {"keep": keep_us, "limit": PRUNE_BATCH})))
    return deleted


def prune_notes(environment: Environment, retain_seconds: float) -> list[JournalNote]:
    """Notes that delete some of what began longer ago: for a journal that is kept without anybody looking after it."""
    values, at = {"keep": round(retain_seconds * 1_000_000), "limit": PRUNE_BATCH}, environment.monotonic()
    texts = (_PRUNE.format(table=table, key=key) for table, key in TABLES.items())
    return [Note(text, values, at) for text in texts]


def prune_beyond(rows: int) -> SqlSteps[int]:
    """Delete some of the oldest attempts beyond so many; how many rows."""
    found = yield Sql(_LINE, {"rows": rows})
    if not found:
        return 0
    return len((yield Sql(_BELOW, {"line": found[0][0], "limit": PRUNE_BATCH})))


def check_limit(limit: int) -> int:
    """Return a page's size if it is allowed."""
    if isinstance(limit, int) and 1 <= limit <= PAGE_MAX:
        return limit
    raise ConfigurationError(f"limit must be a whole number from 1 to {PAGE_MAX}")


def _times(row: Row) -> tuple[datetime, datetime | None]:
    began, ended = row[-2:]
    return to_datetime(began), None if ended is None else to_datetime(ended)


def _last(row: Row) -> datetime:
    """The latest of a run's own instants and of its attempts'."""
    return to_datetime(max(at for at in (row[7], row[8], row[12]) if at is not None))


def _process(stored: str | None) -> Process | None:
    try:
        return None if stored is None else decode_process(bytes.fromhex(stored))
    except ValueError:
        return None
