"""A Dramatiq worker on Redis."""

import signal
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from queue_kit import NAME, ORDER, Kit, main

from onceward.queues.dramatiq import OnceMiddleware

kit = Kit()
gate = kit.gate()
broker = RedisBroker(url=kit.broker, heartbeat_timeout=2_000, maintenance_chance=1_000_000)


class Observer(dramatiq.Middleware):  # type: ignore[misc,name-defined]
    """Sees what the worker does with its message."""

    def before_ack(self, broker: Any, message: Any) -> None:
        """The actor has returned, and its message is not acknowledged."""
        kit.die_at("answer")

    def after_ack(self, broker: Any, message: Any) -> None:
        """The queue has let go of it."""
        kit.ended()

    def after_nack(self, broker: Any, message: Any) -> None:
        """The queue has let go of it."""
        kit.ended()


broker.add_middleware(Observer())
if gate is not None:
    broker.add_middleware(OnceMiddleware(gate))
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name=NAME)
def charge(order_id: str) -> None:
    """Charge somebody."""
    kit.charge(order_id)


def send() -> None:
    """Put the message into the queue."""
    charge.send(order_id=ORDER)


def work() -> None:
    """Work until somebody ends this."""
    dramatiq.Worker(broker, worker_timeout=100, worker_threads=1).start()
    signal.pause()


if __name__ == "__main__":
    main(send, work)
