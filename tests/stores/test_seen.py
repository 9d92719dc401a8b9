"""What a process remembers of settled keys: a speed-up with an end, which never stands for the store."""

from __future__ import annotations

from onceward._core.record import Standing, as_landed
from onceward.stores._seen import GENERATION, Seen
from onceward.testing.conformance.rows import row, settled

CLAIM = as_landed(row("test:seen"), now=1, fence=1)
SETTLED = as_landed(settled(CLAIM), now=2, fence=1)


def _id(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_only_what_is_settled_is_remembered() -> None:
    """
    A claim may end in any way, and what is not there may come: neither is remembered, and both are forgotten.
    """
    seen = Seen()
    for number, standing in enumerate((Standing(True, SETTLED), Standing(False, SETTLED), Standing(True, CLAIM))):
        seen.note(_id(number), standing)
    first = [_id(number) in seen for number in range(3)]
    seen.note(_id(0), Standing(False, CLAIM))
    seen.note(_id(1), Standing(False, None))

    assert ([True, True, False], [False, False]) == (first, [_id(0) in seen, _id(1) in seen])


def test_it_does_not_grow_for_ever() -> None:
    """
    Two generations: the latest are there, the first are gone.
    """
    seen = Seen()
    for number in range(3 * GENERATION):
        seen.note(_id(number), Standing(False, SETTLED))

    assert [False, True] == [_id(0) in seen, _id(3 * GENERATION - 1) in seen]
    assert 2 * GENERATION >= sum(_id(number) in seen for number in range(3 * GENERATION))
