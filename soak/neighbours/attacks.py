"""
Eight tenants who want to hurt the others, each in its own way, with tokens of their own and nothing else.

Each has as many clients as an honest neighbour, and each of them sends as often, or waits for its answer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from soak.neighbours.tenants import Tenant
from soak.neighbours.wire import Wire, read_answer, request_head

ANSWER_SECONDS = 60.0
HELD_SECONDS = 60.0
SILENT_CONNECTIONS = 150
"""That one client opens at once and says nothing on: eight clients hold more than the 1,024 handles of many systems."""
HOOK_BYTES = 4_000_000
"""What one upload without a token sends at once before it becomes slow."""

_numbers = itertools.count()
_COUNT = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
_BLOBS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 400)"


class Sent(NamedTuple):
    """A request of an attacker."""

    method: str
    path: str
    token: str = ""
    body: bytes = b""
    key: str = ""


def _statement(sql: str) -> bytes:
    return json.dumps({"sql": sql}).encode()


def _in_turn(token: str, *statements: str) -> Callable[[Tenant, int], Sent]:
    """The statements in turn, over all of the tenant's databases."""
    bodies = list(map(_statement, statements))

    def send(tenant: Tenant, turn: int) -> Sent:
        return Sent("POST", tenant.query(turn), getattr(tenant, token), bodies[turn % len(bodies)])

    return send


read_bombs = _in_turn(
    "read",
    f"{_COUNT} SELECT count(*) FROM c",
    f"{_COUNT}, d AS (SELECT x FROM c LIMIT 3000) SELECT count(*) FROM d AS p, d AS q, d AS r",
    f"{_COUNT} SELECT count(*) FROM (SELECT x FROM c LIMIT 3000000 OFFSET 1) ORDER BY 1",
)
"""Statements that never end, with a token that may only read."""

single_instructions = _in_turn(
    "read",
    "SELECT length(printf('%.*c', 2000000000, 'x'))",
    "SELECT instr(zeroblob(999000), zeroblob(499000) || x'01')",
    f"SELECT printf('%.*c', 990000, '{'a' * 40}') LIKE '{'%a' * 90}b'",
    "SELECT replace(hex(zeroblob(400000)), '00', '0123456789') IS NULL, hex(zeroblob(490000)) LIKE '%1%2%3%4%5%6'",
)
"""Instructions of SQLite that run for seconds each: nothing can interrupt one but the death of its process."""

write_bombs = _in_turn(
    "write",
    f"INSERT INTO effects SELECT 'x', x FROM ({_COUNT} SELECT x FROM c)",
    f"DELETE FROM effects WHERE number < (SELECT count(*) FROM ({_COUNT} SELECT x FROM c))",
    f"UPDATE effects SET number = (SELECT max(x) FROM ({_COUNT} SELECT x FROM c))",
)
"""The same while holding a writer."""

memory_bombs = _in_turn(
    "write",
    f"{_BLOBS} SELECT count(DISTINCT randomblob(900000)) FROM c",
    f"{_BLOBS} SELECT count(*) FROM (SELECT randomblob(900000) AS b FROM c ORDER BY b) WHERE b > x'80'",
    f"{_BLOBS} SELECT hex(randomblob(400)) FROM c, (SELECT 1 UNION SELECT 2 UNION SELECT 3)",
    f"{_BLOBS} SELECT length(group_concat(hex(randomblob(450000)))) FROM c",
)


def many_databases(tenant: Tenant, turn: int) -> Sent:
    """A new database, then a statement in it, and so on."""
    number = next(_numbers) if turn % 2 == 0 else turn
    if turn % 2 == 0:
        return Sent("PUT", f"/v1/db/{tenant.name}/n{number}", tenant.admin)
    return Sent("POST", tenant.query(turn), tenant.write, _statement(f"CREATE TABLE IF NOT EXISTS t{turn} (x)"))


@lru_cache
def _documents() -> list[bytes]:
    """Bodies that cost more to read than to send."""
    members = ",".join('"sql":"SELECT 1"' for _ in range(200_000))
    others = ",".join(f'"{number}":{number}' for number in range(250_000))
    return [
        b'{"sql":"SELECT 1","sql":"SELECT 2"}',
        b"{" + members.encode() + b"}",
        b'{"sql":"SELECT 1","params":{' + others.encode() + b"}}",
        b'{"sql":"SELECT 1","params":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        b'{"sql":"SELECT 1","params":["' + b"\\u00e4" * 700_000 + b'"]}',
    ]


def costly_documents(tenant: Tenant, turn: int) -> Sent:
    """JSON with a member twice, with very many members, nested, and long."""
    return Sent("POST", tenant.query(turn), tenant.write, _documents()[turn % len(_documents())])


def many_keys(tenant: Tenant, turn: int) -> Sent:
    """Every request has a new key; every other result is as large as a record may be."""
    sql = "INSERT INTO effects VALUES ('k', 1)"
    if turn % 2:
        sql += " RETURNING hex(randomblob(400000))"
    return Sent("POST", tenant.query(turn), tenant.write, _statement(sql), f"flood-{next(_numbers)}")


def no_token(turn: int) -> Sent:
    """Somebody who has no token, and asks anyway."""
    path = "/v1/db/honest0/d0/query"
    match turn % 4:
        case 0:
            return Sent("POST", path, "", b"{" + b" " * 900_000 + b"}")
        case 1:
            return Sent("POST", path, f"owt_test_{turn:032d}", _statement("SELECT 1"))
        case 2:
            return Sent("GET", "/ready")
        case _:
            return Sent("POST", "/hooks/unknown", "", b"{}" * 100_000)


REQUESTS: dict[str, Callable[[Tenant, int], Sent]] = {
    "reads": read_bombs,
    "instructions": single_instructions,
    "writes": write_bombs,
    "memory": memory_bombs,
    "databases": many_databases,
    "json": costly_documents,
    "keys": many_keys,
}
CONNECTIONS = "connections"
"""The eighth: slow bodies, silent connections, and requests without a token from ever new addresses."""
ATTACKS = (*REQUESTS, CONNECTIONS)


class Attacker:
    """One client of an attacker."""

    def __init__(self, port: int, tenant: Tenant, number: int, heard: Counter[str]) -> None:
        self._port = port
        self._tenant = tenant
        self._number = number
        self._heard = heard
        self._held: set[asyncio.Task[None]] = set()
        self._kind = tenant.name.removeprefix("attacker-")

    async def run(self, begin: float, end: float, period: float) -> None:
        """A request each period, unless the one before is not answered yet."""
        loop = asyncio.get_running_loop()
        wire = Wire(self._port, self._tenant.source)
        turn, slot = self._number, begin
        try:
            if self._kind == CONNECTIONS:
                await self._fall_silent()
            while slot < end:
                await asyncio.sleep(slot - loop.time())
                if self._kind == CONNECTIONS:
                    await self._connect(turn)
                else:
                    await self._send(wire, REQUESTS[self._kind](self._tenant, turn))
                turn, slot = turn + 1, max(slot + period, loop.time())
        finally:
            wire.close()
            for task in self._held:
                task.cancel()
            await asyncio.gather(*self._held, return_exceptions=True)

    async def _send(self, wire: Wire, sent: Sent) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await wire.ask(*sent)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            self._heard[type(error).__name__] += 1
        else:
            self._heard[str(answer.status)] += 1

    # Connections.

    async def _fall_silent(self) -> None:
        """Many connections at once, and not a byte on any of them."""
        for _ in range(SILENT_CONNECTIONS):
            self._hold(self._silent(self._tenant.source))

    async def _connect(self, turn: int) -> None:
        match turn % 4:
            case 0:
                self._hold(self._silent(self._tenant.source))
            case 1:
                self._hold(self._slow("POST", self._tenant.query(turn), self._tenant.write, 1))
            case 2:
                self._hold(self._slow("POST", "/hooks/unknown", "", HOOK_BYTES))
            case _:
                number = next(_numbers)
                wire = Wire(self._port, f"127.1.{number // 250 % 250}.{number % 250 + 1}")
                await self._send(wire, no_token(number))
                wire.close()

    def _hold(self, holding: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(holding)
        self._held.add(task)
        task.add_done_callback(self._held.discard)

    async def _silent(self, source: str) -> None:
        with suppress(OSError, EOFError):
            wire = Wire(self._port, source)
            try:
                reader, _ = await wire.open()
                await reader.read()
                self._heard["closed"] += 1
            finally:
                wire.close()

    async def _slow(self, method: str, path: str, token: str, at_once: int) -> None:
        """A request whose body comes byte by byte, after so many at once."""
        wire = Wire(self._port, self._tenant.source)
        try:
            reader, writer = await wire.open()
            writer.write(request_head(method, path, token, at_once + 1000) + b" " * at_once)
            answered = asyncio.create_task(read_answer(reader))
            try:
                for _ in range(int(HELD_SECONDS)):
                    done, _ = await asyncio.wait({answered}, timeout=1)
                    if done:
                        self._heard[str(answered.result().status)] += 1
                        return
                    writer.write(b" ")
            finally:
                answered.cancel()
        except (OSError, EOFError, ValueError) as error:
            self._heard[type(error).__name__] += 1
        finally:
            wire.close()
