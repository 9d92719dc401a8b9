"""RabbitMQ with pika: what is acknowledged, what is put back, and what becomes a dead letter, on a real server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

pika = pytest.importorskip("pika", reason="in make test-agents")

from onceward.errors import NothingHappened  # noqa: E402
from onceward.queues import MessageGate, MessageKind  # noqa: E402
from onceward.queues.rabbitmq import OnceConsumer  # noqa: E402
from servers import rabbitmq  # noqa: E402

rabbitmq.needed_rabbitmq()

pytestmark = pytest.mark.slow

PATIENCE = 60


class Shop:
    """A queue of its own, and what its consumer did."""

    def __init__(self) -> None:
        self.gate = MessageGate("memory://", scope="test:q", wait=0, payload="plain")
        self.queue = f"shop-{os.urandom(6).hex()}"
        self.connection = pika.BlockingConnection(pika.URLParameters(rabbitmq.running().url()))
        self.channel = self.connection.channel()
        self.channel.queue_declare(self.queue)
        self.effects: list[Any] = []
        self.plan: list[Exception] = []

    def work(self, body: Any) -> str:
        """Charge somebody, and then do as planned."""
        self.effects.append(body)
        if self.plan:
            raise self.plan.pop(0)
        return "charged"

    def send(self, body: bytes = b'{"order_id": "o-1"}', **properties: Any) -> None:
        """Put a message into the queue."""
        self.channel.basic_publish("", self.queue, body, pika.BasicProperties(**{"message_id": "m-1", **properties}))

    def consume(self, acknowledged: int, **options: Any) -> None:
        """Consume until so many messages are acknowledged."""
        left, acknowledge = [acknowledged], self.channel.basic_ack

        def counted(tag: int) -> None:
            acknowledge(tag)
            left[0] -= 1
            if not left[0]:
                self.channel.stop_consuming()

        self.channel.basic_ack = counted
        stop = self.connection.call_later(PATIENCE, self.channel.stop_consuming)
        OnceConsumer(self.gate, "charge", self.work, **options).consume_from(self.channel, self.queue)
        self.channel.start_consuming()
        self.connection.remove_timeout(stop)
        self.channel.basic_ack = acknowledge
        assert left[0] == 0

    def left(self) -> int:
        """How many messages are left."""
        return int(self.channel.queue_declare(self.queue, passive=True).method.message_count)


@pytest.fixture
def shop() -> Iterator[Shop]:
    """A shop."""
    made = Shop()
    yield made
    made.connection.close()


def test_one_message_delivered_twice_has_one_effect(shop: Shop) -> None:
    """Both are acknowledged."""
    shop.send()
    shop.send()
    shop.consume(2)

    assert (len(shop.effects), shop.left()) == (1, 0)


def test_two_messages_for_one_order_have_one_effect(shop: Shop) -> None:
    """A key from the body; or one that the sender sends along."""
    shop.send(message_id="m-1")
    shop.send(message_id="m-2")
    shop.consume(2, kind=MessageKind(key="charge:{order_id}"))
    for number in ("m-3", "m-4"):
        shop.send(message_id=number, headers={"onceward-key": "k-1"})
    shop.consume(2)

    assert len(shop.effects) == 2


def test_what_may_have_happened_is_a_letter_and_acknowledged(shop: Shop) -> None:
    """It is not repeated."""
    shop.plan = [ConnectionError("lost")]
    shop.send()
    shop.consume(1)
    (letter,) = shop.gate.dead.list()

    assert (len(shop.effects), shop.left(), letter.may_have_happened) == (1, 0, True)


def test_what_did_not_happen_comes_again_after_a_pause(shop: Shop) -> None:
    """RabbitMQ has none of its own, so the message waits with its consumer."""
    shop.plan = [NothingHappened()]
    shop.send()
    shop.consume(1)

    assert (len(shop.effects), shop.left(), shop.gate.dead.list()) == (2, 0, ())


def test_a_body_that_cannot_be_read_is_a_letter(shop: Shop) -> None:
    """It would come again for ever. Its bytes are kept, if payloads are."""
    shop.send(b"\xffnot json")
    shop.consume(1)
    (letter,) = shop.gate.dead.list()
    arguments = shop.gate.dead.arguments(letter)

    assert (shop.effects, shop.left()) == ([], 0)
    assert (letter.may_have_happened, arguments and arguments.args) == (False, ("\\xffnot json",))


def test_a_message_without_an_id_is_a_letter(shop: Shop) -> None:
    """It could not be told from another one; nor may it stop the queue."""
    shop.send(message_id=None)
    shop.send(json.dumps({"order_id": "o-2"}).encode(), message_id="m-2")
    shop.consume(2)
    (letter,) = shop.gate.dead.list()

    assert (shop.effects, letter.error) == ([{"order_id": "o-2"}], "onceward.KeyMissing")
