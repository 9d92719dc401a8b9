"""
The transactional outbox: a message is written in the transaction of the effect that it tells of, and a relay delivers
it at least once, under the same id every time.

    gate.outbox(connection).add("billing", {"invoice": 9}, topic="invoice.paid")      # in your transaction
    Relay(url, {"billing": endpoint}).run()                                           # onceward.outbox.relay
"""

from onceward.outbox.adding import Outbox
from onceward.outbox.adding_async import AsyncOutbox
from onceward.outbox.message import Delivered, Endpoint, Failed, Gone, Message, Outcome, Refused

__all__ = ["AsyncOutbox", "Delivered", "Endpoint", "Failed", "Gone", "Message", "Outbox", "Outcome", "Refused"]
