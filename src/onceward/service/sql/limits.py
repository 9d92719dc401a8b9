"""
How much a tenant's SQL may take: every limit with its unit and its reason.

They travel to the worker processes as they are, so all of them are plain numbers.
"""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass, fields
from typing import Any

from onceward._core.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one statement, one result, one database and one worker may take."""

    statement_seconds: float = 5.0
    """
    Processor time of a request (all statements of a batch). What takes longer is interrupted; what cannot be
    interrupted is killed with its process, half a second later.
    """
    slice_seconds: float = 0.02
    """
    Processor time that a request gets at once, before anybody's turn is long. What is not done by then is undone, and
    runs again in workers of low priority, with all of `statement_seconds`.
    """
    queue_seconds: float = 30.0
    """How long a request waits for its turn before it is refused as `locked`. Nothing was run then."""
    queue_length: int = 1_000
    """Requests that may wait for one database: past that, a thousand waiting callers is already an outage."""
    group_length: int = 64
    """Requests that share one commit. More would only make the first of them wait for the last."""
    statements: int = 100
    """Statements in one batch."""
    answer_rows: int = 10_000
    """Rows in one result. For more, page with LIMIT."""
    answer_bytes: int = 900_000
    """Bytes of one result as JSON. It has to fit into a record, and so below `value_bytes`."""
    request_bytes: int = 4_000_000
    """Bytes of one request as JSON: sql and parameters of all its statements."""
    database_bytes: int = 1 << 30
    """Size of one database file. Its log may grow to twice that before the worker is stopped from writing."""
    memory_bytes: int = 256 << 20
    """What SQLite may allocate in one worker; sorting and temporary results are in memory, too."""
    address_bytes: int = 2 << 30
    """The address space of one worker: the last resort, should anything but SQLite grow."""
    open_databases: int = 32
    """Databases that one worker keeps open; the one not used for longest is closed for another."""
    value_bytes: int = 1_000_000
    """One text or blob. Larger ones let a single instruction run for seconds, where no deadline can stop it."""
    quick_value_bytes: int = 100_000
    """
    One text or blob beside `instr`, `replace`, LIKE or GLOB, in the workers where nobody may be kept waiting: looking
    for half of a megabyte in a megabyte is one instruction of five seconds. Larger ones go to the others.
    """
    sql_bytes: int = 100_000
    """The text of one statement."""
    columns: int = 200
    parameters: int = 1_000
    expression_depth: int = 100
    compound_selects: int = 50
    instructions: int = 100_000
    """Instructions of one compiled statement: enough for VALUES of a thousand rows."""
    compiled_names: int = 10_000
    """Tables, columns and functions that a statement names, views taken apart: views of views can double it each."""
    function_arguments: int = 100
    pattern_bytes: int = 200
    """A LIKE or GLOB pattern: matching takes pattern times text, in one instruction."""
    trigger_depth: int = 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0 or value == float("inf"):
                raise ConfigurationError(f"the limit {field.name} must be a number above zero, not {str(value)[:40]!r}")
        if self.answer_bytes + 50_000 > self.value_bytes:
            raise ConfigurationError(
                "answer_bytes must be at least 50,000 below value_bytes: an answer is stored in a record, as one value"
            )

    def document(self) -> dict[str, Any]:
        """As plain data, for a worker."""
        return asdict(self)

    def of_sqlite(self) -> dict[int, int]:
        """The limits for `sqlite3.Connection.setlimit`."""
        return {
            sqlite3.SQLITE_LIMIT_LENGTH: self.value_bytes,
            # The engine puts a few characters in front of every statement.
            sqlite3.SQLITE_LIMIT_SQL_LENGTH: self.sql_bytes + 16,
            sqlite3.SQLITE_LIMIT_COLUMN: self.columns,
            sqlite3.SQLITE_LIMIT_EXPR_DEPTH: self.expression_depth,
            sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: self.compound_selects,
            sqlite3.SQLITE_LIMIT_VDBE_OP: self.instructions,
            sqlite3.SQLITE_LIMIT_FUNCTION_ARG: self.function_arguments,
            sqlite3.SQLITE_LIMIT_ATTACHED: 0,
            sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: self.pattern_bytes,
            sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: self.parameters,
            sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: self.trigger_depth,
            sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
        }


PUBLISHED = {
    "statement_seconds": "statementSeconds",
    "queue_seconds": "queueSeconds",
    "queue_length": "queuedRequestsMax",
    "statements": "statementsMax",
    "answer_rows": "resultRowsMax",
    "answer_bytes": "resultBytesMax",
    "request_bytes": "requestBytesMax",
    "database_bytes": "databaseBytesMax",
    "value_bytes": "valueBytesMax",
    "sql_bytes": "sqlBytesMax",
    "columns": "columnsMax",
    "parameters": "parametersMax",
    "expression_depth": "expressionDepthMax",
    "compound_selects": "compoundSelectsMax",
    "function_arguments": "functionArgumentsMax",
    "pattern_bytes": "patternBytesMax",
    "trigger_depth": "triggerDepthMax",
}
"""Limits that a caller can see coming, and their names in the published contract."""

DEFAULT_LIMITS = Limits()
"""The limits of a tenant for whom nothing else is set."""
