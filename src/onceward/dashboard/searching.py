"""
Finding records: by scope and key or by digest at once; by anything else, page by page in order of id.

Nothing is counted and nothing is skipped over: a page begins after an id, and reads a bounded number of rows. What is
searched for by operation, state or time may be rare; then a page ends early, says how far it came, and the next one
goes on from there.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward._core.errors import KeyInvalid, OncewardError, RequestInvalid
from onceward._core.record import Record, shown_state
from onceward._core.store_protocols import Selection, Store
from onceward._core.trace_marks import MARKS
from onceward.dashboard.sessions import Reach
from onceward.gate.operator_actions import DIGITS_MIN, ID_DIGITS, find_records, id_of_key

PAGE_RECORDS = 50
ROWS_READ_MAX = 2_000
"""Rows that one page reads at most."""
SCAN_ROWS = 250
STATES = ("claimed", "in_doubt", "settled", "released", "lapsed", "expired")
_UNSETTLED = frozenset({"claimed", "in_doubt", "lapsed"})
_HEX = frozenset("0123456789abcdef")


class RecordQuery(NamedTuple):
    """What is searched for. A field that is empty does not matter."""

    scope: str = ""
    key: str = ""
    digest: str = ""
    state: str = ""
    operation: str = ""
    since_us: int | None = None
    """First claimed at or after this instant, in microseconds since 1970."""
    until_us: int | None = None
    after: str = ""
    """The id after which the page begins."""

    def checked(self) -> RecordQuery:
        """Itself, if it can be searched for."""
        if self.state and self.state not in STATES:
            raise RequestInvalid(f"there is no state {self.state[:40]!r}; the states are {', '.join(STATES)}")
        if self.digest and not (DIGITS_MIN <= len(self.digest) <= ID_DIGITS and set(self.digest) <= _HEX):
            raise RequestInvalid(f"a digest is {DIGITS_MIN} to {ID_DIGITS} hex digits, as logs and errors show it")
        if self.key and not self.scope:
            raise RequestInvalid("searching for a key needs its scope: fill in both, or search by digest")
        if self.after and not (len(self.after) == ID_DIGITS and set(self.after) <= _HEX):
            raise RequestInvalid("this link to a page is not valid: go back to the first page")
        return self


class SearchPage(NamedTuple):
    """One page of what was found."""

    records: list[Record]
    """Without their results."""
    after: str | None
    """Where the next page begins; None: there is none."""
    rows_read: int
    ended_early: bool = False
    """Whether so many rows were read that the rest is left to the next page."""


def find_page(store: Store, query: RecordQuery, reach: Reach) -> SearchPage:
    """One page of the records that somebody may see. It blocks."""
    if query.scope and not reach.sees(query.scope):
        return SearchPage([], None, 0)
    if query.key:
        return _listed(store, reach, _by_key(store, query))
    if query.digest:
        return _listed(store, reach, find_records(store, query.digest))
    return _walk(store, query, reach)


def is_shown(record: Record, reach: Reach) -> bool:
    """Whether somebody may see a record. The mark of an erasure is no operation, and nobody does."""
    return record.kind not in MARKS and reach.sees(record.scope)


def _by_key(store: Store, query: RecordQuery) -> list[Record]:
    try:
        found = store.load(id_of_key(query.scope, query.key))
    except KeyInvalid as error:
        raise RequestInvalid(f"the key {error}") from None
    except OncewardError:
        raise
    return [] if found is None else [found]


def _listed(store: Store, reach: Reach, found: list[Record]) -> SearchPage:
    shown = [one._replace(result=None) for one in found if is_shown(one, reach)]
    return SearchPage(shown, None, len(found))


def _walk(store: Store, query: RecordQuery, reach: Reach) -> SearchPage:
    selection = Selection(scope=query.scope or reach.scope, unsettled=query.state in _UNSETTLED)
    after, read = bytes.fromhex(query.after), 0
    found: list[Record] = []
    while read < ROWS_READ_MAX:
        page = store.scan(after, SCAN_ROWS, selection)
        for record in page:
            read, after = read + 1, record.id
            if is_shown(record, reach) and _matches(record, query):
                found.append(record._replace(result=None))
                if len(found) == PAGE_RECORDS:
                    return SearchPage(found, after.hex(), read)
        if len(page) < SCAN_ROWS:
            return SearchPage(found, None, read)
    return SearchPage(found, after.hex(), read, ended_early=True)


def _matches(record: Record, query: RecordQuery) -> bool:
    return (
        query.state in ("", shown_state(record))
        and record.operation.startswith(query.operation)
        and (query.since_us is None or record.first_at >= query.since_us)
        and (query.until_us is None or record.first_at < query.until_us)
    )
