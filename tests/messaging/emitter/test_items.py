"""One reference, one item; and nothing that was emitted is lost."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from emitter_support import COLOURS, Post, event

from onceward import AsyncEmitter, AsyncGate, Breaker, ConfigurationError, KeyReused, Retry, StoreUnavailable
from onceward.errors import KeyInvalid, RequestInvalid
from onceward.messaging.emitter import Cadence

DOWN = ConnectionRefusedError("down")


class BadRequest(Exception):
    """What the other side says of an item that it will never take."""


class TestReferences:
    """The same reference twice is one item."""

    def test_an_equal_item_is_a_duplicate_while_it_waits_and_after_it_was_sent(self, post: Post) -> None:
        """
        Emitted three times, also by another process: sent once.
        """
        emitter, other = post.emitter(), post.emitter(post.another_gate())
        first, second = post.emit(emitter, 1, 1)
        elsewhere = post.emit(other, 1)
        post.do(emitter.flush())
        late = post.emit(emitter, 1) + post.emit(other, 1)
        post.do(emitter.flush())
        post.do(other.flush())

        assert not first.duplicate
        assert [one.duplicate for one in (second, *elsewhere, *late)] == [True] * 4
        assert (first.reference, first.key) == ("usage:c-17:1", "test:usage:c-17:1")
        assert post.arrived == ["usage:c-17:1"]

    def test_other_content_under_the_same_reference_is_refused(self, post: Post) -> None:
        """
        Waiting or sent: `KeyReused`, and what was there before stands.
        """
        emitter = post.emitter()
        post.emit(emitter, 1)
        with pytest.raises(KeyReused, match="a reference of its own"):
            post.do(emitter.emit(event(1, units=2)))
        post.do(emitter.flush())
        with pytest.raises(KeyReused):
            post.do(emitter.emit(event(1, units=2)))
        post.do(emitter.flush())

        assert [item.data["units"] for batch in post.batches for item in batch] == [1]
        assert emitter.waiting == 0

    @pytest.mark.parametrize(("days", "sends"), [(1.5, 1), (32, 2)])
    def test_a_late_duplicate_is_one_for_as_long_as_a_record_is_kept(
        self, quick: Post, days: float, sends: int
    ) -> None:
        """
        Retention and tombstone of the gate: a day and a month. Then it is a new item.
        """
        emitter = quick.emitter()
        quick.emit(emitter, 1)
        quick.do(emitter.flush())
        quick.env.advance(days * 86_400)
        late = quick.emit(emitter, 1)
        quick.do(emitter.flush())

        assert (sends == 1, sends) == (late[0].duplicate, len(quick.arrived))

    def test_two_emitters_of_one_scope_have_references_of_their_own(self, quick: Post) -> None:
        """
        The emitter's name is part of what is compared.
        """
        usage, audit = quick.emitter(), quick.emitter(name="audit")
        quick.emit(usage, 1)

        assert not quick.emit(audit, 1)[0].duplicate

    def test_the_content_is_the_same_whoever_sends_it(self, quick: Post) -> None:
        """
        It is handed out as it reads back from the store, on the first send as after a restart.
        """
        emitter = quick.emitter()
        quick.do(emitter.emit({**event(1), "price": Decimal("1.50"), "tags": ("a",)}))
        quick.do(emitter.flush())

        assert {**event(1), "price": "1.50", "tags": ["a"]} == quick.batches[0][0].data
        assert "1.50" not in repr(quick.batches[0][0])

    @pytest.mark.parametrize(
        ("item", "refused", "advice"),
        [
            ("usage", RequestInvalid, "a mapping"),
            ({"customer": "c-17"}, KeyInvalid, "needs number"),
            ({**event(1), "handle": object()}, RequestInvalid, "cannot be kept"),
            ({**event(1), "blob": "x" * 40_000}, RequestInvalid, "store the large part elsewhere"),
        ],
    )
    def test_what_cannot_be_an_item_is_refused(
        self, quick: Post, item: Any, refused: type[Exception], advice: str
    ) -> None:
        """
        When it is emitted; nothing is taken.
        """
        emitter = quick.emitter()
        with pytest.raises(refused, match=advice):
            quick.do(emitter.emit(item))

        assert (emitter.waiting, quick.do(emitter.flush()).batches) == (0, 0)

    def test_looking_at_records_does_not_show_what_is_in_them(self, quick: Post) -> None:
        """
        Items are records of their own kind; their content is for the sender.
        """
        emitter = quick.emitter()
        quick.emit(emitter, 1)
        (seen,) = quick.do(quick.gate.records.list())

        assert (seen.kind, seen.operation, seen.state, seen.result) == ("emit", "usage", "claimed", None)


class TestFailures:
    """What fails is tried again under the same key, and then kept."""

    def test_a_send_that_fails_is_tried_again_with_the_same_keys(self, post: Post) -> None:
        """
        Twice refused, then taken: three attempts, the same items, settled once.
        """
        emitter = post.emitter()
        post.answers = [DOWN, TimeoutError("no answer")]
        post.emit(emitter, 1, 2, 3)
        done = post.do(emitter.tick())

        assert (done.batches, done.sent, done.given_up, done.error) == (1, 3, 0, None)
        # In any order: the emitter's clock stands still here, and a server's does not.
        assert [sorted(item.key for item in batch) for batch in post.batches] == [
            ["test:usage:c-17:1", "test:usage:c-17:2", "test:usage:c-17:3"]
        ] * 3

    def test_only_what_failed_is_tried_again(self, quick: Post) -> None:
        """
        An answer per item: the one that was taken is not sent again, the one that is refused for good is set aside.
        """
        emitter = quick.emitter()
        quick.answers = [["taken", DOWN, BadRequest("no such customer")]]
        quick.emit(emitter, 1, 2, 3)
        done = quick.do(emitter.tick())

        assert [[item.data["number"] for item in batch] for batch in quick.batches] == [[1, 2, 3], [2]]
        assert (done.sent, done.given_up, emitter.given_up) == (2, 1, 1)
        assert isinstance(done.error, BadRequest)

    def test_answers_may_be_by_reference(self, quick: Post) -> None:
        """
        In any order; an exception is that item's failure.
        """
        emitter = quick.emitter()
        quick.answers = [{"usage:c-17:2": BadRequest(), "usage:c-17:1": {"id": "d-1"}}]
        quick.emit(emitter, 1, 2)

        assert quick.do(emitter.flush())[1:3] == (1, 1)

    def test_an_answer_that_says_nothing_is_not_taken_for_a_success(self, quick: Post) -> None:
        """
        A response object, or too few answers: the items stay, and the error says what to return.
        """
        emitter = quick.emitter()
        quick.answers = [["one answer"], {"accepted": 2}, object()]
        for _ in range(3):
            quick.emit(emitter, 1, 2)
            done = quick.do(emitter.flush())

            assert (done.sent, done.given_up) == (0, 2)
            assert isinstance(done.error, ConfigurationError)

    def test_the_policy_may_judge_the_answer(self, quick: Post) -> None:
        """
        With `Retry(failed=...)` any answer will do; one that counts as a failure is tried again, and then kept.
        """
        emitter = quick.emitter(retry=quick.policy(2, failed=lambda answer: answer.status_code >= 500))

        class Answer:
            headers: dict[str, str] = {}

            def __init__(self, status_code: int) -> None:
                self.status_code = status_code

        quick.answers = [Answer(503), Answer(200), Answer(503), Answer(503)]
        quick.emit(emitter, 1, 2, 3)
        good = quick.do(emitter.tick())
        quick.emit(emitter, 4, 5, 6)
        bad = quick.do(emitter.tick())

        assert (good.sent, good.given_up) == (3, 0)
        assert (bad.sent, bad.given_up) == (0, 3)

    def test_what_was_given_up_stays_until_it_is_resumed(self, post: Post) -> None:
        """
        It is not sent by itself again, not by the next emitter either; resumed, it goes out under the same key.
        """
        emitter = post.emitter()
        post.answers = [DOWN] * 3
        post.emit(emitter, 1, 2, 3)
        failed = post.do(emitter.tick())
        idle = post.do(emitter.flush())
        other = post.emitter(post.another_gate())
        post.env.advance(3_600)
        elsewhere = post.do(other.flush())
        resumed = post.do(other.resume())
        done = post.do(other.flush())

        assert (failed.given_up, failed.sent, failed.error) == (3, 0, DOWN)
        assert (idle.batches, elsewhere.batches) == (0, 0)
        assert (resumed, done.sent) == (3, 3)
        assert len({tuple(sorted(item.key for item in batch)) for batch in post.batches}) == 1

    def test_emitting_again_what_was_given_up_sends_it_again(self, quick: Post) -> None:
        """
        Whoever emits it again wants it sent; it is still one item.
        """
        emitter = quick.emitter()
        quick.answers = [DOWN] * 3
        quick.emit(emitter, 1)
        quick.do(emitter.flush())
        again = quick.emit(emitter, 1)

        assert again[0].duplicate
        assert quick.do(emitter.flush()).sent == 1

    def test_an_open_circuit_lets_the_items_wait(self, quick: Post) -> None:
        """
        What was never tried is not given up. It goes when the circuit lets it, and until then nothing is asked.
        """
        circuit = Breaker("usage", threshold=1, recovery=30, environment=quick.env)
        emitter = quick.emitter(retry=quick.policy(1, breaker=circuit))
        quick.answers = [DOWN]
        quick.emit(emitter, 1, 2, 3)
        quick.do(emitter.tick())
        quick.emit(emitter, 4, 5, 6)
        held = quick.do(emitter.tick())
        quick.env.advance(20)
        still = quick.do(emitter.tick())
        quick.env.advance(11)
        done = quick.do(emitter.tick())

        assert (held.batches, held.waiting, held.given_up) == (0, 3, 0)
        assert (still.batches, still.waiting) == (0, 3)
        assert (done.batches, done.sent, done.waiting) == (1, 3, 0)

    def test_a_store_that_is_away_after_the_send_is_told_later(self, quick: Post, monkeypatch: Any) -> None:
        """
        The items were taken: they are settled with the next tick, and not sent again.
        """
        emitter = quick.emitter()
        quick.emit(emitter, 1, 2, 3)
        put = quick.gate.store.put

        def away(write: Any, expect: Any) -> Any:
            raise StoreUnavailable

        monkeypatch.setattr(quick.gate.store, "put", away)
        quick.do(emitter.tick())
        monkeypatch.setattr(quick.gate.store, "put", put)
        quick.do(emitter.tick())
        quick.env.advance(3_600)
        later = quick.do(quick.emitter(quick.another_gate()).flush())

        assert (len(quick.batches), later.batches) == (1, 0)

    def test_a_store_that_is_away_before_the_send_leaves_the_items_waiting(self, quick: Post, monkeypatch: Any) -> None:
        """
        Nothing is sent under a lease that could not be lengthened; later it is.
        """
        emitter = quick.emitter()
        quick.emit(emitter, 1)
        quick.env.advance(80)
        put = quick.gate.store.put

        def away(write: Any, expect: Any) -> Any:
            raise StoreUnavailable

        monkeypatch.setattr(quick.gate.store, "put", away)
        failed = quick.do(emitter.flush())
        monkeypatch.setattr(quick.gate.store, "put", put)
        done = quick.do(emitter.flush())

        assert (failed.batches, failed.waiting) == (0, 1)
        assert isinstance(failed.error, StoreUnavailable)
        assert (done.sent, done.waiting) == (1, 0)

    def test_send_cannot_flush_its_own_emitter(self, quick: Post) -> None:
        """
        That would wait for itself for ever. It may emit.
        """
        said: list[str] = []

        def send(items: list[Any]) -> Any:
            quick.batches.append(items)
            return _flushing(emitter, said, quick.awaits)

        emitter = quick.emitter(send=send)
        quick.emit(emitter, 1)
        quick.do(emitter.flush())

        assert said == ["send cannot flush, tick, resume or close its own emitter; it may emit"]


def _flushing(emitter: Any, said: list[str], awaits: bool) -> Any:
    async def awaiting() -> None:
        try:
            await emitter.flush()
        except ConfigurationError as error:
            said.append(str(error))

    if awaits:
        return awaiting()
    try:
        emitter.flush()
    except ConfigurationError as error:
        said.append(str(error))
    return None


class TestDeadLetters:
    """With dead letters, what is given up goes there, one letter per item."""

    def test_each_item_that_is_given_up_is_a_letter_under_its_own_key(self, post: Post) -> None:
        """
        It leaves the spool; a requeue sends it alone, under the same key, and the letter is gone.
        """
        dead = post.gate.dead_letters(payload="plain")
        emitter = post.emitter(retry=post.policy(2, dead=dead))
        post.answers = [DOWN, lambda items: [None if item.reference.endswith("c-17:1") else DOWN for item in items]]
        post.emit(emitter, 1, 2, 3)
        done = post.do(emitter.tick())
        letters = post.do(dead.list())
        post.do(dead.requeue("usage:c-17:2"))

        assert (done.sent, done.given_up, emitter.given_up) == (1, 2, 0)
        assert {(one.key, one.attempts) for one in letters} == {("test:usage:c-17:2", 2), ("test:usage:c-17:3", 2)}
        assert [item.key for item in post.batches[-1]] == ["test:usage:c-17:2"]
        assert event(2) == post.batches[-1][0].data
        assert len(post.do(dead.list())) == 1
        assert post.emit(emitter, 2)[0].duplicate

    def test_a_requeue_that_the_other_side_refuses_fails(self, quick: Post) -> None:
        """
        An error in the answers is the item's: the letter stays.
        """
        dead = quick.gate.dead_letters(payload="plain")
        emitter = quick.emitter(retry=quick.policy(1, dead=dead))
        quick.answers = [[BadRequest("no")], [BadRequest("still no")]]
        quick.emit(emitter, 1)
        quick.do(emitter.flush())
        with pytest.raises(BadRequest, match="still no"):
            quick.do(dead.requeue("usage:c-17:1"))
        (letter,) = quick.do(dead.list())

        assert (letter.reason, letter.message) == ("requeue", "still no")

    def test_letters_without_their_payload_are_refused(self, quick: Post) -> None:
        """
        The item would be lost there.
        """
        with pytest.raises(ConfigurationError, match="payload='plain'"):
            quick.emitter(retry=quick.policy(dead=quick.gate.dead_letters()))

    def test_letters_that_cannot_be_put_leave_the_item_in_the_spool(self, quick: Post) -> None:
        """
        Dead letters that raise: it is set aside, and can be resumed.
        """

        class Broken:
            def put(self, stop: Any, call: Any) -> None:
                raise OSError("disk full")

        emitter = quick.emitter(retry=quick.policy(1, dead=Broken()))
        quick.answers = [DOWN]
        quick.emit(emitter, 1)
        quick.do(emitter.flush())

        assert (emitter.given_up, quick.do(emitter.resume()), quick.do(emitter.flush()).sent) == (1, 1, 1)


class TestOthers:
    """Several emitters, one spool."""

    def test_what_waits_elsewhere_is_left_alone_until_its_lease_lapses(self, quick: Post) -> None:
        """
        Then the next emitter of that name sends it under the same key, and the first one does not.
        """
        first, second = quick.emitter(), quick.emitter(quick.another_gate())
        quick.emit(first, 1, 2)
        early = quick.do(second.flush())
        quick.env.advance(96)  # Five seconds to wait, sixty to send, thirty to spare; and one.
        late = quick.do(second.flush())
        overtaken = quick.do(first.flush())

        assert (early.sent, late.sent, overtaken.sent) == (0, 2, 0)
        assert sorted(quick.arrived) == ["usage:c-17:1", "usage:c-17:2"]
        assert first.waiting == 0

    def test_the_oldest_go_first_after_a_restart(self, quick: Post) -> None:
        """
        In the order in which they were first emitted, however the store sorts them.
        """
        first = quick.emitter(cadence=Cadence(size=100, seconds=5))
        for number in range(20):
            quick.emit(first, number)
            quick.env.advance(0.001)
        quick.env.advance(200)
        second = quick.emitter(quick.another_gate(), cadence=Cadence(size=100, seconds=5))
        quick.do(second.tick())

        assert [f"usage:c-17:{number}" for number in range(20)] == quick.arrived

    @pytest.mark.parametrize("colour", COLOURS)
    @pytest.mark.parametrize("kind", ["memory", "sqlite"])
    def test_two_that_take_over_at_the_same_time_share_it(self, tmp_path: Path, kind: str, colour: str) -> None:
        """
        What a third one left behind is sent once, by either.
        """
        post = Post(kind, colour, tmp_path)
        first = post.emitter(spool_max=100)
        post.emit(first, *range(60))
        post.env.advance(200)
        heirs = [post.emitter(post.another_gate()) for _ in range(2)]
        start = threading.Barrier(2)

        def inherit(emitter: Any) -> int:
            start.wait(10)
            return int(emitter.flush().sent)

        async def both() -> list[int]:
            return [done.sent for done in await asyncio.gather(*(one.flush() for one in heirs))]

        if post.awaits:
            sent = post.do(both())
        else:
            with ThreadPoolExecutor(2) as pool:
                sent = list(pool.map(inherit, heirs))
        post.close()

        assert sum(sent) == 60
        assert sorted(f"usage:c-17:{number}" for number in range(60)) == sorted(post.arrived)

    def test_an_emitter_takes_over_no_more_than_it_has_room_for(self, quick: Post) -> None:
        """
        The rest is left for others, or for later.
        """
        first = quick.emitter()
        quick.emit(first, *range(10))
        quick.env.advance(200)
        second = quick.emitter(quick.another_gate(), spool_max=6)
        done = quick.do(second.tick())

        assert done.sent == 6

    def test_an_awaiting_emitter_goes_on_in_another_loop(self) -> None:
        """
        What waited when one event loop ended is sent from the next.
        """
        sent: list[str] = []

        async def send(items: list[Any]) -> None:
            sent.extend(item.reference for item in items)

        gate = AsyncGate("memory://", scope="test:acme")
        emitter = AsyncEmitter(
            gate, "usage", send, reference="{number}", retry=Retry(), cadence=Cadence(size=3, seconds=60)
        )

        async def emit(*numbers: int) -> None:
            for number in numbers:
                await emitter.emit({"number": number})

        async def end() -> None:
            await emit(2)
            await emitter.close()
            await gate.close()

        asyncio.run(emit(1))
        asyncio.run(end())

        assert sent == ["1", "2"]


@pytest.mark.fault("a-spools-lock-cannot-be-taken-twice")
def test_an_emit_that_is_thrown_away_gives_its_place_back_wherever_that_happens() -> None:
    """
    Its coroutine is closed by the garbage collector, in a thread that holds the spool at that moment.
    """
    places: list[int] = []

    async def main() -> None:
        async def send(items: list[Any]) -> None: ...

        async def never(write: Any, expect: Any) -> Any:
            await asyncio.Event().wait()

        gate = AsyncGate("memory://", scope="test:acme")
        gate.store.put = never  # type: ignore[method-assign]
        emitter = AsyncEmitter(gate, "usage", send, reference="{number}", retry=Retry(), cadence=Cadence(), timer=False)
        thrown: Any = emitter.emit({"number": 1})
        thrown.send(None)
        places.append(emitter._spool.under_way)
        with emitter._lock:
            thrown.close()
        places.append(emitter._spool.under_way)

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    thread.join(10)

    assert places == [1, 0]
