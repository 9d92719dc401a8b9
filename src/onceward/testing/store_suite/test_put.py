"""Putting: a record lands where the expected one stands, whole, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from onceward._core.record import NOW, PutResult, State, Write, record_from_write
from onceward._core.record_types import FIXED_BY_CLAIM
from onceward.stores import Selection
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.rows import (
    HOUR_US,
    random_token,
    reclaimed,
    released,
    row,
    settled,
    without_durations,
)

PLAIN = (int, str, bytes, type(None))

WHEN = 1_234_567_890_123_456
"""An instant with every digit in use: microseconds must survive."""


class TestPuttingWhereNothingStands:
    """`expect` is None."""

    def test_a_first_put_lands(self, do: Do, store: Any, scope: str) -> None:
        """
        A record is inserted where none stands, and is what stands there from then on.
        """
        write = row(scope)

        standing = do(store.put(write, None))

        assert True is standing.landed
        assert write.version == standing.record.version
        assert without_durations(standing.record) == without_durations(do(store.load(write.id)))

    def test_a_second_put_is_refused_and_shown_what_stands(self, do: Do, store: Any, scope: str) -> None:
        """
        Where a record stands, a put that expects none changes nothing and learns what is there.
        """
        first = do(store.put(row(scope), None)).record

        standing = do(store.put(row(scope, operation="other", fingerprint=b"\x01" + bytes(32)), None))

        assert False is standing.landed
        assert without_durations(first) == without_durations(standing.record)
        assert without_durations(first) == without_durations(do(store.load(first.id)))

    def test_a_put_sent_twice_lands_once_and_is_recognised(self, do: Do, store: Any, scope: str) -> None:
        """
        Sent again after its answer was lost, a put does not land a second time; its own version stands there.
        """
        write = row(scope)
        first = do(store.put(write, None)).record

        again = do(store.put(write, None))

        assert False is again.landed
        assert without_durations(first) == without_durations(again.record)

    def test_nothing_is_loaded_where_nothing_was_put(self, do: Do, store: Any, scope: str) -> None:
        """
        An id that was never put has no record.
        """
        assert None is do(store.load(row(scope).id))

    def test_the_same_key_in_two_scopes_is_two_records(self, do: Do, store: Any, scope: str) -> None:
        """
        Only the pair of scope and key is unique: the same key in another scope is another record.
        """
        ours, theirs = row(f"{scope}:ours"), row(f"{scope}:theirs")

        assert [do(store.put(write, None)).landed for write in (ours, theirs)] == [True, True]
        assert False is do(store.put(row(f"{scope}:ours"), None)).landed
        assert [ours.scope, theirs.scope] == [do(store.load(write.id)).scope for write in (ours, theirs)]


class TestPuttingWhereAVersionIsExpected:
    """`expect` is a version."""

    def test_the_expected_version_is_replaced(self, do: Do, store: Any, scope: str) -> None:
        """
        A put that names the version that stands there lands, and its own version stands there then.
        """
        held = do(store.put(row(scope), None)).record
        write = settled(held)

        standing = do(store.put(write, held.version))

        assert True is standing.landed
        assert (State.SETTLED, write.version) == (standing.record.state, standing.record.version)
        assert without_durations(standing.record) == without_durations(do(store.load(held.id)))

    def test_another_version_is_left_alone(self, do: Do, store: Any, scope: str) -> None:
        """
        A put that names a version that does not stand there changes nothing, and learns what is there.
        """
        held = do(store.put(row(scope), None)).record

        standing = do(store.put(settled(held), random_token()))

        assert False is standing.landed
        assert without_durations(held) == without_durations(standing.record)
        assert without_durations(held) == without_durations(do(store.load(held.id)))

    def test_of_two_changes_from_the_same_start_only_the_first_lands(self, do: Do, store: Any, scope: str) -> None:
        """
        Two writers that read the same record cannot both replace it, even if both own it (they share the token).
        """
        held = do(store.put(row(scope), None)).record
        renewal = row(scope, token=held.token, fence=held.fence, rise=False)
        late = settled(held)

        assert True is do(store.put(renewal, held.version)).landed
        standing = do(store.put(late, held.version))

        assert (False, renewal.version) == (standing.landed, standing.record.version)
        assert do(store.load(held.id)).state == State.CLAIMED

    def test_where_no_row_is_an_expected_version_finds_nothing(self, do: Do, store: Any, scope: str) -> None:
        """
        With a version expected and no row there, nothing lands, and there is nothing to show.
        """
        write = row(scope)

        assert PutResult(False, None) == do(store.put(write, random_token()))
        assert None is do(store.load(write.id))

    def test_a_swap_sent_twice_lands_once_and_is_recognised(self, do: Do, store: Any, scope: str) -> None:
        """
        Sent again after its answer was lost, a swap does not land a second time; its own version stands there.
        """
        held = do(store.put(row(scope), None)).record
        write = settled(held)
        first = do(store.put(write, held.version)).record

        again = do(store.put(write, held.version))

        assert False is again.landed
        assert without_durations(first) == without_durations(again.record)

    def test_a_token_or_an_empty_version_is_no_version(self, do: Do, store: Any, scope: str) -> None:
        """
        Only the version is compared: naming the token, or nothing of length zero, moves nothing.
        """
        held = do(store.put(row(scope), None)).record

        assert False is do(store.put(settled(held), held.token)).landed
        assert False is do(store.put(settled(held), b"")).landed
        assert do(store.load(held.id)).state == State.CLAIMED

    def test_a_released_record_is_claimed_again(self, do: Do, store: Any, scope: str) -> None:
        """
        A claim over a released record starts over: nothing of the record before it shines through.
        """
        held = do(store.put(row(scope), None)).record
        free = do(store.put(released(held)._replace(error=b"{}"), held.version)).record
        write = reclaimed(free, operation="again")

        standing = do(store.put(write, free.version))

        assert (standing.landed, standing.record.error) == (True, None)
        assert (
            standing.record.operation,
            standing.record.attempt,
            standing.record.forget_left,
        ) == ("again", 2, None)


EVERY_FIELD: dict[str, dict[str, Any]] = {
    "claimed": {"lease": HOUR_US},
    "with its holder": {"lease": HOUR_US, "holder": b"\x01\x00\xff a process, as bytes that are no text"},
    "settled": {
        "state": "settled",
        "first_at": WHEN,
        "settled_at": WHEN + 1,
        "lease": None,
        "replay": HOUR_US,
        "forget": 2 * HOUR_US,
        "codec": "json/1",
        "result": b"\x00\xff\x00 NUL and bytes that are no text \xc3\x28",
    },
    "failed": {"state": "settled", "settled_at": NOW, "lease": None, "error": b'{"type": "Declined"}'},
    "in doubt": {"state": "in_doubt", "doubt": 1, "lease": None, "attempt": 2_000_000_000},
    "for ever": {"state": "settled", "settled_at": NOW, "lease": None, "codec": "bytes/1", "result": b""},
    "not replayable": {"state": "settled", "settled_at": NOW, "lease": None, "replay": 1, "forget": 1},
    "of a family": {"family": bytes(range(32)), "kind": "step", "guarantee": "repeatable"},
    "with empty text": {"operation": "", "codec": "", "result": None, "error": b""},
    "in many scripts": {"operation": "Zahlung \u00e4\u00df \u0394 \u65e5\u672c \U0001f4b8 \u202e'\";--%s?$1"},
    "with a high fence": {"fence": 2**62 - 1, "rise": False},
}


_AS_CLAIMED: dict[str, Any] = {
    "state": "claimed",
    "doubt": 0,
    "lease": HOUR_US,
    **dict.fromkeys(("settled_at", "replay", "forget", "codec", "result", "error", "holder")),
}


class TestTheWholeRecord:
    """What is put is what is read, field by field."""

    @pytest.mark.parametrize("fields", EVERY_FIELD.values(), ids=EVERY_FIELD.keys())
    def test_every_field_comes_back(self, do: Do, store: Any, scope: str, fields: dict[str, Any]) -> None:
        """
        None stays None, empty stays empty, bytes stay bytes and microseconds stay microseconds, inserted or swapped.
        """
        write = row(scope, rise=False)._replace(**fields)
        over = write._replace(id=row(scope, "swapped", kind=write.kind).id, key="swapped", version=random_token())
        claim = over._replace(**_AS_CLAIMED, version=random_token(), token=random_token())
        before = do(store.put(claim, None)).record
        over = over._replace(first_at=before.first_at)

        assert _as_put(write) == _as_read(do, store, write, None)
        assert _as_put(over) == _as_read(do, store, over, before.version)

    def test_a_claim_replaces_every_field(self, do: Do, store: Any, scope: str) -> None:
        """
        A claim moves the whole record: no field of the one before is kept, and none is lost.
        """
        full = row(scope)._replace(**EVERY_FIELD["settled"], family=bytes(32), holder=b"somebody")
        before = do(store.put(full, None)).record
        write = row(scope, fingerprint=b"\x02" + bytes(32), operation="other", guarantee="keyed", doubt=1)
        write = write._replace(fence=before.fence + 1)
        read = _as_read(do, store, write, before.version)

        assert read.fence > before.fence
        assert _as_put(write._replace(fence=read.fence)) == read

    def test_an_ending_replaces_every_field_that_may_change(self, do: Do, store: Any, scope: str) -> None:
        """
        Of the claim that it ends, a write keeps what that fixed, and nothing else.
        """
        full = row(scope)._replace(**EVERY_FIELD["settled"], family=bytes(32), holder=b"somebody", error=b"{}")
        before = do(store.put(full, None)).record
        kept = {name: getattr(before, name) for name in FIXED_BY_CLAIM}
        write = row(scope, rise=False, doubt=1, state="in_doubt", lease=None)._replace(**kept)

        assert _as_put(write) == _as_read(do, store, write, before.version)

    def test_the_fingerprint_survives_every_move(self, do: Do, store: Any, scope: str) -> None:
        """
        Claimed, settled or released: the fingerprint that stands there is the one that was written.
        """
        write = row(scope, fingerprint=b"\x03" + bytes(range(32)))
        held = do(store.put(write, None)).record
        ended = do(store.put(released(held), held.version)).record

        assert [write.fingerprint] * 3 == [held.fingerprint, ended.fingerprint, do(store.load(write.id)).fingerprint]

    def test_every_value_is_a_plain_one(self, do: Do, store: Any, scope: str) -> None:
        """
        Numbers are `int`, texts `str` and bytes `bytes`, in every way of reading: a driver's own kinds (`memoryview`,
        `bytearray`, `Decimal`) equal them, and fail later, where somebody hashes, joins or stores them.
        """
        write = row(scope)._replace(**EVERY_FIELD["settled"], family=bytes(32), holder=b"somebody", error=b"{}")
        shown = [do(store.put(write, None)).record, do(store.put(row(scope), None)).record, do(store.load(write.id))]
        shown += do(store.scan(b"", 10, Selection(scope=scope)))

        assert len(shown) == 4
        assert {
            name: type(value) for found in shown for name, value in found._asdict().items() if type(value) not in PLAIN
        } == {}

    def test_long_keys_and_large_results_come_back(self, do: Do, store: Any) -> None:
        """
        A key and a scope of 255 characters, and a result of a mebibyte.
        """
        write = row("s" * 240 + random_token().hex()[:15], "k" * 255, rise=False)
        write = write._replace(**EVERY_FIELD["settled"] | {"result": bytes(range(256)) * 4096})

        assert _as_put(write) == _as_read(do, store, write, None)


def _as_put(write: Write) -> Any:
    return without_durations(record_from_write(write, now=-1, fence=write.fence))


def _as_read(do: Do, store: Any, write: Write, expect: bytes | None) -> Any:
    """What was answered and what is loaded (they must be equal), with the instants that the store chose as -1."""
    answered, loaded = (
        without_durations(do(store.put(write, expect)).record),
        without_durations(do(store.load(write.id))),
    )

    assert answered == loaded
    return loaded._replace(
        first_at=-1 if write.first_at == NOW else loaded.first_at,
        settled_at=-1 if write.settled_at == NOW else loaded.settled_at,
    )
