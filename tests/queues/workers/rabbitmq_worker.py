"""A consumer of plain RabbitMQ."""

import json
from typing import Any

import pika
from queue_kit import NAME, ORDER, Kit, main

from onceward.queues.rabbitmq import OnceConsumer

kit = Kit()
gate = kit.gate()
QUEUE = f"orders-{kit.folder.name}"


def _channel() -> Any:
    channel = pika.BlockingConnection(pika.URLParameters(kit.broker)).channel()
    channel.queue_declare(QUEUE, durable=True)
    return channel


def send() -> None:
    """Put the message into the queue."""
    channel = _channel()
    channel.confirm_delivery()
    properties = pika.BasicProperties(message_id="m-1", delivery_mode=2)
    channel.basic_publish("", QUEUE, json.dumps({"order_id": ORDER}).encode(), properties)
    channel.connection.close()


def work() -> None:
    """Work until somebody ends this."""
    channel = _channel()
    acknowledge = channel.basic_ack

    def acknowledged(tag: int) -> None:
        kit.die_at("answer")
        acknowledge(tag)
        kit.ended()

    channel.basic_ack = acknowledged

    def unprotected(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        kit.charge(json.loads(body)["order_id"])
        channel.basic_ack(method.delivery_tag)

    if gate is None:
        channel.basic_consume(QUEUE, unprotected)
    else:
        OnceConsumer(gate, NAME, lambda body: kit.charge(body["order_id"])).consume_from(channel, QUEUE)
    channel.start_consuming()


if __name__ == "__main__":
    main(send, work)
