"""
The sessions of one engine, lent in turn: tenants take turns, and a tenant's own requests wait for each other.

No tenant has more than a few at once, so that a slow one leaves the others theirs. A session is closed after a while,
because a server process that has served many tenants keeps something of each in memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from onceward.protocol.errors import EngineClosed, SqlError, SqlKind
from onceward.runtime.environment import Environment
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres.session import TenantSession
from onceward.stores._postgres_errors import DRIVER_ERRORS, connect_failure
from onceward.stores._postgres_url import PostgresTarget

USES_MAX: Final = 5_000
AGE_SECONDS: Final = 1_800.0


class _Line:
    """One tenant's requests that wait for a session."""

    __slots__ = ("lent", "waiting")

    def __init__(self) -> None:
        self.lent = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class SessionPool:
    """Sessions, at most so many in all and for each tenant."""

    def __init__(
        self, target: PostgresTarget, limits: Limits, environment: Environment, *, size: int, each: int
    ) -> None:
        self._target = target
        self._limits = limits
        self._environment = environment
        self._free = size
        self._each = each
        self._idle: list[TenantSession] = []
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        """Of tenants who have or wait for sessions; the one whose turn it is first."""
        self._ever = False
        self._closed = False

    @asynccontextmanager
    async def lend(self, tenant: str) -> AsyncIterator[TenantSession]:
        """A session for the length of a block."""
        session = await self.take(tenant)
        try:
            yield session
        finally:
            self.give(tenant, session)

    async def take(self, tenant: str) -> TenantSession:
        """A session, to be given back whatever happens."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = _Line()
        try:
            await self._turn(line)
        except BaseException:
            self._forget_if_empty(tenant, line)
            raise
        try:
            return self._rested() or await self._open()
        except BaseException:
            self._leave(tenant, line)
            raise

    def give(self, tenant: str, session: TenantSession) -> None:
        """Take a session back."""
        if self._closed or not session.is_at_rest or self._is_old(session):
            session.close()
        else:
            self._idle.append(session)
        self._leave(tenant, self._lines[tenant])

    def _leave(self, tenant: str, line: _Line) -> None:
        line.lent -= 1
        self._free += 1
        self._forget_if_empty(tenant, line)
        self._serve()

    def _forget_if_empty(self, tenant: str, line: _Line) -> None:
        if not line.lent and not line.waiting:
            self._lines.pop(tenant, None)

    def close(self) -> None:
        """Let go of every idle session; those that are lent are closed when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _turn(self, line: _Line) -> None:
        if self._closed:
            raise EngineClosed
        if self._free and line.lent < self._each and not line.waiting:
            self._free -= 1
            line.lent += 1
            return
        if len(line.waiting) >= self._limits.queue_length:
            raise _busy(f"{len(line.waiting)} requests wait")
        turn = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                line.lent -= 1
                self._free += 1
                self._serve()
            elif turn in line.waiting:
                line.waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise _busy(f"no turn came within {self._limits.queue_seconds:g} s") from None
            raise

    def _serve(self) -> None:
        """Give free sessions to whoever waits: one for each tenant in turn."""
        while self._free:
            waits = (one for one, line in self._lines.items() if line.waiting and line.lent < self._each)
            tenant = next(waits, None)
            if tenant is None:
                return
            line = self._lines[tenant]
            turn = line.waiting.popleft()
            self._lines.move_to_end(tenant)
            if turn.done():
                continue  # Whoever waited has gone.
            self._free -= 1
            line.lent += 1
            turn.set_result(None)

    def _rested(self) -> TenantSession | None:
        """One that is open already."""
        while self._idle:
            session = self._idle.pop()
            if session.is_at_rest and not self._is_old(session):
                return session
            session.close()
        return None

    async def _open(self) -> TenantSession:
        try:
            session = await TenantSession.open(self._target, self._limits, self._environment.monotonic())
        except DRIVER_ERRORS as error:
            raise connect_failure(error, self._target.name, ever_connected=self._ever).meaning from error
        self._ever = True
        return session

    def drop_idle(self) -> None:
        """The server is gone, or another one: whoever asks again asks on a new connection."""
        while self._idle:
            self._idle.pop().close()

    def _is_old(self, session: TenantSession) -> bool:
        return session.uses > USES_MAX or self._environment.monotonic() - session.opened_at > AGE_SECONDS


def _busy(why: str) -> SqlError:
    return SqlError(
        SqlKind.LOCKED,
        f"the database is busy: {why}. This one was not run",
        hint="send it again in a second, with the same key",
        retry_after_seconds=1.0,
    )
