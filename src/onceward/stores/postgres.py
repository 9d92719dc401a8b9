"""
The PostgreSQL store: one table, many machines, both colours.

    postgresql://user:password@host/database
    postgresql://user@primary,standby/database           finds the host that takes writes
    postgresql://user@host/database?onceward_pool=16     with options of Onceward

Options (everything else in the query is libpq's):

- `onceward_pool=8`: connections of this process. Concurrent writes share one, and on an event loop looks for stored
  results two; the others serve callers that wait.
- `onceward_lock_timeout=5`: how many seconds a call waits for a row that another transaction holds, or for a free
  connection, before it raises `StoreUnavailable`.
- `onceward_answer_timeout=10`: how many seconds, beyond that, the server may be silent before its connection is given
  up and the call raises `StoreUnavailable`.
- `onceward_settle=durable` (default). `onceward_settle=relaxed`: settles that ask for it do not wait for the disk.
- `onceward_bouncer=1`: a pooler in transaction mode (PgBouncer) stands between. Nothing is prepared then, and no
  startup parameters are sent. No session state is relied upon in either case.
- `onceward_batches=1`: how many batches of concurrent writes may be under way. `2` is for a server that is far away and
  has a fast disk: one travels while the other is answered. It needs a connection more.

Claim, replay, wait and refuse take one round trip each; all times are the server's. `synchronous_commit` is on for
every write, whatever the server's default (a stronger setting stays).
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Coroutine, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self, cast

from onceward._core.capabilities import Capabilities, OwnTables
from onceward._core.errors import ConfigurationError
from onceward._core.record import PeekResult, PutResult, Record, Write
from onceward._core.store_protocols import PurgeResult, Selection
from onceward.runtime.environment import REAL, Environment
from onceward.stores import _postgres_flow as flows
from onceward.stores._event_loop_commit import EventLoopCommit
from onceward.stores._event_loop_looks import AwaitedLooks
from onceward.stores._group_commit import PUT_ALONE, GroupCommit, QueueEntry
from onceward.stores._postgres_pool import PostgresPool
from onceward.stores._postgres_pool_async import AsyncPostgresPool
from onceward.stores._postgres_url import PostgresTarget, parse
from onceward.stores._store_kinds import StoreKind
from onceward.stores._upkeep import Upkeep

__all__ = ["KIND", "AsyncPostgresStore", "PostgresStore"]


class _Loop(NamedTuple):
    """What an awaiting store has in one event loop."""

    pool: AsyncPostgresPool
    commits: EventLoopCommit
    looks: AwaitedLooks


class PostgresStore:
    """Records in a PostgreSQL database."""

    def __init__(self, url: str, *, environment: Environment = REAL) -> None:
        self._url = url
        self.target: PostgresTarget = parse(url)
        self.environment = environment
        self._start_over()
        _stores.add(self)

    def _start_over(self) -> None:
        """As new: nothing open, nothing queued. Also what a child does after a fork."""
        self._pool = PostgresPool(self.target, self.environment)
        self._commits = GroupCommit(self._pool.answer, in_flight=self.target.batches)

    @classmethod
    def from_url(cls, url: str, *, environment: Environment = REAL) -> Self:
        """Name the database. Nothing is opened before it is needed; then the tables are made if they are not there."""
        return cls(url, environment=environment)

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do besides keeping records."""
        return Capabilities(
            awaits=False,
            relaxes=self.target.may_relax,
            indexes_unsettled=True,
            joins=OwnTables(self),
            tables=self._url,
        )

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record if its current version is `expect`; whether it landed, and what is there now."""
        entry = QueueEntry(write, expect)
        answer = self._commits.run(entry)
        return self._pool.put_alone(entry) if answer is PUT_ALONE else cast(PutResult, answer)

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        """Write a record that the store has lost, unless it is back or one of `marks` is there."""
        return self._pool.run(flows.put_back(self.target, write, marks))

    def erase(self, ids: Sequence[bytes]) -> int:
        """Delete these records, whatever their state; how many there were."""
        return self._pool.run(flows.erase(self.target, ids))

    def load(self, id: bytes) -> Record | None:
        """Read one record; None if there is none."""
        return self._pool.run(flows.load(self.target, id))

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer; how many there were."""
        return self._pool.run(flows.extend(self.target, family, replay, forget))

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """One page of records in order of id, beginning after an id."""
        return self._pool.run(flows.scan(self.target, after, limit, selection))

    def purge(self, limit: int) -> PurgeResult:
        """Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either."""
        return self._pool.run(flows.purge(self.target, limit, self.environment.random(16)))

    def close(self) -> None:
        """Close files and connections. Closing twice is fine."""
        held = QueueEntry(None)
        self._commits.hold(held)
        try:
            self._pool.close()
        finally:
            self._commits.let_go(held)

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """Which cluster, database and table the records are in: for atomic mode, which has to be in the same."""
        return self._pool.run(flows.identity(self.target))

    @property
    def known_identity(self) -> tuple[Any, ...] | None:
        """The same; None if nobody has asked yet."""
        return vars(self).get("identity")


class AsyncPostgresStore:
    """Records in a PostgreSQL database, for awaiting callers. Each event loop that uses it has its own connections."""

    def __init__(self, url: str, *, environment: Environment = REAL) -> None:
        self._url = url
        self.target: PostgresTarget = parse(url)
        self.environment = environment
        self._by_loop: dict[asyncio.AbstractEventLoop, _Loop] = {}
        self._identity: tuple[Any, ...] | None = None
        _stores.add(self)

    def _start_over(self) -> None:
        self._by_loop = {}

    @classmethod
    def from_url(cls, url: str, *, environment: Environment = REAL) -> Self:
        """Open the store that a URL names."""
        return cls(url, environment=environment)

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do besides keeping records."""
        return Capabilities(
            awaits=True,
            relaxes=self.target.may_relax,
            look=self.look if self.target.looks else None,
            indexes_unsettled=True,
            joins=OwnTables(self),
            identify=self.identify,
            tables=self._url,
        )

    def put(self, write: Write, expect: bytes | None) -> asyncio.Future[PutResult]:
        """
        Write a record if its current version is `expect`; whether it landed, and what is there now.

        It is under way when this returns, awaited or not.
        """
        here = self._by_loop.get(asyncio.get_running_loop()) or self._here()
        return here.commits.submit(write, expect)

    def look(self, id: bytes) -> asyncio.Future[PeekResult | None] | None:
        """
        A look at what a replay needs, if this id was seen settled lately; None if not.

        It is under way when this returns, and waits for no batch of writes.
        """
        loop = asyncio.get_running_loop()
        here = self._by_loop.get(loop)
        return here.looks.look(id, loop) if here is not None and id in here.pool.seen else None

    def put_back(self, write: Write, marks: Sequence[bytes]) -> Coroutine[Any, Any, PutResult]:
        """Write a record that the store has lost, unless it is back or one of `marks` is there."""
        return self._pool().run(flows.put_back(self.target, write, marks))

    def erase(self, ids: Sequence[bytes]) -> Coroutine[Any, Any, int]:
        """Delete these records, whatever their state; how many there were."""
        return self._pool().run(flows.erase(self.target, ids))

    def load(self, id: bytes) -> Coroutine[Any, Any, Record | None]:
        """Read one record; None if there is none."""
        return self._pool().run(flows.load(self.target, id))

    def extend(self, family: bytes, replay: int, forget: int) -> Coroutine[Any, Any, int]:
        """Let the settled records of a family replay for longer; how many there were."""
        return self._pool().run(flows.extend(self.target, family, replay, forget))

    def scan(self, after: bytes, limit: int, selection: Selection) -> Coroutine[Any, Any, list[Record]]:
        """One page of records in order of id, beginning after an id."""
        return self._pool().run(flows.scan(self.target, after, limit, selection))

    def purge(self, limit: int) -> Coroutine[Any, Any, PurgeResult]:
        """Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either."""
        return self._pool().run(flows.purge(self.target, limit, self.environment.random(16)))

    async def identify(self) -> tuple[Any, ...]:
        """Which database this is."""
        if self._identity is None:
            self._identity = await self._pool().run(flows.identity(self.target))
        return self._identity

    @property
    def identity(self) -> tuple[Any, ...]:
        """Which database this is, for callers who cannot await; after `identify`."""
        if self._identity is None:
            raise ConfigurationError(
                "this store does not know yet which database it is in: await store.identify() first"
            )
        return self._identity

    @property
    def known_identity(self) -> tuple[Any, ...] | None:
        """The same; None if nobody has asked yet."""
        return self._identity

    async def close(self) -> None:
        """Close the connections. Those of other event loops are dropped without a goodbye to the server."""
        here = self._here()
        await here.commits.finish()
        await here.looks.finish()
        await here.pool.close()
        for loop, there in list(self._by_loop.items()):
            if there is not here:
                there.pool.abandon()
                del self._by_loop[loop]

    def _pool(self) -> AsyncPostgresPool:
        return self._here().pool

    def _here(self) -> _Loop:
        """The connections of the running loop, and the queue in front of them."""
        loop = asyncio.get_running_loop()
        here = self._by_loop.get(loop)
        if here is None:
            for old in [one for one in self._by_loop if one.is_closed()]:
                self._by_loop.pop(old).pool.abandon()
            pool = AsyncPostgresPool(self.target, self.environment)
            commits = EventLoopCommit(pool.answer, pool.put_alone, in_flight=self.target.batches)
            here = self._by_loop[loop] = _Loop(pool, commits, AwaitedLooks(pool.look, in_flight=self.target.looks))
        return here


# Forking. A connection cannot be shared: both sides would read parts of each other's answers.

_stores: weakref.WeakSet[PostgresStore | AsyncPostgresStore] = weakref.WeakSet()
_inherited: list[object] = []
"""Connections of a parent process, kept so that they are never closed here: closing would end them for the parent."""


def _after_fork_in_child() -> None:
    for store in list(_stores):
        _inherited.append(vars(store).copy())
        store._start_over()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _upkeep() -> Upkeep:
    from onceward.stores import _postgres_upkeep

    return _postgres_upkeep


KIND = StoreKind(open=PostgresStore.from_url, open_async=AsyncPostgresStore.from_url, tables=str, upkeep=_upkeep)
"""What `postgresql://` opens. Other tables are in the same database."""
