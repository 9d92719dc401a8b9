"""What a process remembers of settled keys: a speed-up with an end, which never stands for the store."""

from __future__ import annotations

from onceward._core.record import PutResult, record_from_write
from onceward.stores._settled_ids import GENERATION, SettledIds
from onceward.testing.store_suite.rows import row, settled

CLAIM = record_from_write(row("test:seen"), now=1, fence=1)
SETTLED = record_from_write(settled(CLAIM), now=2, fence=1)


def _id(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_only_what_is_settled_is_remembered() -> None:
    """
    A claim may end in any way, and what is not there may come: neither is remembered, and both are forgotten.
    """
    seen = SettledIds()
    for number, standing in enumerate((PutResult(True, SETTLED), PutResult(False, SETTLED), PutResult(True, CLAIM))):
        seen.note(_id(number), standing)
    first = [_id(number) in seen for number in range(3)]
    seen.note(_id(0), PutResult(False, CLAIM))
    seen.note(_id(1), PutResult(False, None))

    assert (first, [_id(0) in seen, _id(1) in seen]) == ([True, True, False], [False, False])


def test_it_does_not_grow_for_ever() -> None:
    """
    Two generations: the latest are there, the first are gone.
    """
    seen = SettledIds()
    for number in range(3 * GENERATION):
        seen.note(_id(number), PutResult(False, SETTLED))

    assert [_id(0) in seen, _id(3 * GENERATION - 1) in seen] == [False, True]
    assert sum(_id(number) in seen for number in range(3 * GENERATION)) <= 2 * GENERATION
