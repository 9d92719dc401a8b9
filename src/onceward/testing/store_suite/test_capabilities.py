"""Capabilities: what a store says about itself is so."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.stores import capabilities_of
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.rows import row, settled
from onceward.testing.store_suite.store_under_test import StoreUnderTest


class TestWhatAStoreSays:
    """Its `capabilities`."""

    def test_its_colour_is_the_one_it_was_opened_in(self, store: Any, place: StoreUnderTest) -> None:
        """
        A store that says nothing about it is fine; one that says the wrong thing is refused by every gate.
        """
        handle = store if place.colour == "blocking" else store.handle

        assert capabilities_of(handle).awaits in (None, place.colour == "awaiting")

    def test_a_relaxed_settle_lands_as_any_other(self, do: Do, store: Any, scope: str) -> None:
        """
        Whether it heeds the wish or not.
        """
        held = do(store.put(row(scope), None)).record
        write = settled(held)._replace(relaxed=True)

        assert True is do(store.put(write, held.version)).landed
        assert write.version == do(store.load(held.id)).version

    def test_a_glance_shows_what_a_load_shows(self, do: Do, store: Any, scope: str, place: StoreUnderTest) -> None:
        """
        Or nothing: it is a speed-up. Where nothing stands there is nothing to see.
        """
        glance = capabilities_of(store if place.colour == "blocking" else store.handle).peek
        if glance is None:
            pytest.skip("the store has no peek")
        held = do(store.put(row(scope), None)).record
        do(store.put(settled(held, result=b'"seen"'), held.version))
        for _ in range(2):
            seen, found = glance(held.id), do(store.load(held.id))
            assert seen is None or [found.state, found.result, found.fence] == [seen.state, seen.result, seen.fence]

        assert None is glance(row(scope, "never").id)

    def test_a_look_shows_what_a_load_shows(self, do: Do, store: Any, scope: str, place: StoreUnderTest) -> None:
        """
        The same for a look that is awaited. It may say at once that it will not look.
        """
        look = capabilities_of(store if place.colour == "blocking" else store.handle).look
        if look is None:
            pytest.skip("the store has no look")
        held = do(store.put(row(scope), None)).record
        do(store.put(settled(held, result=b'"seen"'), held.version))

        async def looked(id: bytes) -> Any:
            looking = look(id)
            return None if looking is None else await looking

        for _ in range(2):
            seen, found = do(looked(held.id)), do(store.load(held.id))
            assert seen is None or [found.state, found.result, found.fence] == [seen.state, seen.result, seen.fence]

        assert do(looked(row(scope, "never").id)) is None
        do(store.erase([held.id]))
        assert do(looked(held.id)) is None
