"""The balance ledger: deltas under a key, under a reference, and in batches."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from typing import Any

from onceward import Retry
from onceward.client.service_target import import_http_library
from soak.processes import Victim
from soak.subject import Attempt, World

CUSTOMERS = 20
PARTS = 3
"""Deltas of a batch: all of them are booked, or none."""
SHARED_BY = 10
"""Clients that share one object with its connections."""
COUNT = "SELECT reason, count(*), count(DISTINCT amount), max(amount) FROM onceward_ledger_entries GROUP BY reason"
GAPS = "SELECT customer FROM onceward_ledger_entries GROUP BY customer HAVING max(seq) <> count(*)"


class Deltas:
    """See `soak.subject.Subject`."""

    name = "ledger"

    def __init__(self, world: World, clients: int) -> None:
        self._world = world
        library, family = import_http_library()
        self._clients: list[Any] = [
            library.AsyncClient(
                base_url=world.service.address,
                headers={"Authorization": f"Bearer {world.service.token}"},
                transport=family.AsyncTransport(Retry(attempts=3, elapsed=20, timeout=10), profile=None),
                timeout=None,
            )
            for _ in range(-(-clients // SHARED_BY))
        ]

    def victims(self) -> list[Victim]:
        """None of its own: the service is everybody's."""
        return []

    async def prepare(self) -> None:
        """A ledger needs nothing."""

    async def send(self, client: int, attempt: Attempt) -> str:
        """A delta under a key, one under a reference and no key, and a batch, in turn."""
        key, number = attempt.key, attempt.number
        delta = {"customerId": f"cus_{number % CUSTOMERS}", "reason": attempt.operation}
        headers = {"Idempotency-Key": key} if key is not None else {}
        match number % 3:
            case 0:
                booked = await self._post(client, "delta", {**delta, "delta": 1}, headers)
                return str(booked["id"])
            case 1:
                named = {"referenceId": key} if key is not None else {}
                booked = await self._post(client, "delta", {**delta, "delta": 1, **named}, {})
                return str(booked["id"])
            case _:
                many = {"deltas": [{**delta, "delta": part + 1} for part in range(PARTS)]}
                booked = await self._post(client, "delta/batch", many, headers)
                return " ".join(str(one["delta"]["id"]) for one in booked["results"])

    async def _post(self, client: int, path: str, document: Any, headers: dict[str, str]) -> Any:
        http = self._clients[client // SHARED_BY]
        response = await http.post(f"/api/v1/balance/{path}", json=document, headers=headers)
        if response.status_code != 200:
            raise NotBooked(response.status_code)
        return response.json()

    async def settle(self) -> None:
        """Deltas are verified inline."""

    def effects(self, *, settled: bool) -> Counter[str]:
        """Entries by operation, from the file. What is torn counts as two; a gap is an effect that nobody asked for."""
        found: Counter[str] = Counter()
        with contextlib.closing(sqlite3.connect(self._world.folder / "records.ledger.db")) as connection:
            for operation, many, parts, last in connection.execute(COUNT):
                whole = parts == (PARTS if last > 10**9 else 1) and many % parts == 0
                found[operation] += many // parts if whole else 2
            for (customer,) in connection.execute(GAPS):
                found[f"a gap in the numbers of {customer}"] = 1
        return found

    async def close(self) -> None:
        """Connections."""
        for client in self._clients:
            await client.aclose()


class NotBooked(Exception):
    """An answer that is none: in flight, or a refusal."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the service answered {status}")
