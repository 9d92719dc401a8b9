"""
What an honest tenant does: a keyed write, the same again (a replay), and a read of it, at a steady rate.

How long an answer took is counted from when its turn was, not from when it was sent: a client that had to wait for the
answer before would otherwise hide exactly the time that matters.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from soak.neighbours.tenants import Tenant
from soak.neighbours.wire import Answer, Wire

INSERT = "INSERT INTO effects VALUES (?, ?)"
SELECT = "SELECT number FROM effects WHERE operation = ?"
ANSWER_SECONDS = 60.0
"""After that a request counts as failed."""


@dataclass
class Seen:
    """What clients have seen in one round."""

    seconds: list[float] = field(default_factory=list)
    """How long each answer took."""
    failures: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    """Writes that were answered."""
    sent: list[str] = field(default_factory=list)


class HonestClient:
    """One client of a tenant: one request at a time, on one connection."""

    def __init__(self, port: int, tenant: Tenant, name: str, seen: Seen) -> None:
        self._wire = Wire(port, tenant.source)
        self._tenant = tenant
        self._name = name
        self._seen = seen
        self._operation = ""
        self._answer: Any = None
        """What the last write was answered."""

    async def run(self, begin: float, end: float, period: float) -> None:
        """A request each period."""
        loop = asyncio.get_running_loop()
        turn, slot = 0, begin
        try:
            while slot < end:
                await asyncio.sleep(slot - loop.time())
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        wrong = await self._step(turn)
                except (OSError, EOFError, ValueError, TimeoutError) as error:
                    wrong = f"{type(error).__name__} {error}"
                if wrong:
                    self._seen.failures.append(f"{self._name} {('write', 'replay', 'read')[turn % 3]}: {wrong}"[:300])
                self._seen.seconds.append(loop.time() - slot)
                turn, slot = turn + 1, slot + period
        finally:
            self._wire.close()

    async def _step(self, turn: int) -> str:
        """The next of the three; what is wrong with the answer."""
        match turn % 3:
            case 0:
                self._operation, self._answer = f"{self._name}-{turn}", None
                self._seen.sent.append(self._operation)
                return await self._write(turn)
            case 1:
                return await self._write(turn - 1)
            case _:
                return self._read_right(await self._ask(SELECT, [self._operation]), turn - 2)

    async def _write(self, number: int) -> str:
        answer = await self._ask(INSERT, [self._operation, number], self._operation)
        if answer.status != 200:
            return _told(answer)
        document, replayed = answer.document, b"idempotency-replayed: true" in answer.head
        first, self._answer = self._answer, document
        if first is None:  # Also if the first attempt failed: then this is its retry.
            self._seen.acknowledged.append(self._operation)
            return "" if document["rowsWritten"] == 1 else f"wrote {document['rowsWritten']} rows"
        return "" if replayed and document["lastInsertRowid"] == first["lastInsertRowid"] else "not the first answer"

    def _read_right(self, answer: Answer, number: int) -> str:
        if answer.status != 200:
            return _told(answer)
        expected = [[number]] if self._answer is not None else []
        rows = answer.document["rows"]
        return "" if rows == expected else f"{rows} instead of {expected}"

    async def _ask(self, sql: str, params: list[Any], key: str = "") -> Answer:
        body = json.dumps({"sql": sql, "params": params}).encode()
        return await self._wire.ask("POST", self._tenant.query(), self._tenant.write, body, key)


def _told(answer: Answer) -> str:
    return f"{answer.status} {answer.body[:200].decode(errors='replace')}"
