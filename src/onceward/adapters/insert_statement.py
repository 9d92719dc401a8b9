"""
The statement that `insert_once` runs: how it is built, what is refused, and what its result means.

It runs one statement on the caller's connection, inside the caller's transaction, and never ends it:

    INSERT INTO "expenses" ("worker_id", "idempotency_key", "amount") VALUES (?, ?, ?)
    ON CONFLICT ("worker_id", "idempotency_key") DO NOTHING

The constraint is always named by its columns, so only a conflict with that one is a duplicate. A violation of any
other constraint is the caller's, and is raised as the driver raised it. Nothing is caught and retried: on
PostgreSQL, an error that is caught would leave the transaction unusable.

One thing PostgreSQL does not promise: of two equal rows inserted at one moment, which break a second unique
constraint besides the key, the loser may get an error about the second one. Run again, it is a plain duplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from onceward._core.errors import ConfigurationError

Dialect = Literal["sqlite", "postgresql"]
TableName = str | tuple[str, str]
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


class Inserted(NamedTuple):
    """What `insert_once(..., returning=[...])` did, and the row that stands now."""

    written: int
    """1 if a row was written now, 0 if it was there."""
    row: dict[str, Any] | None
    """The columns that were asked for, of the row that was written or was there; None if it was deleted since."""


class InsertStatement(NamedTuple):
    """What is to be run: for its rows, or for how many it wrote."""

    sql: str
    values: list[Any]
    asks: bool


def insert_steps(
    dialect: str,
    spelling: str,
    table: TableName,
    values: Mapping[str, Any],
    key: Sequence[str],
    on_duplicate: OnDuplicate,
    returning: Sequence[str] | None,
) -> Generator[InsertStatement, Any, int | Inserted]:
    """What both colours do: insert; and if a row is wanted and none was written, look at the one that is there."""
    if not isinstance(values, Mapping) or not values:
        raise ConfigurationError("insert_once needs the row's values, by column: {'id': 'e-9', 'amount': '12.50'}")
    sql = _insert_sql(dialect, spelling, table, list(values), key, on_duplicate, returning)
    if empty := [name for name in key if values[name] is None]:
        raise ConfigurationError(
            f"a key column is None: {', '.join(empty)}; NULL is never equal to NULL, so this row could be "
            "inserted twice"
        )
    bound = {name: _text(value) if dialect == "sqlite" and isinstance(value, Decimal) else value
             for name, value in values.items()}  # fmt: skip
    try:
        answer = yield InsertStatement(sql, list(bound.values()), returning is not None)
    except Exception as error:
        if _says_no_constraint(error):
            raise _missing_constraint(table, key) from error
        raise
    if returning is None:
        return int(answer)
    found = answer or (
        yield InsertStatement(_select_sql(spelling, table, key, returning), [bound[k] for k in key], True)
    )
    row = dict(zip(returning, found[0], strict=True)) if found else None
    return Inserted(len(answer), row)


def insert_sql(
    dialect: Dialect,
    table: TableName,
    columns: Sequence[str],
    key: Sequence[str],
    on_duplicate: OnDuplicate = "ignore",
    returning: Sequence[str] | None = None,
) -> str:
    """The statement that `insert_once` runs, as its driver takes it; `dialect` is "sqlite" or "postgresql"."""
    return _insert_sql(dialect, dialect, table, columns, key, on_duplicate, returning)


def _insert_sql(
    dialect: str,
    spelling: str,
    table: TableName,
    columns: Sequence[str],
    key: Sequence[str],
    on_duplicate: OnDuplicate,
    returning: Sequence[str] | None,
) -> str:
    """The statement for a database, with placeholders as this one's driver spells them."""
    if dialect not in ("sqlite", "postgresql"):
        raise ConfigurationError(f"unknown dialect {dialect!r}; insert_once knows 'sqlite' and 'postgresql'")
    columns, key = _names(columns, "the columns"), _names(key, "the key")
    _check(dialect, columns, key, on_duplicate)
    into, names, target = (_escaped(spelling, name) for name in (_table(table), _listed(columns), _listed(key)))
    action = "DO NOTHING"
    if isinstance(on_duplicate, Update):
        changes = [f"{_quoted(name)} = EXCLUDED.{_quoted(name)}" for name in on_duplicate.columns]
        if on_duplicate.touch is not None:
            changes.append(f"{_quoted(on_duplicate.touch)} = CURRENT_TIMESTAMP")
        action = "DO UPDATE SET " + _escaped(spelling, ", ".join(changes))
    holes = ", ".join(_placeholder(spelling, number) for number in range(len(columns)))
    insert = f"INSERT INTO {into} ({names}) VALUES ({holes}) ON CONFLICT ({target}) {action}"  # noqa: S608 (quoted)
    if returning is None:
        return insert
    return f"{insert} RETURNING {_escaped(spelling, _listed(_names(returning, 'returning')))}"


def _select_sql(spelling: str, table: TableName, key: Sequence[str], returning: Sequence[str]) -> str:
    """The row that is there already."""
    matches = [
        f"{_escaped(spelling, _quoted(name))} = {_placeholder(spelling, number)}" for number, name in enumerate(key)
    ]
    wanted, of = _escaped(spelling, _listed(returning)), _escaped(spelling, _table(table))
    return f"SELECT {wanted} FROM {of} WHERE {' AND '.join(matches)}"  # noqa: S608 (quoted)


def _placeholder(spelling: str, number: int) -> str:
    """A placeholder as a driver spells it."""
    return {"sqlite": "?", "postgresql": "%s"}.get(spelling) or f"${number + 1}"


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
            f"Update would change key columns: {', '.join(both)}. Leave them out of Update, or choose a key of columns "
            "that stay the same when the row is corrected"
        )


def _says_no_constraint(error: Exception) -> bool:
    from onceward.adapters.record_database import driver_error, sqlstate_of  # Only now: it needs a database library.

    cause = driver_error(error)
    return sqlstate_of(cause) == _NO_CONSTRAINT_POSTGRESQL or _NO_CONSTRAINT_SQLITE in str(cause)


def _missing_constraint(table: TableName, key: Sequence[str]) -> ConfigurationError:
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


def _table(table: TableName) -> str:
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
    return sql.replace("%", "%%") if spelling == "postgresql" else sql


def _lowered(name: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in name)
