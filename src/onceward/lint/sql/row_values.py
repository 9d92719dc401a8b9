"""
The rows of an INSERT as one row: by column, the value that matters most to a retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from onceward.lint.sql.statements import CONSTANT, DEFAULT, FRESH, GIVEN, NULL, Value

_ORDER: Final = (CONSTANT, GIVEN, DEFAULT, NULL, FRESH)
"""The last is the worst."""


def merge_rows(rows: Iterable[Sequence[Value]]) -> tuple[Value, ...]:
    """By column, the worst value of all rows."""
    merged: list[Value] = []
    for number, row in enumerate(rows):
        for place, value in enumerate(row):
            if place >= len(merged):
                merged.append(value)
            elif number and _ORDER.index(value.kind) > _ORDER.index(merged[place].kind):
                merged[place] = value
    return tuple(merged)
