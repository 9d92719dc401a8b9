"""What operators do by id: finding and deciding, without a gate."""

from __future__ import annotations

from hashlib import sha256

import pytest

from onceward import NOT_FOUND, Found, Gate
from onceward._core.record import FRESH, Claimant, claim
from onceward.errors import IllegalMove, ResultInvalid
from onceward.gate.operator_actions import CANDIDATES_MAX, find_records, id_of_key, reconcile_record
from onceward.stores.memory import MemoryStore


@pytest.fixture
def many() -> MemoryStore:
    """A store with records of known ids, the first and the last possible one among them."""
    store = MemoryStore()
    for id in (bytes(32), b"\xff" * 32, *(sha256(bytes([number])).digest() for number in range(60))):
        claimant = Claimant(id, "key", "s", "k", "", None, "blind", b"\x01" * 33, 1_000, 0, False)
        assert store.put(claim(claimant, FRESH, token=id[:16], version=id[16:]), None).landed
    return store


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 12, 63, 64])
def test_records_are_found_by_the_first_digits_of_their_ids(many: MemoryStore, length: int) -> None:
    """
    An odd number of digits and the ends of the range included: what a look at all of them would find.
    """
    ids = sorted(row.id.hex() for row in many.scan(b"", 1_000, _everything()))

    for id in ids:
        expected = [one for one in ids if one.startswith(id[:length])][:CANDIDATES_MAX]
        assert [found.id.hex() for found in find_records(many, id[:length])] == expected


def test_digits_that_no_id_begins_with_find_nothing(many: MemoryStore) -> None:
    """
    Not the nearest record either.
    """
    assert [find_records(many, digits) for digits in ("0001", "fffe", "ab" * 32)] == [[], [], []]


def test_the_id_of_a_key_is_the_gates_own() -> None:
    """
    The environment in the scope goes into the key, once.
    """
    gate = Gate("memory://", scope="test:acme")
    gate.run("job:1", lambda: 1)

    assert gate.records.get("job:1").id == id_of_key("test:acme", "job:1").hex()
    assert id_of_key("test:acme", "test:job:1") == id_of_key("test:acme", "job:1")


def test_a_record_that_is_not_there_is_refused(many: MemoryStore) -> None:
    """
    Nothing is made up, and nothing is written.
    """
    with pytest.raises(IllegalMove, match="no such record"):
        reconcile_record(many, b"\x01" * 32, NOT_FOUND)

    assert None is many.load(b"\x01" * 32)


def test_an_answer_that_cannot_be_stored_is_refused_and_changes_nothing(many: MemoryStore) -> None:
    """
    The record stays in doubt until somebody gives an answer that can be kept.
    """
    id = b"\xff" * 32
    before = many.load(id)

    with pytest.raises(ResultInvalid, match="cannot be stored"):
        reconcile_record(many, id, Found(object()))

    assert before.version == many.load(id).version


def _everything() -> object:
    from onceward.stores import Selection

    return Selection()
