"""
`Result` and `BatchResult`: the results of SQL statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onceward.protocol.sql_values import from_json
from onceward.protocol.usage_header import CallUsage


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one statement. Blobs are bytes again, and whole numbers of any size are ints."""

    columns: list[str]
    rows: list[list[Any]]
    rows_read: int
    rows_written: int
    """How many rows the first run wrote; a replay writes none."""
    last_insert_rowid: int | None
    meta: Mapping[str, Any]
    replayed: bool = False
    """True: this is the first result under this key; the statement was not run now."""
    usage: CallUsage | None = field(default=None, compare=False)
    """What this call cost and what is left, as the service says it. None: of a local file, or nothing was said."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows by column name."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def one(self) -> dict[str, Any] | None:
        """The first row by column name, or None."""
        return next(iter(self), None)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch, statement by statement."""

    results: list[Result]
    rows_written: int
    replayed: bool = False
    usage: CallUsage | None = field(default=None, compare=False)
    """What this call cost and what is left, of all its statements together."""


def result_of(document: Mapping[str, Any], replayed: bool, usage: CallUsage | None = None) -> Result:
    """The result of one statement, from its response."""
    return Result(
        columns=list(document["columns"]),
        rows=[[from_json(value) for value in row] for row in document["rows"]],
        rows_read=document["rowsRead"],
        rows_written=document["rowsWritten"],
        last_insert_rowid=from_json(document["lastInsertRowid"]),
        meta=document["meta"],
        replayed=replayed,
        usage=usage,
    )


def batch_of(document: Mapping[str, Any], replayed: bool, usage: CallUsage | None = None) -> BatchResult:
    """The result of a batch, from its response."""
    results = [result_of(one, replayed) for one in document["results"]]
    return BatchResult(results, document["rowsWritten"], replayed, usage)
