"""Text and bytes: what differs in a single byte is something else, however alike it looks."""

from __future__ import annotations

from typing import Any

import pytest

from onceward._core.record import State
from onceward.stores import Selection
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.rows import HOUR_US, random_token, row, settled
from onceward.testing.store_suite.store_clock import StoreClock

ALIKE = {
    "case": ("acme", "ACME"),
    "a space at the end": ("acme", "acme "),
    "a space at the beginning": ("acme", " acme"),
    "a tab for a space": ("acme co", "acme\tco"),
    "composed and decomposed": ("caf\u00e9", "cafe\u0301"),
    "with and without an accent": ("caf\u00e9", "cafe"),
    "one letter and two": ("stra\u00dfe", "strasse"),
    "a ligature": ("\ufb01ve", "five"),
    "a letter of another script": ("acme", "\u0430cme"),
    "nothing that can be seen": ("acme", "ac\u200bme"),
    "beyond the basic plane": ("\U0001f4b8", "\U0001f4b9"),
}

SMALL, LARGE = b"k", b"K"


class TestTextIsComparedAsBytes:
    """Scopes, kinds and whatever else is text."""

    @pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE.keys())
    def test_scopes_that_look_alike_are_two(self, do: Do, store: Any, scope: str, one: str, other: str) -> None:
        """
        Each has its own record of the same key, and a scan of one does not show the other's.
        """
        scopes = [f"{scope}:{one}", f"{scope}:{other}"]
        landed = [do(store.put(row(whose), None)).landed for whose in scopes]

        assert landed == [True, True]
        assert [[whose] for whose in scopes] == [
            [found.scope for found in do(store.scan(b"", 10, Selection(scope=whose)))] for whose in scopes
        ]

    @pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE.keys())
    def test_keys_that_look_alike_are_two(self, do: Do, store: Any, scope: str, one: str, other: str) -> None:
        """
        Both land, and each comes back as it was written, with the text beside it.
        """
        writes = [row(scope, text, operation=text) for text in (one, other)]

        assert [do(store.put(write, None)).landed for write in writes] == [True, True]
        assert [(text, text) for text in (one, other)] == [
            (found.key, found.operation) for found in (do(store.load(write.id)) for write in writes)
        ]

    def test_kinds_that_look_alike_are_two(self, do: Do, store: Any, scope: str) -> None:
        """
        A scan of one kind does not show another.
        """
        kinds = ["step", "Step", "step "]
        for kind in kinds:
            do(store.put(row(scope, kind=kind), None))

        assert [[kind] for kind in kinds] == [
            [found.kind for found in do(store.scan(b"", 10, Selection(scope, kind)))] for kind in kinds
        ]


class TestBytesAreComparedAsBytes:
    """Ids, versions and families may hold any byte, letters and blanks among them."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [(SMALL * 32, LARGE * 32), (SMALL * 31 + b" ", SMALL * 31 + b"\0"), (b"\xe9" * 32, b"\xc9" * 32)],
        ids=["case", "a blank at the end", "letters of another encoding"],
    )
    def test_ids_that_look_alike_are_two(self, do: Do, store: Any, scope: str, one: bytes, other: bytes) -> None:
        """
        Two ids, two records; erasing the one leaves the other.
        """
        do(store.erase([one, other]))
        writes = [row(scope)._replace(id=id) for id in (one, other)]
        landed = [do(store.put(write, None)).landed for write in writes]
        erased = do(store.erase([one]))

        assert (landed, erased) == ([True, True], 1)
        assert (None, writes[1].version) == (do(store.load(one)), do(store.load(other)).version)
        do(store.erase([other]))

    @pytest.mark.parametrize(
        ("stands", "named"),
        [(SMALL * 16, LARGE * 16), (SMALL * 15 + b" ", SMALL * 15 + b"\0"), (b"\xe9" * 16, b"\xc9" * 16)],
        ids=["case", "a blank at the end", "letters of another encoding"],
    )
    def test_a_version_that_looks_alike_is_another(
        self, do: Do, store: Any, scope: str, stands: bytes, named: bytes
    ) -> None:
        """
        Naming it moves nothing.
        """
        held = do(store.put(row(scope, version=stands), None)).record

        assert False is do(store.put(settled(held), named)).landed
        assert do(store.load(held.id)).state == State.CLAIMED

    def test_a_family_that_looks_alike_is_another(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Its records are not extended along.
        """
        whose = random_token()
        families = [whose + SMALL * 16, whose + LARGE * 16]
        for number, family in enumerate(families):
            held = do(store.put(row(scope, f"k{number}", family=family), None)).record
            do(store.put(settled(held, replay=clock.us(1_000)), held.version))

        assert do(store.extend(families[0], HOUR_US, 2 * HOUR_US)) == 1

    def test_ids_are_in_the_order_of_their_bytes(self, do: Do, store: Any, scope: str) -> None:
        """
        Not in that of an alphabet, which would put small letters beside large ones and some bytes last.
        """
        beginnings = (b"\x00", b"B", b"_", b"a", b"\x7f", b"\x80", b"\xff")
        ids = [one + random_token() + bytes(15) for one in beginnings]
        for number, id in enumerate(reversed(ids)):
            do(store.put(row(scope, f"k{number}")._replace(id=id), None))

        assert ids == [found.id for found in do(store.scan(b"", 10, Selection(scope=scope)))]
        assert ids[4:] == [found.id for found in do(store.scan(ids[3], 10, Selection(scope=scope)))]
