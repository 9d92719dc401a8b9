"""Scanning: pages of records in order of id, of the kind that was asked for."""

from __future__ import annotations

from typing import Any

from onceward._core.record import Record
from onceward.stores import Selection
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.rows import (
    doubted,
    random_token,
    released,
    row,
    settled,
    without_durations,
)

FIRST = b""
"""What the first page begins after."""


class TestScan:
    """Looking at many records."""

    def test_pages_hold_every_record_once_in_order(self, do: Do, store: Any, scope: str) -> None:
        """
        Paging to the end meets every record, each one once, in the order of their ids; no page is over the limit.
        """
        put = sorted(do(store.put(row(scope, f"k{n}"), None)).record.id for n in range(23))

        pages = _pages(do, store, 7, Selection(scope=scope))

        assert [len(page) for page in pages] == [7, 7, 7, 2]
        assert put == [found.id for page in pages for found in page]

    def test_a_page_shows_what_a_load_shows(self, do: Do, store: Any, scope: str) -> None:
        """
        Records on a page are whole.
        """
        held = do(store.put(row(scope, family=bytes(32), operation="charge"), None)).record
        do(store.put(settled(held, result=b"\x00whole"), held.version))

        [found] = do(store.scan(FIRST, 10, Selection(scope=scope)))

        assert without_durations(do(store.load(held.id))) == without_durations(found)

    def test_only_the_selected_are_shown(self, do: Do, store: Any, scope: str) -> None:
        """
        By scope, by kind, by being unsettled (claimed or in doubt), or by several of these.
        """
        ours, theirs = f"{scope}:ours", f"{scope}:theirs"
        claimed, in_doubt, free, ended = (do(store.put(row(ours, name), None)).record for name in "abcd")
        do(store.put(doubted(in_doubt), in_doubt.version))
        do(store.put(released(free), free.version))
        do(store.put(settled(ended), ended.version))
        step = do(store.put(row(ours, "e", kind="step"), None)).record
        other = do(store.put(row(theirs, "a"), None)).record

        assert _ids(claimed, in_doubt, free, ended, step) == _found(do, store, Selection(scope=ours))
        assert _ids(other) == _found(do, store, Selection(scope=theirs))
        assert _ids(claimed, in_doubt, free, ended) == _found(do, store, Selection(ours, "key"))
        assert _ids(claimed, in_doubt, step) == _found(do, store, Selection(ours, unsettled=True))
        assert _ids(step) == _found(do, store, Selection(ours, "step", unsettled=True))
        assert _found(do, store, Selection(f"{scope}:nobody")) == []

    def test_a_page_is_as_long_as_it_can_be(self, do: Do, store: Any, scope: str) -> None:
        """
        The limit counts what is selected: records of other scopes, kinds and states in front neither fill a page nor
        end the list.
        """
        ids = sorted(random_token() * 2 for _ in range(9))
        others = [f"{scope}:theirs", scope, scope], ["key", "step", "key"], ["claimed", "claimed", "settled"]
        for number, (whose, kind, state) in enumerate(zip(*others, strict=True)):
            for id in ids[2 * number : 2 * number + 2]:
                do(store.put(row(whose, kind=kind, state=state)._replace(id=id), None))
        for id in ids[6:]:
            do(store.put(row(scope)._replace(id=id), None))

        pages = _pages(do, store, 2, Selection(scope, "key", unsettled=True))

        assert [ids[6:8], ids[8:]] == [[found.id for found in page] for page in pages]

    def test_with_nothing_selected_all_scopes_are_shown(self, do: Do, store: Any, scope: str) -> None:
        """
        Whoever asks for everything gets the records of every scope.
        """
        put = {do(store.put(row(f"{scope}:{n}", "k"), None)).record.id for n in range(3)}

        everything = {found.id for page in _pages(do, store, 100, Selection()) for found in page}

        assert put == everything & put

    def test_what_stood_there_throughout_is_met_while_others_arrive(self, do: Do, store: Any, scope: str) -> None:
        """
        Records that arrive or move between two pages do not hide one that was there from first to last.
        """
        stayed = {do(store.put(row(scope, f"k{n}"), None)).record.id for n in range(20)}
        met: list[bytes] = []
        after, arriving = FIRST, 0
        while page := do(store.scan(after, 4, Selection(scope=scope))):
            met += [found.id for found in page]
            assert after < page[-1].id, "a page must begin after the previous one"
            after = page[-1].id
            for _ in range(3 if arriving < 30 else 0):
                do(store.put(row(scope, f"new{arriving}"), None))
                arriving += 1
            moved = do(store.load(page[0].id))
            do(store.put(row(scope, moved.key), moved.version))

        assert stayed == stayed & set(met)
        assert sorted(set(met)) == met


def _pages(do: Do, store: Any, limit: int, selection: Selection) -> list[list[Record]]:
    pages, after = [], FIRST
    while page := do(store.scan(after, limit, selection)):
        assert after < page[-1].id, "a page must begin after the previous one"
        pages.append(page)
        after = page[-1].id
    return pages


def _found(do: Do, store: Any, selection: Selection) -> list[bytes]:
    return [found.id for found in do(store.scan(FIRST, 100, selection))]


def _ids(*records: Record) -> list[bytes]:
    return sorted(found.id for found in records)
