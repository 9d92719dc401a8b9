"""
Finds gaps and rewinds in the numbers of a source's events.

    1 2 3 _ _ 6      a gap, 4 to 5; events overtake each other on their way, so a late one fills it
    1 2 3 2          a rewind: a number that was seen, with another event; the sender started over, or lost its counter

They are logged, and never a reason to refuse an event: it is signed, and the next delivery would be no better.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward.stores.tables.sql_steps import Row, Sql, SqlSteps, one_or_none

GAPS_MAX = 100
"""Kept of one source; the oldest is forgotten first."""

_MARK = "SELECT highest FROM onceward_inbox_marks WHERE scope = :scope AND source = :source {lock}"
_BEGIN = """INSERT INTO onceward_inbox_marks (scope, source, highest) VALUES (:scope, :source, :number)
    ON CONFLICT (scope, source) DO NOTHING RETURNING highest"""
_MOVE = "UPDATE onceward_inbox_marks SET highest = :number WHERE scope = :scope AND source = :source"
_REWIND = """UPDATE onceward_inbox_marks SET rewinds = rewinds + 1, rewound_at = :now
    WHERE scope = :scope AND source = :source"""
_GAP = "INSERT INTO onceward_inbox_gaps (scope, source, first, last) VALUES (:scope, :source, :first, :last)"
_GAP_AROUND = """SELECT first, last FROM onceward_inbox_gaps
    WHERE scope = :scope AND source = :source AND first <= :number AND last >= :number"""
_CLOSE_GAP = "DELETE FROM onceward_inbox_gaps WHERE scope = :scope AND source = :source AND first = :first"
_TRIM = """DELETE FROM onceward_inbox_gaps WHERE scope = :scope AND source = :source AND first < (
    SELECT first FROM onceward_inbox_gaps WHERE scope = :scope AND source = :source
    ORDER BY first DESC LIMIT 1 OFFSET :most)"""


class NumberAnomaly(NamedTuple):
    """A gap or a rewind at an event's number."""

    kind: str
    """`gap`, `late` (it fills a gap) or `rewind`."""
    first: int
    """Of a gap: the first missing number. Otherwise the number itself."""
    last: int

    def __str__(self) -> str:
        if self.kind == "gap":
            return f"gap: {range_text(self.first, self.last)} missing"
        return f"{self.kind}: {self.first}"


def record_number(scope: str, source: str, number: int) -> SqlSteps[NumberAnomaly | None]:
    """Record the number of a new event; the anomaly, if there is one."""
    mine = {"scope": scope, "source": source, "number": number}
    row: Row | None = one_or_none((yield Sql(_MARK, mine)))
    if row is None:
        if (yield Sql(_BEGIN, mine)):
            return None  # The first number of this source that we see.
        row = one_or_none((yield Sql(_MARK, mine)))
    highest = number - 1 if row is None else int(row[0])
    if number > highest:
        yield Sql(_MOVE, mine)
        if number == highest + 1:
            return None
        yield Sql(_GAP, {**mine, "first": highest + 1, "last": number - 1})
        yield Sql(_TRIM, {**mine, "most": GAPS_MAX - 1})
        return NumberAnomaly("gap", highest + 1, number - 1)
    gap = one_or_none((yield Sql(_GAP_AROUND, mine)))
    if gap is None:
        yield Sql(_REWIND, mine)
        return NumberAnomaly("rewind", number, number)
    first, last = gap
    yield Sql(_CLOSE_GAP, {**mine, "first": first})
    for left, right in ((first, number - 1), (number + 1, last)):
        if left <= right:
            yield Sql(_GAP, {**mine, "first": left, "last": right})
    return NumberAnomaly("late", number, number)


def range_text(first: int, last: int) -> str:
    """A range of numbers."""
    return str(first) if first == last else f"{first}-{last}"
