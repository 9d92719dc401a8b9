"""Handles: what one changes, another sees at once, whatever it has seen before."""

# ruff: noqa: SIM300 - `assert expected == actual`, also where the expected value is a constant

from __future__ import annotations

from typing import Any

from onceward._core.record import State
from onceward.stores import Selection
from onceward.testing.store_suite.fixtures import Do, purge_all
from onceward.testing.store_suite.rows import HOUR_US, random_token, row, settled, without_durations
from onceward.testing.store_suite.store_clock import StoreClock


class TestTwoHandles:
    """Opened by the same URL, as by two processes. A handle that remembers what it read would show it again."""

    def test_what_one_changes_the_other_reads(self, do: Do, store: Any, another: Any, scope: str) -> None:
        """
        In every way of reading, although it has read what stood there before.
        """
        held = do(store.put(row(scope), None)).record
        before = _shown(do, another, scope, held.id)
        ended = do(store.put(settled(held), held.version)).record

        assert [without_durations(held)] * 3 == before
        assert [without_durations(ended)] * 3 == _shown(do, another, scope, held.id)

    def test_what_one_changes_the_other_cannot_replace(self, do: Do, store: Any, another: Any, scope: str) -> None:
        """
        It names the version that it has read, which is gone: refused, and shown what stands there now.
        """
        held = do(another.put(row(scope), None)).record
        ended = do(store.put(settled(held), held.version)).record
        standing = do(another.put(settled(held), held.version))

        assert (False, without_durations(ended)) == (standing.landed, without_durations(standing.record))
        assert ended.version == do(store.load(held.id)).version

    def test_what_one_has_erased_is_gone_for_the_other(self, do: Do, store: Any, another: Any, scope: str) -> None:
        """
        Not there any more, and its place is free.
        """
        held = do(another.put(row(scope), None)).record
        ended = do(another.put(settled(held), held.version)).record
        do(another.load(held.id))
        do(store.erase([held.id]))

        assert (do(another.load(held.id)), do(another.scan(b"", 10, Selection(scope=scope)))) == (None, [])
        assert do(another.put(settled(held), ended.version)) == (False, None)
        assert True is do(another.put(row(scope), None)).landed

    def test_what_one_has_extended_or_shrunk_the_other_sees(
        self, do: Do, store: Any, another: Any, scope: str, clock: StoreClock
    ) -> None:
        """
        A longer life, and an answer that is no longer there.
        """
        family = random_token() * 2
        ids = []
        for key, replay, of in (("long", clock.us(1_000), family), ("short", clock.us(1), None)):
            held = do(another.put(row(scope, key, family=of), None)).record
            ids.append(do(another.put(settled(held, replay=replay), held.version)).record.id)
            do(another.load(held.id))
        do(store.extend(family, 20 * HOUR_US, 30 * HOUR_US))
        clock.advance(2)
        purge_all(do, store)
        long, short = (do(another.load(id)) for id in ids)

        assert 19 * HOUR_US < long.replay_left
        assert (short.state, short.result) == (State.SETTLED, None)


def _shown(do: Do, store: Any, scope: str, id: bytes) -> list[Any]:
    page = do(store.scan(b"", 10, Selection(scope=scope)))
    seen = [do(store.put(row(scope), None)).record, do(store.load(id)), *page]
    return [without_durations(found) for found in seen]
