"""
Queues: a message that is delivered again does its work once, with the worker that people already use.

    gate = MessageGate("postgresql:///shop", scope="live:acme")
    app = Celery("shop", task_cls=once_task(gate))                                   # onceward.queues.celery

One file for each queue (`celery`, `dramatiq`, `rq`, `arq`, `rabbitmq`), imported by whoever uses it. To write another,
start with `MessageGate.consume` and what a `DeliveryEnd` asks for.

May import: `_core`, `runtime`, `stores`, `gate`, `retry`; of `agents` only the check of versions; a queue's library
only in the file of its adapter. Start reading with `message.py` (what is one message), then `delivery_end.py`.
"""

from onceward.queues.delivery_end import DeliveryEnd, MessageQueue
from onceward.queues.message import MessageKind, QueueMessage
from onceward.queues.message_gate import MessageGate

__all__ = ["DeliveryEnd", "MessageGate", "MessageKind", "MessageQueue", "QueueMessage"]
