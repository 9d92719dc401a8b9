# Made from outbox_async.py by `make halves`: change that file, not this one.
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

from onceward.messaging.outbox.message_writer import check_message, write_message
from onceward.messaging.outbox.tables import make_tables_once, tables_exist
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.stores.tables.sql_steps import SqlSteps

T = TypeVar("T")


class TransactionRunner(Protocol):
    """Runs steps on the caller's connection, in its transaction."""

    def __call__(self, steps: SqlSteps[T]) -> T:
        """Drive them to their end."""


class Outbox:
    """Messages that commit with the caller's transaction. From `gate.outbox(connection)`."""

    def __init__(self, walk: TransactionRunner, store: Any, environment: Environment) -> None:
        self._walk = walk
        self._store = store
        self._environment = environment
        # Here a caller may still be outside of a transaction, which on SQLite holds up whoever makes the tables.
        make_tables_once(store, environment)

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
        message = check_message(
            self._environment,
            to=to,
            payload=payload,
            topic=topic,
            aggregate=aggregate,
            id=id,
            headers=headers,
            content_type=content_type,
        )
        if not tables_exist(self._store):
            make_tables_once(self._store, self._environment)
        failpoints.hit("outbox.add.before")
        self._walk(write_message(message))
        failpoints.hit("outbox.add.after")
        return message.id
