"""
A row written once, by the table's own unique constraint: the line of defence behind every gate.

`insert_once` runs one statement on the caller's connection, inside the caller's transaction, and never ends it:

    INSERT INTO "expenses" ("worker_id", "idempotency_key", "amount") VALUES (?, ?, ?)
    ON CONFLICT ("worker_id", "idempotency_key") DO NOTHING

The constraint is always named by its columns, so only a conflict with that one is a duplicate. A violation of any
other constraint is the caller's news and surfaces as the driver raised it. Nothing is caught and retried: on
PostgreSQL, an error that is caught would leave the transaction unusable.

One thing PostgreSQL does not promise: of two equal rows inserted at one moment, which break a second unique
constraint besides the key, the loser may be told of the second one. Run again, it is a duplicate like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple

from onceward._core.errors import ConfigurationError

Dialect = Literal["sqlite", "postgresql"]
Table = str | tuple[str, str]
"""A table's name, or (schema, name)."""

_NO_CONSTRAINT_SQLITE = "ON CONFLICT clause does not match"
_NO_CONSTRAINT_POSTGRESQL = "42P10"
_PLAIN_DIGITS_MAX = 100
"""Decimals up to this many digits before or after the point are written without an exponent."""


@dataclass(frozen=True, slots=True)
class Update:
    """
    What `insert_once` does to a row that is there already: overwrite these columns with the newer values.

    `touch` names a column that is set to the time of the correction, on the database's own clock.
    """

    columns: Sequence[str]
    touch: str | None = None

    def __post_init__(self) -> None:
        columns = _names(self.columns, "the columns of Update")
        if self.touch is not None:
            _quoted(self.touch)
            if self.touch in columns:
                raise ConfigurationError(
                    f"{self.touch!r} cannot be both overwritten and touched; leave it out of one of the two"
                )
        object.__setattr__(self, "columns", columns)


OnDuplicate = Literal["ignore"] | Update


def insert_once(
    connection: Any,
    table: Table,
    values: Mapping[str, Any],
    *,
    key: Sequence[str],
    on_duplicate: OnDuplicate = "ignore",
) -> int:
    """
    Insert a row unless one with the same `key` columns is there; how many rows were written now: 1, then 0.

    A duplicate is no error and changes nothing. With `on_duplicate=Update(["amount"])` it overwrites those columns of
    the row that is there, and counts as one written row. `key` needs a unique constraint on those very columns.
    Runs inside your transaction and never commits: on a `sqlite3.Connection`, a `psycopg.Connection`, SQLAlchemy's
    `Session` or `Connection`, or Django's `connection`. On SQLite a Decimal is stored as text: make its column TEXT.
    Floats are stored as the floats they are.
    """
    if not isinstance(values, Mapping) or not values:
        raise ConfigurationError("insert_once needs the row's values, by column: {'id': 'e-9', 'amount': '12.50'}")
    dialect, spelling, run = _known(connection)
    sql = _insert_sql(dialect, spelling, table, list(values), key, on_duplicate)
    if empty := [name for name in key if values[name] is None]:
        raise ConfigurationError(
            f"a key column is None: {', '.join(empty)}; NULL is never equal to NULL, so this row could be doubled"
        )
    bound = list(values.values())
    if dialect == "sqlite":
        bound = [_text(value) if isinstance(value, Decimal) else value for value in bound]
    try:
        return run(sql, bound)
    except Exception as error:
        if _says_no_constraint(error):
            raise _missing_constraint(table, key) from error
        raise


def insert_sql(
    dialect: Dialect,
    table: Table,
    columns: Sequence[str],
    key: Sequence[str],
    on_duplicate: OnDuplicate = "ignore",
) -> str:
    """The statement that `insert_once` runs, as its driver takes it; `dialect` is "sqlite" or "postgresql"."""
    return _insert_sql(dialect, dialect, table, columns, key, on_duplicate)


def _insert_sql(
    dialect: str,
    spelling: str,
    table: Table,
    columns: Sequence[str],
    key: Sequence[str],
    on_duplicate: OnDuplicate,
) -> str:
    """The statement for a database, with placeholders as this one's driver spells them."""
    if dialect not in ("sqlite", "postgresql"):
        raise ConfigurationError(f"not a dialect that insert_once speaks: {dialect!r}; say 'sqlite' or 'postgresql'")
    columns, key = _names(columns, "the columns"), _names(key, "the key")
    _check(dialect, columns, key, on_duplicate)
    placeholder = "?" if spelling == "sqlite" else "%s"
    into, names, target = (_escaped(spelling, name) for name in (_table(table), _listed(columns), _listed(key)))
    action = "DO NOTHING"
    if isinstance(on_duplicate, Update):
        changes = [f"{_quoted(name)} = EXCLUDED.{_quoted(name)}" for name in on_duplicate.columns]
        if on_duplicate.touch is not None:
            changes.append(f"{_quoted(on_duplicate.touch)} = CURRENT_TIMESTAMP")
        action = "DO UPDATE SET " + _escaped(spelling, ", ".join(changes))
    holes = ", ".join([placeholder] * len(columns))
    return f"INSERT INTO {into} ({names}) VALUES ({holes}) ON CONFLICT ({target}) {action}"  # noqa: S608 (quoted)


def _check(dialect: str, columns: tuple[str, ...], key: tuple[str, ...], on_duplicate: OnDuplicate) -> None:
    """That key and policy fit the columns, and each other."""
    # In SQLite, names that differ by ASCII case are one column.
    same: Callable[[str], str] = _lowered if dialect == "sqlite" else str
    if len({same(name) for name in columns}) < len(columns):
        raise ConfigurationError(f"a column is named twice: {', '.join(columns)}")
    if absent := [name for name in key if name not in columns]:
        raise ConfigurationError(f"the key columns must be among the values; missing: {', '.join(absent)}")
    if on_duplicate == "ignore":
        return
    if not isinstance(on_duplicate, Update):
        raise ConfigurationError(
            f"on_duplicate is 'ignore' or Update([columns], touch=column), not {on_duplicate!r}; there is no default "
            "list of columns to overwrite"
        )
    if absent := [name for name in on_duplicate.columns if name not in columns]:
        raise ConfigurationError(f"the columns of Update must be among the values; missing: {', '.join(absent)}")
    changed = [*on_duplicate.columns, *([on_duplicate.touch] if on_duplicate.touch is not None else [])]
    identity = {same(name) for name in key}
    if both := [name for name in changed if same(name) in identity]:
        raise ConfigurationError(
            f"Update would change what identifies the row: {', '.join(both)}; an identity key leaves the correctable "
            "fields out. Key on what stays the same when the row is corrected"
        )


class _Known(NamedTuple):
    """A connection that can be written to: what it is to, how it spells placeholders, and how it runs a statement."""

    dialect: str
    spelling: str
    run: Callable[[str, list[Any]], int]


def _known(connection: Any) -> _Known:
    # Whoever has such a connection has imported its library; nobody else needs it.
    for base in type(connection).__mro__:
        match base.__module__.partition(".")[0]:
            case "sqlite3" | "_sqlite3" if isinstance(connection, sys.modules["sqlite3"].Connection):
                return _Known("sqlite", "sqlite", lambda sql, values: connection.execute(sql, values).rowcount)
            case "psycopg" if isinstance(connection, sys.modules["psycopg"].Connection):
                return _Known("postgresql", "postgresql", partial(_run_psycopg, connection))
            case "sqlalchemy" | "django" as library:
                writer = import_module(f"onceward.gate.joining.{library}").writer(connection)
                return _Known(writer.database, "postgresql", writer.run)
    raise ConfigurationError(
        f"insert_once does not know connections of {type(connection).__module__}.{type(connection).__name__}; it "
        "knows sqlite3.Connection, psycopg.Connection, SQLAlchemy's Session and Connection, and Django's connection"
    )


def _run_psycopg(connection: Any, sql: str, values: list[Any]) -> int:
    import psycopg

    # In the caller's own pipeline a block of ours waits for the answers; otherwise nobody would know how many rows.
    pipelined = connection.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF
    # A cursor of our own kind: the caller's may take other placeholders.
    with psycopg.Cursor(connection) as cursor:
        with connection.pipeline() if pipelined else nullcontext():
            cursor.execute(sql, values)
        return cursor.rowcount


def _says_no_constraint(error: Exception) -> bool:
    from onceward.gate.joining.homes import driver_error, sqlstate_of  # Only now: it needs a database library.

    said = driver_error(error)
    return sqlstate_of(said) == _NO_CONSTRAINT_POSTGRESQL or _NO_CONSTRAINT_SQLITE in str(said)


def _missing_constraint(table: Table, key: Sequence[str]) -> ConfigurationError:
    return ConfigurationError(
        f"{_table(table)} has no unique constraint on ({_listed(key)}), so nothing would stop a duplicate; add "
        f"UNIQUE ({_listed(key)}) to the table, or: CREATE UNIQUE INDEX ... ON {_table(table)} ({_listed(key)}). A "
        "partial index does not count"
    )


def _text(value: Decimal) -> str:
    """All of its places, and no exponent if it can be helped: 1E+2 and 100 are one amount."""
    return format(value, "f") if abs(value.adjusted()) < _PLAIN_DIGITS_MAX else str(value)


def _names(names: Sequence[str], what: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ConfigurationError(f"{what}: a list of one or more column names, such as ['worker_id'], not {names!r}")
    for name in names:
        _quoted(name)
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{what}: a column is named twice: {', '.join(names)}")
    return tuple(names)


def _table(table: Table) -> str:
    if isinstance(table, tuple):
        if len(table) != 2:
            raise ConfigurationError(f"a table is a name or (schema, name), not {table!r}")
        return ".".join(_quoted(part) for part in table)
    return _quoted(table)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_quoted(name) for name in names)


def _quoted(name: str) -> str:
    if not isinstance(name, str) or not name or "\0" in name:
        raise ConfigurationError(f"not the name of a table or column: {name!r}")
    return '"' + name.replace('"', '""') + '"'


def _escaped(spelling: str, sql: str) -> str:
    """Psycopg reads a percent sign as the beginning of a placeholder, also inside quotes."""
    return sql if spelling == "sqlite" else sql.replace("%", "%%")


def _lowered(name: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in name)
