"""
The transactional outbox: a message is written in the transaction of the effect that it tells of, and a relay delivers
it at least once, under the same id every time.

    gate.outbox(connection).add("billing", {"invoice": 9}, topic="invoice.paid")      # in your transaction
    Relay(url, {"billing": endpoint}).run()                                           # onceward.messaging.outbox.relay

May import: _core, runtime, stores, retry, webhooks; not the gate, which imports this. Start reading with
`outbox_async.py` for writing, `relay.py` for delivering, `message_queue.py` for the SQL; `delivery/` has the endpoints.
"""

from onceward.messaging.outbox.message import (
    Delivered,
    DeliveryFailed,
    DeliveryOutcome,
    DeliveryRefused,
    Endpoint,
    EndpointGone,
    Message,
)
from onceward.messaging.outbox.outbox import Outbox
from onceward.messaging.outbox.outbox_async import AsyncOutbox

__all__ = [
    "AsyncOutbox",
    "Delivered",
    "DeliveryFailed",
    "DeliveryOutcome",
    "DeliveryRefused",
    "Endpoint",
    "EndpointGone",
    "Message",
    "Outbox",
]
