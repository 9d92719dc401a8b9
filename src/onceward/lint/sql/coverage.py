"""
Whether a constraint meets the row of the attempt before: only then does it stop a retry.

It does not if a column of it is made anew at each attempt, is NULL (NULLs are distinct), or if the constraint holds
for some rows only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from onceward.lint.sql.schema import SchemaTable
from onceward.lint.sql.statements import CONSTANT, DEFAULT, FRESH, GIVEN, NULL, Insert, Unique, Value


class Meets(Enum):
    """Whether a retry meets the first row."""

    YES = "yes"
    MAYBE_NULL = "not if it is NULL"
    NULL = "no: it is NULL"
    FRESH = "no: it is new each time"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a constraint does to a retry of an INSERT."""

    unique: Unique
    meets: Meets
    column: str = ""
    """The column that is to blame."""
    by: str = ""
    """What makes it anew."""

    @property
    def bites(self) -> bool:
        """Whether a retry is refused, at least if its key is not NULL."""
        return self.meets in (Meets.YES, Meets.MAYBE_NULL)


_ORDER = (Meets.YES, Meets.MAYBE_NULL, Meets.NULL, Meets.FRESH)


def coverage_of(unique: Unique, insert: Insert, table: SchemaTable) -> Coverage:
    """What a constraint does to a retry of this INSERT."""
    given = supplied_values(insert, table)
    worst = Coverage(unique, Meets.YES)
    for column in unique.columns:
        for name in [column] if column in table.columns else _columns_in(column, table):
            meets, by = _meets(name, given, insert, table)
            if unique.nulls_equal and meets in (Meets.NULL, Meets.MAYBE_NULL):
                meets = Meets.YES
            if meets is Meets.MAYBE_NULL and f"{name} IS NOT NULL" in unique.predicate:
                meets = Meets.YES  # Rows without a key are left out on purpose.
            if _ORDER.index(meets) > _ORDER.index(worst.meets):
                worst = Coverage(unique, meets, name, by)
    return worst


def holds_for_some(unique: Unique) -> tuple[str, ...]:
    """What else must hold for a row to be under a partial index, besides that its key is not NULL."""
    own = {f"{name} IS NOT NULL" for name in unique.columns}
    return tuple(one for one in unique.predicate if one not in own)


def supplied_values(insert: Insert, table: SchemaTable | None) -> dict[str, Value]:
    """By column, what the INSERT says."""
    columns: list[str] = list(insert.columns)
    if not columns and table is not None and not insert.default_row:
        columns = list(table.columns)[: len(insert.values) or None]
    values = [*insert.values, *[Value(GIVEN)] * (len(columns) - len(insert.values))]
    return dict(zip(columns, values, strict=False))


def _columns_in(expression: str, table: SchemaTable) -> list[str]:
    words = [word for word in re.findall(r"\w+", expression) if word in table.columns]
    return words or [expression]


def _meets(name: str, given: dict[str, Value], insert: Insert, table: SchemaTable) -> tuple[Meets, str]:
    column = table.columns.get(name)
    value = given.get(name, Value(DEFAULT))
    if value.kind == DEFAULT:
        if column is None:
            return (Meets.YES, "") if not insert.columns else (Meets.NULL, "")
        if column.default is not None:
            value = column.default
        elif column.not_null:
            return Meets.YES, ""  # It fails each time, or a trigger fills it in: not ours to guess.
        else:
            value = Value(NULL)
    if value.kind == FRESH:
        return Meets.FRESH, value.text
    if value.kind == NULL:
        return Meets.NULL, ""
    if value.kind == CONSTANT or (column is not None and column.not_null) or column is None:
        return Meets.YES, ""
    return Meets.MAYBE_NULL, ""
