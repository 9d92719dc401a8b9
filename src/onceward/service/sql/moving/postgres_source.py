"""
A tenant's database on PostgreSQL, read in one snapshot: schema, rows, and the records of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

from onceward.service.sql.moving.dialects import from_postgres_text, quoted
from onceward.service.sql.moving.moved_records import COLUMNS, MovedRecord, portable
from onceward.service.sql.moving.moved_schema import (
    POSTGRESQL,
    MovedColumn,
    MovedForeignKey,
    MovedIndex,
    MovedSchema,
    MovedTable,
    MovedView,
    Obstacle,
)
from onceward.service.sql.moving.moved_values import MovedRow
from onceward.service.sql.moving.postgres_connection import MovingConnection, scope_suffix

_RELATIONS: Final = """
SELECT one.oid::bigint, one.relname::text, one.relkind::text, one.relispartition,
    EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = one.oid AND deptype IN ('a', 'i')
        AND refclassid = 'pg_class'::regclass AND refobjsubid > 0)
FROM pg_class AS one JOIN pg_namespace AS space ON space.oid = one.relnamespace
WHERE space.nspname = $1 AND one.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') ORDER BY one.relname COLLATE "C"
"""
_TYPES: Final = """
SELECT typname::text FROM pg_type AS one JOIN pg_namespace AS space ON space.oid = one.typnamespace
LEFT JOIN pg_class AS kept ON kept.oid = one.typrelid
WHERE space.nspname = $1 AND (typtype IN ('e', 'd') OR kept.relkind = 'c') ORDER BY typname COLLATE "C"
"""
_COLUMNS: Final = """
SELECT attnum::int, attname::text, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid),
    attidentity::text, attgenerated::text, CASE WHEN attcollation <> typcollation THEN collname::text END
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
JOIN pg_type ON pg_type.oid = atttypid LEFT JOIN pg_collation ON pg_collation.oid = attcollation
WHERE attrelid = $1::bigint AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_CONSTRAINTS: Final = """
SELECT conname::text, contype::text, conkey::int[], confrelid::bigint, confkey::int[], confupdtype::text,
    confdeltype::text, condeferred, CASE WHEN contype = 'c' THEN pg_get_expr(conbin, conrelid) END
FROM pg_constraint WHERE conrelid = $1::bigint ORDER BY conname COLLATE "C"
"""
_INDEXES: Final = """
SELECT named.relname::text, indisunique, indkey::int[], pg_get_expr(indpred, indrelid),
    indexprs IS NOT NULL OR indnkeyatts <> indnatts OR amname <> 'btree' OR indnullsnotdistinct OR NOT indisvalid
FROM pg_index JOIN pg_class AS named ON named.oid = indexrelid JOIN pg_am ON pg_am.oid = named.relam
WHERE indrelid = $1::bigint AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
ORDER BY named.relname COLLATE "C"
"""
_SEQUENCE: Final = """
SELECT named.relname::text FROM pg_depend JOIN pg_class AS named ON named.oid = objid AND named.relkind = 'S'
WHERE classid = 'pg_class'::regclass AND refobjid = $1::bigint AND refobjsubid = $2::int AND deptype IN ('a', 'i')
"""
_RECORDS: Final = "SELECT {columns} FROM {tables}.onceward_records WHERE right(scope, {length}) = $1 ORDER BY id"
_ACTIONS: Final = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
_NOT_MOVED: Final = {
    "p": ("table", "it is partitioned"),
    "f": ("table", "it is a foreign table"),
    "m": ("materializedview", "materialized views are not moved: make it again from its query"),
    "S": ("sequence", "sequences of their own are not moved"),
}


class PostgresSource:
    """One database, in one snapshot, for the length of a `with` block. Nothing is written."""

    def __init__(self, line: MovingConnection, schema: str, role: str) -> None:
        self._line = line
        self._name = schema
        self._role = role
        line.ask("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        line.ask("SET LOCAL search_path = pg_catalog")
        self.schema = self._read_schema()

    @property
    def fence_floor(self) -> int:
        """The greatest fence that was ever deleted here, of whatever database: fences rise over all of them."""
        asked = f"SELECT value FROM {self._line.tables}.onceward_meta WHERE name = 'fence_floor'"  # noqa: S608
        [(floor,)] = self._line.ask(asked)
        return int(floor)

    def size(self) -> int:
        """How many rows there are. The records of its keys are few beside them, and not counted."""
        self._line.ask(f"SET LOCAL ROLE {self._role}")
        total = 0
        for table in self.schema.tables:
            [(count,)] = self._line.ask(f"SELECT count(*) FROM {self._name}.{quoted(table.name)}")  # noqa: S608
            total += int(count)
        self._line.leave()
        return total

    def rows(self, table: MovedTable) -> Iterator[MovedRow]:
        """The rows of a table."""
        types = [one.type for one in table.columns]
        names = ", ".join(f"{quoted(one.name)}::text" for one in table.columns)
        sql = f"SELECT {names} FROM {self._name}.{quoted(table.name)}"  # noqa: S608 - quoted
        self._line.ask(f"SET LOCAL ROLE {self._role}")
        for row in self._line.stream(sql):
            yield [from_postgres_text(value, type) for value, type in zip(row, types, strict=True)]
        self._line.leave()

    def records(self) -> Iterator[MovedRecord]:
        """The records of its keys."""
        suffix = scope_suffix(self._name)
        sql = _RECORDS.format(columns=", ".join(COLUMNS), tables=self._line.tables, length=len(suffix))
        for row in self._line.stream(sql, suffix):
            yield portable(row, suffix)

    def close(self) -> None:
        """End the snapshot."""
        self._line.ask("ROLLBACK")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The schema.

    def _read_schema(self) -> MovedSchema:
        made = MovedSchema(POSTGRESQL, [], [], [])
        for [name] in self._line.ask(_TYPES, self._name):
            made.others.append(Obstacle(f"type:{name}", "types of one's own are not moved; its columns become text"))
        found = self._line.ask(_RELATIONS, self._name)
        tables = {oid: name for oid, name, kind, _, _ in found if kind in "rp"}
        for oid, name, kind, is_part, is_owned in found:
            if kind == "v":
                [[sql]] = self._line.ask("SELECT pg_get_viewdef($1::bigint::oid)", oid)
                made.views.append(MovedView(name, str(sql).replace(f"{self._name}.", "").strip().rstrip(";")))
            elif kind == "r" and not is_part:
                made.tables.append(self._table(oid, name, tables, made.others))
            elif not is_owned:
                what, why = _NOT_MOVED.get(kind, ("table", "it is a partition"))
                made.others.append(Obstacle(f"{what}:{name}", why))
        return made

    def _table(self, oid: int, name: str, tables: dict[int, str], others: list[Obstacle]) -> MovedTable:
        made = MovedTable(name, [], [], [], [], [], [], [])
        numbers: dict[int, str] = {}
        for number, column, type, needed, default, identity, generated, collation in self._line.ask(_COLUMNS, oid):
            numbers[number] = column
            handed_out = bool(identity) or str(default or "").startswith("nextval(")
            if handed_out and made.identity is None:
                made = made._replace(identity=column, identity_last=self._last(oid, number))
                default = None
            shown = None if generated else default
            made.columns.append(MovedColumn(column, type, needed, shown, bool(generated), collation))
        for constraint in self._line.ask(_CONSTRAINTS, oid):
            self._constraint(made, constraint, numbers, tables, others)
        for index, unique, keys, where, special in self._line.ask(_INDEXES, oid):
            if special:
                others.append(Obstacle(f"index:{index}", "it is not a plain index over columns"))
            else:
                made.indexes.append(MovedIndex(index, [numbers[one] for one in keys], unique, where))
        return made

    def _constraint(
        self,
        made: MovedTable,
        constraint: tuple[Any, ...],
        numbers: dict[int, str],
        tables: dict[int, str],
        others: list[Obstacle],
    ) -> None:
        name, kind, keys, parent, parent_keys, on_update, on_delete, deferred, check = constraint
        columns = [numbers[one] for one in keys or ()]
        match kind:
            case "p":
                made.primary_key.extend(columns)
            case "u":
                made.uniques.append(columns)
            case "c":
                made.checks.append(check)
            case "f":
                there = {number: column for number, column, *_ in self._line.ask(_COLUMNS, parent)}
                made.foreign_keys.append(
                    MovedForeignKey(
                        columns,
                        tables.get(parent, ""),
                        [there[one] for one in parent_keys],
                        _ACTIONS[on_update],
                        _ACTIONS[on_delete],
                        deferred,
                    )
                )
            case "n":  # NOT NULL, which PostgreSQL 18 lists here as well.
                return
            case _:
                others.append(Obstacle(f"constraint:{made.name}.{name}", "only PostgreSQL has such a constraint"))

    def _last(self, oid: int, number: int) -> int | None:
        found = self._line.ask(_SEQUENCE, oid, number)
        if not found:
            return None
        self._line.ask(f"SET LOCAL ROLE {self._role}")
        [(last, is_called)] = self._line.ask(
            f"SELECT last_value, is_called FROM {self._name}.{quoted(found[0][0])}"  # noqa: S608 - quoted
        )
        self._line.leave()
        return int(last) if is_called else None
