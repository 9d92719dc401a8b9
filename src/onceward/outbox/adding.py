# Made from adding_async.py by `make halves`: change that file, not this one.
"""
`Outbox`: write a message in the caller's own transaction.

    with connection.transaction():
        connection.execute("UPDATE invoices SET paid = 1 WHERE id = 9")
        outbox = gate.outbox(connection)
        outbox.add("billing", {"invoice": 9}, topic="invoice.paid", aggregate="invoice:9")

Row and message commit together or not at all; nothing is sent here. A relay delivers it afterwards.

Messages of one aggregate have an order, so transactions that add to the same one take turns on PostgreSQL: the later
waits until the earlier has ended. On SQLite writers take turns anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from onceward import failpoints
from onceward.environment import Environment
from onceward.outbox.tables import are_made, made_once
from onceward.outbox.writing import adding, checked
from onceward.tables.steps import Steps

T = TypeVar("T")


class Walk(Protocol):
    """Runs steps on the caller's connection, in its transaction."""

    def __call__(self, steps: Steps[T]) -> T:
        """Drive them to their end."""


class Outbox:
    """Messages that commit with the caller's transaction. From `gate.outbox(connection)`."""

    def __init__(self, walk: Walk, store: Any, environment: Environment) -> None:
        self._walk = walk
        self._store = store
        self._environment = environment
        # Here a caller may still be outside of a transaction, which on SQLite holds up whoever makes the tables.
        made_once(store, environment)

    def add(
        self,
        to: str,
        payload: Any,
        *,
        topic: str,
        aggregate: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> str:
        """
        Write a message for the endpoint `to`; its id, which is the same on every try at delivering it.

        `payload` is a JSON value, or bytes that are sent as they are. Messages of one `aggregate` to one endpoint are
        delivered in the order in which they were added. An `id` of your own makes repeats one message; with other
        content it is `KeyReused`.
        """
        message = checked(to, payload, topic, aggregate, id, headers, content_type, self._environment)
        if not are_made(self._store):
            made_once(self._store, self._environment)
        failpoints.hit("outbox.add.before")
        self._walk(adding(message))
        failpoints.hit("outbox.add.after")
        return message.id
