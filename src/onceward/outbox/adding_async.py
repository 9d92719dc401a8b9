# blocking half: adding.py
"""
`AsyncOutbox`: write a message in the caller's own transaction.

    async with connection.transaction():
        await connection.execute("UPDATE invoices SET paid = 1 WHERE id = 9")
        outbox = gate.outbox(connection)
        await outbox.add("billing", {"invoice": 9}, topic="invoice.paid", aggregate="invoice:9")

Row and message commit together or not at all; nothing is sent here. A relay delivers it afterwards.

Messages of one aggregate have an order, so transactions that add to the same one take turns on PostgreSQL: the later
waits until the earlier has ended. On SQLite writers take turns anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, TypeVar

from onceward import failpoints
from onceward._core.colour import AWAITS
from onceward.environment import Environment
from onceward.outbox.tables import are_made, made_once
from onceward.outbox.writing import adding, checked
from onceward.tables.steps import Steps

T = TypeVar("T")


class AsyncWalk(Protocol):
    """Runs steps on the caller's connection, in its transaction."""

    def __call__(self, steps: Steps[T]) -> Awaitable[T]:
        """Drive them to their end."""


class AsyncOutbox:
    """Messages that commit with the caller's transaction. From `gate.outbox(connection)`."""

    def __init__(self, walk: AsyncWalk, store: Any, environment: Environment) -> None:
        self._walk = walk
        self._store = store
        self._environment = environment
        if not AWAITS:
            # Here a caller may still be outside of a transaction, which on SQLite holds up whoever makes the tables.
            made_once(store, environment)

    async def add(
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
            await asyncio.to_thread(made_once, self._store, self._environment)
        failpoints.hit("outbox.add.before")
        await self._walk(adding(message))
        failpoints.hit("outbox.add.after")
        return message.id
