"""
RabbitMQ with pika: a message is acknowledged after its work is recorded, and a redelivered one is done once.

    gate = MessageGate("postgresql:///shop", scope="live:acme")
    consumer = OnceConsumer(gate, "charge", lambda body: charge(**body))
    consumer.consume_from(channel, "orders")        # without automatic acknowledgement
    channel.start_consuming()

The key is the property `message_id`, the header `onceward-key`, or what `kind=` makes from the body: a JSON object,
unless `decode` reads something else. For a `BlockingConnection`; work on its own thread, and keep it shorter than the
heartbeat: a connection that was closed meanwhile redelivers, and the record answers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from onceward.agents._requirements import require

require("pika", "1.3", "rabbitmq")

from onceward._core.errors import NothingHappened, RetryAdvice  # noqa: E402 - once it is known to be there
from onceward.queues.delivery_end import DeliveryEnd, MessageQueue  # noqa: E402
from onceward.queues.message import KEY_HEADER, MessageKind, QueueMessage  # noqa: E402
from onceward.queues.message_gate import MessageGate  # noqa: E402

__all__ = ["OnceConsumer", "UnreadableBody"]

RABBITMQ = MessageQueue("rabbitmq")

_log = logging.getLogger("onceward.queues")


class UnreadableBody(NothingHappened):
    """
    The body of a message cannot be read, and never will be: it becomes a dead letter.

    A loop must not repeat it: the body stays what it is.
    """

    retry = RetryAdvice.NEVER


class OnceConsumer:
    """
    A callback for `basic_consume` that does the work of each message once.

    `work` is given the decoded body. `name` says which work this is: two consumers of one message, in two queues, do
    two things. After a failure the message comes again, after a pause that doubles up to a minute, until it has been
    begun `attempts` times; then it is a dead letter of the gate's.
    """

    def __init__(
        self,
        gate: MessageGate,
        name: str,
        work: Callable[[Any], Any],
        *,
        kind: MessageKind | None = None,
        decode: Callable[[bytes], Any] = json.loads,
    ) -> None:
        self._gate, self._name, self._work, self._decode = gate, name, work, decode
        self._kind = kind

    def consume_from(self, channel: Any, queue: str, *, prefetch: int = 1) -> str:
        """Consume a queue, `prefetch` messages at a time; the consumer's tag."""
        channel.basic_qos(prefetch_count=prefetch)
        return str(channel.basic_consume(queue, self, auto_ack=False))

    def __call__(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """One message has come."""
        try:
            end = self._deliver(properties, body)
        except Exception:
            channel.basic_nack(method.delivery_tag, requeue=True)
            raise
        tag = method.delivery_tag
        if end.end in ("done", "dead"):
            channel.basic_ack(tag)
        else:
            _log.warning("onceward: %s will be delivered again in %.1f s: %r", self._name, end.delay, end.error)
            # The message stays with this consumer, unacknowledged: if it dies, another gets it at once.
            channel.connection.call_later(end.delay, partial(_put_back, channel, tag))

    def _deliver(self, properties: Any, body: bytes) -> DeliveryEnd:
        key = (properties.headers or {}).get(KEY_HEADER)
        try:
            decoded = self._decode(body)
        except Exception as error:
            unreadable = UnreadableBody(f"the body cannot be read: {type(error).__name__}: {error}")
            text = body.decode("utf-8", "backslashreplace")
            message = QueueMessage(self._name, properties.message_id, {"body": text}, (text,), {}, key)
            if not self._gate.kind(self._name, self._kind).gated:
                _log.error("onceward: a message for %s is dropped: %s", self._name, unreadable)
                return DeliveryEnd("dead", error=unreadable)
            work = partial(_refuse, unreadable)
            return self._gate.consume(message, work, queue=RABBITMQ, declared=self._kind, last=lambda _: True)
        named = decoded if isinstance(decoded, Mapping) else {"body": decoded}
        message = QueueMessage(self._name, properties.message_id, named, (decoded,), {}, key)
        return self._gate.consume(message, partial(self._work, decoded), queue=RABBITMQ, declared=self._kind)


def _refuse(error: Exception) -> None:
    raise error


def _put_back(channel: Any, tag: int) -> None:
    if channel.is_open:  # Otherwise the server has taken it back already.
        channel.basic_nack(tag, requeue=True)
