"""A Celery worker on Redis."""

from typing import Any

from celery import Celery, signals
from queue_kit import NAME, ORDER, Kit, main

from onceward.queues.celery import once_task

kit = Kit()
gate = kit.gate()
app = Celery("shop", broker=kit.broker, **({} if gate is None else {"task_cls": once_task(gate)}))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_default_queue=f"celery-{kit.folder.name}" if kit.broker.startswith("amqp") else "celery",
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


@app.task(name=NAME)  # type: ignore[untyped-decorator]
def charge(order_id: str) -> dict[str, str]:
    """Charge somebody."""
    return kit.charge(order_id)


@signals.task_success.connect  # type: ignore[untyped-decorator]
def answered(**_: Any) -> None:
    """The task has returned, and its message is not acknowledged."""
    kit.die_at("answer")


@signals.task_postrun.connect  # type: ignore[untyped-decorator]
def over(**_: Any) -> None:
    """The task is over, however it ended."""
    kit.ended()


def send() -> None:
    """Put the message into the queue."""
    charge.delay(order_id=ORDER)


def work() -> None:
    """Work until somebody ends this."""
    pool = kit.variant or "solo"
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["worker", "--pool", pool, "--concurrency", "1", "--loglevel", "info", *quiet])


if __name__ == "__main__":
    main(send, work)
