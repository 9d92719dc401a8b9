"""
Steps over SQL: rules yield statements and get rows, on SQLite and PostgreSQL alike.

A rule is a generator of `Sql`, run inside one transaction that the driver opens and ends. Statements are written once,
in what SQLite and PostgreSQL have in common, with a few words that a driver replaces:

    :name    a value
    :now     the database's time, in microseconds since 1970 (PostgreSQL: the server's; SQLite: the host's)
    {lock}   at the end of a SELECT: hold the row until the transaction ends (SQLite has its one write lock)
    {free}   the same, but leave out rows that somebody else holds
    {bytes}  behind a text that a range is taken of: compare its bytes, and not by the rules of the database's language
    {rows}   in place of a VALUES list, also behind WITH: the statement's rows, each value of the type that is said
    {turn}   in a SELECT's list: wait for everybody who asked with the same :turn, until their transactions have ended

Steps are driven by `onceward.runtime.flow_driver.drive_steps`. What a caller asks for is a flow over `Transact` and
`ReadTables`, driven by `onceward.runtime.flow_driver` in both colours.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from onceward.runtime import failpoints

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]


class Sql(NamedTuple):
    """A statement; the result is its rows."""

    text: str
    values: Mapping[str, Any]
    rows: Sequence[Row] | None = None
    """What stands for {rows}: all of the statement's values then, so that it has no `values`."""
    types: tuple[str, ...] = ()
    """Of a row's columns: `text` or `bigint`."""


SqlSteps: TypeAlias = Generator[Sql, list[Row], T]
RunSql: TypeAlias = Callable[[Sql], list[Row]]
"""Runs one statement in the transaction that is open."""


class Transact(NamedTuple):
    """Run these steps in a transaction that may write; the result is theirs."""

    at: str
    """Names the failpoints on both sides."""
    steps: Callable[[], SqlSteps[Any]]


class ReadTables(NamedTuple):
    """Run these steps, which only read; the result is theirs."""

    steps: Callable[[], SqlSteps[Any]]


Flow: TypeAlias = Generator[Any, Any, T]
"""Over `Transact`, `ReadTables`, and whatever else its shell performs."""


def transact(at: str, steps: Callable[[], SqlSteps[T]]) -> Flow[T]:
    """`Transact`, with the type of its result."""
    result: T = yield Transact(at, steps)
    return result


def read_tables(steps: Callable[[], SqlSteps[T]]) -> Flow[T]:
    """`ReadTables`, with the type of its result."""
    result: T = yield ReadTables(steps)
    return result


def declare_failpoints(boundaries: Mapping[str, str]) -> None:
    """Make the failpoints of transactions known: name -> what it does."""
    for at, what in boundaries.items():
        failpoints.declare(f"{at}.before", f"just before {what}")
        failpoints.declare(f"{at}.written", f"{what}, and not yet committed")
        failpoints.declare(f"{at}.after", f"just after {what}")


class TablesDriver(Protocol):
    """A database. Errors are those of the stores; safe for threads."""

    def transact(self, at: str, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps in one transaction that may write: all of it, or nothing."""

    def look(self, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps that only read."""

    def wipe(self) -> None:
        """After an erasure: let nothing deleted linger in a log, as far as nobody is reading there."""

    def close(self) -> None:
        """Let go of files and connections."""


class SharedTransactionDriver(TablesDriver, Protocol):
    """A database whose transactions can hold more than steps."""

    dialect: str
    """`sqlite` or `postgres`."""

    def share(self, at: str, work: Callable[[Any, RunSql], T]) -> T:
        """Run work that needs the connection in one transaction: a record that commits with the rows."""


def one_or_none(rows: list[Row]) -> Row | None:
    """The only row, or none."""
    return rows[0] if rows else None
