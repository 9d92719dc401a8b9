"""
A Celery shop whose charges happen once: a task that loses its connection after the charge, and is retried.

    python examples/queues/celery_shop.py

The worker and its broker are in this process, so that nothing is left behind; yours are on Redis or RabbitMQ.
"""

import logging
import tempfile
from typing import Any

from celery import Celery
from celery.contrib.testing.worker import start_worker

from onceward.errors import InDoubt
from onceward.queues import MessageGate, MessageKind
from onceward.queues.celery import once_task

logging.disable(logging.CRITICAL)  # The worker's own; the letters below say what happened.
charges: list[str] = []  # Stands for your payment provider.


def shop(store: str) -> tuple[MessageGate, Any, Any]:
    """The app, as a program of yours would have it in a module."""
    gate = MessageGate(store, scope="live:shop", payload="plain")
    app = Celery("shop", broker="memory://", backend="cache+memory://", task_cls=once_task(gate))
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_hijack_root_logger=False)

    @app.task(autoretry_for=(ConnectionError,), retry_backoff=True, onceward=MessageKind("blind"))
    def charge(order_id: str) -> str:
        charges.append(order_id)
        if order_id == "order-2":
            raise ConnectionError("the provider's answer was lost")
        return f"charged {order_id}"

    return gate, app, charge


with tempfile.TemporaryDirectory() as folder:
    gate, app, charge = shop(f"sqlite:///{folder}/shop.db")
    with start_worker(app, pool="solo", perform_ping_check=False):
        first = charge.apply_async(("order-1",), task_id="m-1")
        answers = [first.get(timeout=60)]
        again = charge.apply_async(("order-1",), task_id="m-1")  # Delivered once more.
        answers.append(again.get(timeout=60))
        try:
            charge.delay("order-2").get(timeout=60)
        except Exception as error:
            assert type(error).__name__ == InDoubt.__name__, error
    letters = gate.dead.list()
    gate.close()

assert answers == ["charged order-1", "charged order-1"]
print(f"charges: {len(charges)} for 2 orders; dead letters: {len(letters)}, for a person to decide")
