"""What becomes of a delivered message: the seam of all queues, in both colours, without any queue."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from onceward import NOT_FOUND, Found
from onceward.errors import (
    ConfigurationError,
    InDoubt,
    InFlight,
    KeyMissing,
    KeyReused,
    NothingHappened,
    NotReplayable,
    StoreUnavailable,
)
from onceward.queues import DeliveryEnd, MessageGate, MessageKind, MessageQueue, QueueMessage
from onceward.queues.message import arguments_by_name

ORDER = {"order_id": "o-1", "amount": 12}
MESSAGE = QueueMessage("charge", "m-1", ORDER, (), ORDER)
OTHER = MESSAGE._replace(id="m-2")


class TryLater(Exception):
    """How a queue's work asks for a retry."""


QUEUE = MessageQueue("some", retries=(TryLater,))


class Consumer:
    """One colour of a gate, and work that counts what it did."""

    def __init__(self, colour: str) -> None:
        self.colour = colour
        self.effects = 0
        self.raises: list[BaseException] = []
        self.result: Any = {"charged": True}
        self._loop = asyncio.new_event_loop()

    def open(self, **options: Any) -> Consumer:
        """A gate with these options."""
        self.gate = MessageGate("memory://", **{"scope": "test:q", "wait": 0, **options})
        return self

    def work(self) -> Any:
        """Have the effect, and then fail, if that is the plan."""
        self.effects += 1
        if self.raises:
            raise self.raises.pop(0)
        return self.result

    def take(self, message: QueueMessage = MESSAGE, work: Callable[[], Any] | None = None, **more: Any) -> DeliveryEnd:
        """Deliver a message."""
        chosen = work or self.work
        if self.colour == "blocking":
            return self.gate.consume(message, chosen, **more)

        async def awaited() -> Any:
            return chosen()

        return self._loop.run_until_complete(self.gate.aconsume(message, awaited, **more))

    def records(self) -> list[Any]:
        """What the store has."""
        return list(self.gate.blocking.records.list())

    def break_store(self, monkeypatch: pytest.MonkeyPatch, *, after: int = 0) -> None:
        """From some put on, the store is away."""
        store: Any = self.gate.blocking.store if self.colour == "blocking" else self.gate.awaiting.store
        put, left = store.put, [after]

        def is_away() -> bool:
            left[0] -= 1
            return left[0] < 0

        def blocking(*args: Any) -> Any:
            if is_away():
                raise StoreUnavailable
            return put(*args)

        async def awaiting(*args: Any) -> Any:
            if is_away():
                raise StoreUnavailable
            return await put(*args)

        monkeypatch.setattr(store, "put", blocking if self.colour == "blocking" else awaiting)

    def close(self) -> None:
        """The end."""
        self._loop.run_until_complete(self.gate.aclose())
        self._loop.close()


@pytest.fixture(params=["blocking", "awaiting"])
def consumer(request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """A consumer of either colour."""
    made = Consumer(request.param).open()
    yield made
    made.close()


class TestRedelivery:
    """The same message comes again."""

    @pytest.mark.fault("queues-a-redelivery-is-another-message")
    def test_a_redelivered_message_is_answered_from_its_record(self, consumer: Consumer) -> None:
        """It is done, and has its first result: acknowledge."""
        first, second = consumer.take(), consumer.take()

        assert (first.end, first.value, first.replayed) == ("done", {"charged": True}, False)
        assert (second.end, second.value, second.replayed) == ("done", {"charged": True}, True)
        assert consumer.effects == 1

    def test_another_message_is_another_piece_of_work(self, consumer: Consumer) -> None:
        """Two ids, two effects; and one id is two pieces of work for two consumers of it."""
        for message in (MESSAGE, OTHER, MESSAGE._replace(name="notify")):
            consumer.take(message)

        assert consumer.effects == 3

    def test_an_id_is_not_held_to_its_arguments(self, consumer: Consumer) -> None:
        """Its work may change them when it asks for a retry, and they need not be plain data."""
        consumer.take(MESSAGE._replace(arguments={"a": object()}))

        assert consumer.take(MESSAGE._replace(arguments={"a": object()})).replayed
        assert consumer.effects == 1

    def test_a_result_that_was_not_kept_is_said_to_be(self, consumer: Consumer) -> None:
        """It happened, so it is done; a queue with results must not hand on a None in its place."""
        consumer.result = object()
        consumer.take()
        end = consumer.take()

        assert (end.end, type(end.error)) == ("done", NotReplayable)
        assert (consumer.effects, consumer.gate.dead.list()) == (1, ())

    def test_read_only_work_is_never_gated(self, consumer: Consumer) -> None:
        """It has no effect, so it may run as often as it is delivered."""
        consumer.open(messages={"charge": MessageKind("read-only")})
        ends = [consumer.take(), consumer.take()]

        assert [one.end for one in ends] == ["done", "done"]
        assert (consumer.effects, consumer.records()) == (2, [])


class TestKeys:
    """What is one piece of work."""

    def test_a_key_from_the_body_makes_two_messages_one(self, consumer: Consumer) -> None:
        """Whoever sent it twice: one order, one charge."""
        consumer.open(messages={"charge": MessageKind(key="charge:{order_id}")})

        assert [consumer.take(one).end for one in (MESSAGE, OTHER)] == ["done", "done"]
        assert consumer.effects == 1

    def test_a_key_that_was_sent_along_is_the_key(self, consumer: Consumer) -> None:
        """The sender knows best."""
        for message in (MESSAGE, OTHER):
            consumer.take(message._replace(key="order-1"))

        assert consumer.effects == 1
        assert consumer.gate.blocking.records.get("order-1") is not None

    def test_one_key_with_other_arguments_is_a_dead_letter(self, consumer: Consumer) -> None:
        """Another amount under the same key is a mistake, and is neither run nor lost."""
        consumer.open(messages={"charge": MessageKind(key="charge:{order_id}")})
        consumer.take()
        end = consumer.take(OTHER._replace(arguments={**ORDER, "amount": 13}))

        assert (end.end, type(end.error), consumer.effects) == ("dead", KeyReused, 1)
        assert end.letter is not None and not end.letter.may_have_happened

    @pytest.mark.parametrize("kind", [MessageKind(), MessageKind(key="charge:{invoice}")])
    def test_a_message_without_a_key_is_a_dead_letter(self, consumer: Consumer, kind: MessageKind) -> None:
        """It could not be told from another one, so it is not run; and it must not block its queue."""
        end = consumer.take(MESSAGE._replace(id=None), declared=kind)

        assert (end.end, type(end.error), consumer.effects) == ("dead", KeyMissing, 0)
        assert len(consumer.gate.dead.list()) == 1

    def test_arguments_have_one_form_however_they_were_sent(self) -> None:
        """By place, by name, or by default."""

        def charge(order_id: str, amount: int = 5, *rest: int, **more: int) -> None: ...

        assert arguments_by_name(charge, ("o",), {}) == {"order_id": "o", "amount": 5, "rest": []}
        assert arguments_by_name(charge, (), {"order_id": "o", "x": 1}) == {
            "order_id": "o",
            "amount": 5,
            "rest": [],
            "x": 1,
        }
        assert arguments_by_name(charge, (), {"wrong": 1}) == {"wrong": 1}


class TestPutBack:
    """What may be tried again later, and is neither lost nor given up."""

    def test_a_message_that_another_worker_has_is_put_back(self, consumer: Consumer) -> None:
        """Until the other is done, or its lease is over."""
        ends: list[DeliveryEnd] = []
        consumer.gate.blocking.run("charge:m-1", lambda: ends.append(consumer.take()))
        (end,) = ends

        assert (end.end, type(end.error), consumer.effects) == ("later", InFlight, 0)
        assert 0 < end.delay <= 60

    def test_a_message_is_put_back_while_the_store_is_away(
        self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing was begun."""
        consumer.break_store(monkeypatch)
        end = consumer.take()

        assert (end.end, type(end.error), consumer.effects) == ("later", StoreUnavailable, 0)

    @pytest.mark.fault("queues-acknowledged-without-a-letter")
    def test_a_message_whose_letter_cannot_be_kept_is_put_back(
        self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It must not be acknowledged and forgotten. The record is there when it comes again."""
        consumer.raises = [OSError("lost")]
        consumer.break_store(monkeypatch, after=2)  # The claim, and its end in doubt; not the letter.
        end = consumer.take()
        monkeypatch.undo()
        again = consumer.take()

        assert (end.end, type(end.error)) == ("later", StoreUnavailable)
        assert (again.end, type(again.error), consumer.effects) == ("dead", InDoubt, 1)


class TestGivenUp:
    """What becomes a dead letter."""

    @pytest.mark.fault("queues-doubt-is-tried-again")
    def test_blind_work_that_failed_is_not_repeated(self, consumer: Consumer) -> None:
        """It may have happened: a dead letter that says so, and a record for somebody to decide."""
        consumer.raises = [OSError("connection lost")]
        first, second = consumer.take(), consumer.take()
        (letter,) = consumer.gate.dead.list()

        assert [first.end, second.end] == ["dead", "dead"]
        assert (type(first.error), type(second.error), consumer.effects) == (OSError, InDoubt, 1)
        assert (letter.name, letter.may_have_happened, letter.reason, letter.count) == ("charge", True, "no_key", 2)
        assert letter.payload == "omitted"

    def test_what_certainly_did_not_happen_may_be_tried_again(self, consumer: Consumer) -> None:
        """Blind or not."""
        consumer.raises = [NothingHappened(), NothingHappened()]
        ends = [consumer.take() for _ in range(3)]

        assert [one.end for one in ends] == ["failed", "failed", "done"]
        assert [one.delay for one in ends] == [1.0, 2.0, 0.0]

    def test_repeatable_work_fails_until_its_attempts_are_used_up(self, consumer: Consumer) -> None:
        """Poison becomes a dead letter."""
        consumer.open(default=MessageKind("repeatable"), attempts=3)
        consumer.raises = [OSError(str(number)) for number in range(9)]
        ends = [consumer.take() for _ in range(4)]
        (letter,) = consumer.gate.dead.list()

        assert [one.end for one in ends] == ["failed", "failed", "dead", "dead"]
        assert (letter.reason, letter.error, consumer.effects) == (
            "attempts",
            "onceward.queues.delivery_end.Poisoned",
            3,
        )

    @pytest.mark.fault("queues-crashes-are-not-counted")
    def test_a_message_that_kills_its_workers_is_given_up(self, consumer: Consumer) -> None:
        """Whoever dies of it counts it no more: the record does. It is then not begun again."""
        consumer.open(default=MessageKind("repeatable"), attempts=2)
        for _ in range(2):
            consumer.raises = [KeyboardInterrupt()]
            with pytest.raises(KeyboardInterrupt):
                consumer.take()
        end = consumer.take()

        assert (end.end, consumer.effects) == ("dead", 2)
        assert end.letter is not None and end.letter.reason == "attempts"

    def test_a_permanent_error_is_given_up_at_once(self, consumer: Consumer) -> None:
        """No further attempt would mend it."""
        consumer.open(default=MessageKind("repeatable", permanent=(ValueError,)))
        consumer.raises = [ValueError("no such order")]
        end = consumer.take()

        assert (end.end, consumer.effects) == ("dead", 1)
        assert end.letter is not None and end.letter.message == "no such order"

    def test_the_last_attempt_of_the_queue_leaves_a_letter(self, consumer: Consumer) -> None:
        """What the queue would drop is kept."""
        consumer.open(default=MessageKind("repeatable"))
        consumer.raises = [OSError("1"), OSError("2")]
        ends = [consumer.take(last=lambda error: str(error) == "2") for _ in range(2)]

        assert [one.end for one in ends] == ["failed", "dead"]

    def test_arguments_are_kept_only_if_asked_for(self, consumer: Consumer) -> None:
        """They may be secrets. Those that are kept can be used to do it again, under the same key."""
        consumer.open(payload="plain")
        consumer.raises = [OSError("lost")]
        end = consumer.take()
        consumer.gate.blocking.reconcile("charge:m-1", NOT_FOUND)
        seen: list[Any] = []
        dead = consumer.gate.dead
        dead.handle("charge", lambda order_id, amount: seen.append((order_id, amount)))
        dead.requeue("charge:m-1")

        assert end.letter is not None and end.letter.payload == "plain"
        assert (seen, dead.list()) == ([("o-1", 12)], ())
        assert consumer.take().replayed

    def test_a_person_decides_what_was_in_doubt(self, consumer: Consumer) -> None:
        """Then the message, delivered once more, has that answer."""
        consumer.raises = [OSError("lost")]
        consumer.take()
        consumer.gate.blocking.reconcile("charge:m-1", Found({"charged": "by hand"}))

        assert consumer.take().value == {"charged": "by hand"}


class TestGuarantees:
    """What makes it safe to begin again."""

    def test_keyed_work_is_begun_again_with_the_same_key(self, consumer: Consumer) -> None:
        """Its error is the queue's to retry."""
        from onceward.gate import current_operation

        consumer.open(default=MessageKind("keyed"))
        keys: list[str] = []

        def send() -> str:
            keys.append(current_operation().downstream_key("stripe"))
            return str(consumer.work()["charged"])

        consumer.raises = [OSError("lost")]
        ends = [consumer.take(work=send) for _ in range(2)]

        assert [one.end for one in ends] == ["failed", "done"]
        assert len(keys) == 2 and len(set(keys)) == 1

    def test_probed_work_is_looked_for(self, consumer: Consumer) -> None:
        """And found: it is not done again."""
        asked: list[str | None] = []

        def probe(message: QueueMessage) -> Found:
            asked.append(message.id)
            return Found({"charged": "found"})

        consumer.open(default=MessageKind("probed", probe=probe))
        consumer.raises = [OSError("lost")]
        ends = [consumer.take() for _ in range(2)]

        assert [one.end for one in ends] == ["failed", "done"]
        assert (ends[1].value, asked, consumer.effects) == ({"charged": "found"}, ["m-1"], 1)


class TestRetriesOfTheQueue:
    """Exceptions by which work asks its queue for a retry."""

    @pytest.mark.fault("queues-a-retry-hides-its-reason")
    def test_a_retry_with_a_reason_is_that_failure(self, consumer: Consumer) -> None:
        """Releasing the key because of it would repeat effects."""

        def work() -> None:
            consumer.effects += 1
            try:
                raise ConnectionResetError("lost")
            except ConnectionResetError as error:
                raise TryLater from error

        ends = [consumer.take(work=work, queue=QUEUE) for _ in range(2)]

        assert ([one.end for one in ends], consumer.effects) == (["dead", "dead"], 1)
        assert isinstance(ends[0].error, TryLater)

    def test_a_retry_without_a_reason_is_the_works_own_wish(self, consumer: Consumer) -> None:
        """It is run again, as often as it asks."""
        consumer.raises = [TryLater(), TryLater()]
        ends = [consumer.take(queue=QUEUE) for _ in range(3)]

        assert ([one.end for one in ends], consumer.effects) == (["failed", "failed", "done"], 3)
        assert consumer.gate.dead.list() == ()

    def test_a_retry_that_is_sent_already_is_let_through(self, consumer: Consumer) -> None:
        """It cannot be called back. When it comes, it finds the record."""
        queue = MessageQueue("sends", retries=(TryLater,), sends_first=True)
        retry = TryLater()
        retry.__cause__ = OSError("lost")
        consumer.raises = [retry]
        ends = [consumer.take(queue=queue) for _ in range(2)]

        assert ([one.end for one in ends], consumer.effects) == (["failed", "dead"], 1)
        assert ends[0].error is retry


class TestSetUp:
    """What is wrong is said when it is set up."""

    @pytest.mark.fault("queues-the-lease-is-not-held-against-the-queue")
    def test_a_lease_fits_the_queues_time_outs(self) -> None:
        """Or a redelivered message would meet the lease of a worker that is gone; or long work lose its claim."""
        gate = MessageGate("memory://", scope="test:q", lease=60, lease_max=600)
        gate.check_time_outs(redelivered_after=("visibility_timeout", 60), ends_after=("time_limit", 600))

        with pytest.raises(ConfigurationError, match="visibility_timeout"):
            gate.check_time_outs(redelivered_after=("visibility_timeout", 59))
        with pytest.raises(ConfigurationError, match="time_limit"):
            gate.check_time_outs(ends_after=("time_limit", 601))
        with pytest.raises(ConfigurationError, match="lease is 90 s"):
            gate.check_time_outs(redelivered_after=("x", 60), kind=MessageKind(options={"lease": 90}))

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: MessageKind("sure"), "is one of"),  # type: ignore[arg-type]
            (lambda: MessageKind("probed"), "go together"),
            (lambda: MessageKind(options={"guarantee": "blind"}), "leave guarantee out"),
            (lambda: MessageKind(permanent=(1,)), "exception types"),  # type: ignore[arg-type]
            (lambda: MessageKind(attempts=0), "1 or more"),
            (lambda: MessageKind(key="charge"), "no field"),
            (lambda: MessageGate(object(), scope="test:q"), "as a URL"),  # type: ignore[arg-type]
            (lambda: MessageGate("memory://", scope="test:q", guarantee="blind"), "declare each message"),
            (lambda: MessageGate("memory://", scope="test:q", messages={"a": "blind"}), "must be a MessageKind"),  # type: ignore[dict-item]
            (lambda: MessageGate("memory://", scope="test:q", attempts=0), "1 or more"),
            (lambda: MessageGate("memory://", scope="test:q", payload="all"), "payload is"),  # type: ignore[arg-type]
            (lambda: MessageGate("memory://", scope="test:q", lease=0), "lease"),
        ],
    )
    def test_what_cannot_work_is_refused(self, make: Callable[[], object], says: str) -> None:
        """Not at three in the morning."""
        with pytest.raises(ConfigurationError, match=says):
            make()

    def test_each_process_opens_the_store_for_itself(self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
        """A worker forks after the application was loaded."""
        before = consumer.gate.blocking
        monkeypatch.setattr(os, "getpid", lambda: -1)
        after = consumer.gate.blocking
        monkeypatch.undo()
        consumer.gate.close()

        assert after is not before

    def test_amounts_keep_their_value_as_part_of_a_key(self, consumer: Consumer) -> None:
        """A template takes what a gate's own takes."""
        kind = MessageKind(key="charge:{order_id}:{amount}")
        consumer.take(MESSAGE._replace(arguments={"order_id": "o-1", "amount": Decimal("1.50")}), declared=kind)

        assert consumer.gate.blocking.records.get("charge:o-1:1.5") is not None
