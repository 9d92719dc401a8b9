"""
The Redis store: one server (or a Redis Cluster), many processes, both colours.

    redis://localhost:6379/0                        a server
    rediss://user:password@redis.example:6380/0     over TLS
    redis://localhost:6379/0?prefix=shop&timeout=2  with options

Options:

- `durability=durable` (default): refuses a server that may forget a claim: one that evicts keys
  (`maxmemory-policy` other than `noeviction`), or one without an append-only file. `durability=volatile` accepts any.
- `prefix=onceward`: what the names of all our keys begin with.
- `timeout=5`: how many seconds a call waits for the server before it raises `StoreUnavailable`.
- `cluster=1`: the server is a node of a Redis Cluster; the others are found through it.
- `replicas=0`: how many replicas must have a put before it is acknowledged. A failover may promote any replica, so the
  number of all of them, or 0.

What a durable server can still lose, **acknowledged writes included**: with `appendfsync everysec`, about the last
second when the machine (not just the server's process) goes down; with replicas, whatever the new primary had not been
sent when the old one failed. A lost claim means that its operation may run twice. Where that must not be, use
`appendfsync always` and no automatic failover, or keep the records in the database that the effect writes to.

Times are the server's clock; a caller's plays no role. A clock set forward ends leases and retention early; set back,
it makes them last longer. Fences rise whatever it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from onceward._core.capabilities import Capabilities
from onceward._core.errors import OncewardError
from onceward._core.record import PeekResult, PutResult, Record, Write
from onceward._core.store_protocols import PurgeResult, Selection
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.flow_driver import UncancellableFuture, drive_steps, drive_steps_async
from onceward.stores import _redis_steps as steps
from onceward.stores._redis_cluster import connections_to
from onceward.stores._redis_event_loop import EventLoopLanes
from onceward.stores._redis_pipeline import (
    RESENT_MAX,
    CommandRequest,
    FormatChanged,
    FormatRequest,
    LookRequest,
    PutRequest,
    RedisRequest,
    RedisServer,
)
from onceward.stores._redis_rows import RedisCommand, RowFormat
from onceward.stores._redis_steps import CommandSteps
from onceward.stores._redis_url import RedisAddress, parse
from onceward.stores._store_kinds import StoreKind
from onceward.stores._upkeep import Upkeep

__all__ = ["KIND", "AsyncRedisStore", "RedisStore"]

T = TypeVar("T")


class RedisStore:
    """Records on a Redis server."""

    def __init__(self, url: str, *, environment: Environment = REAL) -> None:
        self.environment = environment
        self._server = _open(parse(url))

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do besides keeping records."""
        return Capabilities(awaits=False, indexes_unsettled=True)

    @classmethod
    def from_url(cls, url: str, *, environment: Environment = REAL) -> Self:
        """Open the server that a URL names; refuses one that may forget, unless the URL says that it may."""
        return cls(url, environment=environment)

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record if its current version is `expect`; whether it landed, and what is there now."""
        server = self._server
        return server.pipeline.run(PutRequest(server.seen, write, expect, None))  # type: ignore[no-any-return]

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        """Write a record that the store has lost, unless it is back or one of `marks` is there."""
        return self._take(lambda rows: steps.put_back(rows, write, marks))

    def erase(self, ids: Sequence[bytes]) -> int:
        """Delete these records, whatever their state; how many there were."""
        return self._take(lambda rows: steps.erase(rows, ids))

    def load(self, id: bytes) -> Record | None:
        """Read one record; None if there is none."""
        return self._take(lambda rows: steps.load(rows, id))

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer; how many there were."""
        return self._take(lambda rows: steps.extend(rows, family, replay, forget))

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """One page of records in order of id, beginning after an id."""
        return self._take(lambda rows: steps.scan(rows, after, limit, selection))

    def purge(self, limit: int) -> PurgeResult:
        """Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either."""
        return self._take(lambda rows: steps.purge(rows, limit, self.environment.random(16)))

    def close(self) -> None:
        """Close files and connections. Closing twice is fine."""
        self._server.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._server.address.name})"

    def _take(self, steps: Callable[[RowFormat], CommandSteps[T]]) -> T:
        """Take the steps of a longer call, one round trip each; anew if the rows have another form meanwhile."""
        server = self._server
        for again in range(RESENT_MAX, -1, -1):
            rows = server.rows or server.pipeline.run(FormatRequest())
            try:
                return drive_steps(steps(rows), lambda commands: server.pipeline.run(CommandRequest(commands)))
            except FormatChanged:
                if not again:
                    raise
        raise AssertionError


class AsyncRedisStore:
    """
    Records on a Redis server, for tasks: what those of one round of an event loop put is sent together.

    Opening it blocks while the server is checked, for `timeout` seconds at most.
    """

    def __init__(self, url: str, *, environment: Environment = REAL) -> None:
        self.environment = environment
        self._server = _open(parse(url))
        self._lanes = EventLoopLanes(self._server)

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do besides keeping records."""
        return Capabilities(awaits=True, look=self.look, indexes_unsettled=True)

    @classmethod
    def from_url(cls, url: str, *, environment: Environment = REAL) -> Self:
        """Open the store that a URL names."""
        return cls(url, environment=environment)

    def put(self, write: Write, expect: bytes | None) -> asyncio.Future[PutResult]:
        """
        Write a record if its current version is `expect`; whether it landed, and what is there now.

        It is under way when this returns, awaited or not.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[PutResult] = UncancellableFuture(loop=loop)
        try:
            self._lanes.submit(PutRequest(self._server.seen, write, expect, future), loop)
        except OncewardError as error:
            future.set_exception(error)
        return future

    def look(self, id: bytes) -> asyncio.Future[PeekResult | None] | None:
        """
        A look at what a replay needs, if this id was seen settled lately; None if not.

        It is under way when this returns, and is sent with what else is asked for in this round of the loop.
        """
        seen = self._server.seen
        if id not in seen:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[PeekResult | None] = loop.create_future()
        request = LookRequest(seen, id, future)
        try:
            self._lanes.submit(request, loop)
        except OncewardError:
            return None  # The claim that follows says what is wrong.
        return future

    async def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        """Write a record that the store has lost, unless it is back or one of `marks` is there."""
        return await self._take(lambda rows: steps.put_back(rows, write, marks))

    async def erase(self, ids: Sequence[bytes]) -> int:
        """Delete these records, whatever their state; how many there were."""
        return await self._take(lambda rows: steps.erase(rows, ids))

    async def load(self, id: bytes) -> Record | None:
        """Read one record; None if there is none."""
        return await self._take(lambda rows: steps.load(rows, id))

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer; how many there were."""
        return await self._take(lambda rows: steps.extend(rows, family, replay, forget))

    async def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """One page of records in order of id, beginning after an id."""
        return await self._take(lambda rows: steps.scan(rows, after, limit, selection))

    async def purge(self, limit: int) -> PurgeResult:
        """Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either."""
        return await self._take(lambda rows: steps.purge(rows, limit, self.environment.random(16)))

    async def close(self) -> None:
        """Close files and connections. Closing twice is fine."""
        await self._lanes.close()
        await asyncio.get_running_loop().run_in_executor(None, self._server.close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._server.address.name})"

    async def _take(self, steps: Callable[[RowFormat], CommandSteps[T]]) -> T:
        """Take the steps of a longer call, one round trip each; anew if the rows have another form meanwhile."""
        for again in range(RESENT_MAX, -1, -1):
            rows = self._server.rows or await self._answered(FormatRequest)
            try:
                return await drive_steps_async(steps(rows), self._asked)
            except FormatChanged:
                if not again:
                    raise
        raise AssertionError

    def _asked(self, commands: Sequence[RedisCommand]) -> asyncio.Future[list[Any]]:
        return self._answered(partial(CommandRequest, commands))

    def _answered(self, request: Callable[..., RedisRequest]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._server.pipeline.submit(request(future=future))
        return future


def _open(address: RedisAddress) -> RedisServer:
    return RedisServer(address, connections_to(address))


def _upkeep() -> Upkeep:
    from onceward.stores import _redis_upkeep

    return _redis_upkeep


KIND = StoreKind(open=RedisStore.from_url, open_async=AsyncRedisStore.from_url, upkeep=_upkeep)
"""What `redis://` opens."""
