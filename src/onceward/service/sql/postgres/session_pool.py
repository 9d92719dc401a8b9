"""
The sessions of one engine, lent in turn: tenants take turns, and a tenant's own requests wait for each other.

No tenant has more than a few at once, nor more than are still free: the last one goes to somebody who has none. With an
account, a place in line is held before anything is asked for, and a running statement and processor time before a
session is lent; who has no processor time is passed over until it has.

A session is closed after a while, because a server process that has served many tenants keeps something of each in
memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Coroutine
from typing import Any, Final

from onceward.protocol.errors import EngineClosed
from onceward.runtime.environment import Environment
from onceward.service.access.accounts import Account, CpuReservation, Hold, Resource
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres.session import PipelineStep, TenantSession
from onceward.service.sql.turn_refusals import line_full, no_processor_time, waited_too_long
from onceward.stores._postgres_errors import DRIVER_ERRORS, connect_failure
from onceward.stores._postgres_url import PostgresTarget

USES_MAX: Final = 5_000
AGE_SECONDS: Final = 1_800.0
REQUEST_SECONDS: Final = 0.0002
"""What any request costs, besides the time that the server works on it."""
LOOK_SECONDS: Final = 0.5
"""How often those are looked at who wait for processor time; at most."""

_BY_KEY: Final = (PipelineStep(b"SET enable_seqscan = off"), PipelineStep(b"SET plan_cache_mode = force_generic_plan"))
"""As the store's own connections are: a plan that is made once, and never reads the table."""


class _Line:
    """One tenant's requests that wait for a session."""

    __slots__ = ("account", "lent", "waiting")

    def __init__(self, account: Account | None) -> None:
        self.account = account
        self.lent = 0
        self.waiting: deque[_Waiting] = deque()


class _Waiting:
    """One of them."""

    __slots__ = ("seconds", "turn", "until")

    def __init__(self, seconds: float, turn: asyncio.Future[_Taken], until: float) -> None:
        self.seconds = seconds
        self.turn = turn
        self.until = until
        """When it has waited for long enough, by the event loop's clock."""


class _Taken:
    """What is held while a session is lent."""

    __slots__ = ("reserved", "running")

    def __init__(self, running: Hold | None, reserved: CpuReservation | None) -> None:
        self.running = running
        self.reserved = reserved

    def give_back(self, used: float) -> None:
        """The turn is over, and has taken so much of the server's time."""
        if self.running is not None:
            self.running.give_back()
        if self.reserved is not None:
            self.reserved.settle(used)


_NOTHING: Final = _Taken(None, None)
"""Where nobody counts."""


class SessionPool:
    """Sessions, at most so many in all and for each tenant."""

    def __init__(
        self, target: PostgresTarget, limits: Limits, environment: Environment, *, size: int, each: int
    ) -> None:
        self._target = target
        self._limits = limits
        self._environment = environment
        self._free = self._size = size
        self._each = each
        self._idle: list[TenantSession] = []
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        """Of tenants who have or wait for sessions; the one whose turn it is first."""
        self._look: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        """One timer for all who wait, not later than the first of them may: most have their turn long before."""
        self._ever = False
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a session is lent, or somebody waits for one."""
        return self._free < self._size or any(line.waiting for line in self._lines.values())

    def lend(self, tenant: str, account: Account | None = None, seconds: float = 0.0) -> Lending:
        """A session for the length of a block. Of the payer's processor time, so much is set aside before."""
        return Lending(self, tenant, account, seconds)

    async def take(self, lending: Lending) -> TenantSession:
        """A session in turn, to be given back whatever happens (`Lending.end`)."""
        tenant, account = lending.tenant, lending.account
        lending.held = None if account is None else account.hold(Resource.WAITING)
        try:
            line = self._lines.get(tenant)
            if line is None:
                line = self._lines[tenant] = _Line(account)
            taken = self._taken_at_once(tenant, line, lending.seconds)
            if taken is None:
                one = self._stand_in_line(tenant, line, lending.seconds)
                try:
                    taken = await one.turn
                except BaseException as error:
                    self._leave_line(tenant, line, one)
                    if isinstance(error, TimeoutError):
                        waited = self._limits.queue_seconds
                        raise waited_too_long(waited, line.account, lending.seconds) from None
                    raise
            try:
                session = self._rested(tenant) or await self._open()
            except BaseException:
                self._give_back(tenant, line, taken, 0.0)
                raise
        except BaseException:
            if lending.held is not None:
                lending.held.give_back()
            raise
        session.worked = session.told = 0.0
        session.served = tenant
        lending.session, lending.line, lending.taken = session, line, taken
        return session

    def give(self, lending: Lending) -> None:
        """Take a session back."""
        session = lending.session
        used = self.cost_of(session)
        if self._closed or not session.is_at_rest:
            session.close()
        else:
            self._idle.append(session)
        self._give_back(lending.tenant, lending.line, lending.taken, used)

    def _give_back(self, tenant: str, line: _Line, taken: _Taken, used: float) -> None:
        taken.give_back(used)
        line.lent -= 1
        self._free += 1
        self._forget(tenant, line)
        self._serve()

    @staticmethod
    def cost_of(session: TenantSession) -> float:
        """What the server has worked for whoever has a session now, as far as it says so or that can be told here."""
        return REQUEST_SECONDS + session.told + max(session.worked - session.way, 0.0)

    def refuse_waiting(self) -> None:
        """Nobody gets a turn any more."""
        self._closed = True
        for line in self._lines.values():
            while line.waiting:
                one = line.waiting.popleft()
                if not one.turn.done():
                    one.turn.set_exception(EngineClosed())

    def close(self) -> None:
        """Let go of every idle session; those that are lent are closed when they come back."""
        self.refuse_waiting()
        for timer in (self._look, self._expiry):
            if timer is not None:
                timer.cancel()
        self.drop_idle()

    def _taken_at_once(self, tenant: str, line: _Line, seconds: float) -> _Taken | None:
        """Where there is a session that nobody waits for; else None."""
        if self._closed or line.waiting or line.lent >= min(self._each, self._free):
            return None
        taken = self._take(line, seconds)
        if taken is not None:
            self._lines.move_to_end(tenant)
            self._free -= 1
            line.lent += 1
        return taken

    def _stand_in_line(self, tenant: str, line: _Line, seconds: float) -> _Waiting:
        """Wait for a turn, or be refused."""
        if self._closed:
            raise EngineClosed
        account = line.account
        if account is not None and account.cpu_wait(seconds) > self._limits.queue_seconds:
            self._forget(tenant, line)
            raise no_processor_time(account, seconds)
        if len(line.waiting) >= self._limits.queue_length:
            raise line_full(len(line.waiting))
        loop = asyncio.get_running_loop()
        one = _Waiting(seconds, loop.create_future(), loop.time() + self._limits.queue_seconds)
        line.waiting.append(one)
        if account is not None:  # Something may be to be had on it that was not a moment ago.
            self._serve()
        if self._expiry is None:
            self._expiry = loop.call_at(one.until, self._expire)
        return one

    def _leave_line(self, tenant: str, line: _Line, one: _Waiting) -> None:
        """It has waited for too long, or has gone; a turn that it was given meanwhile is the next one's."""
        if one.turn.done() and not one.turn.cancelled() and one.turn.exception() is None:
            one.turn.result().give_back(0.0)
            line.lent -= 1
            self._free += 1
            self._serve()
        elif one in line.waiting:
            line.waiting.remove(one)
        self._forget(tenant, line)

    def _expire(self) -> None:
        """Refuse those who have waited for long enough, and come again for the next of them."""
        loop = asyncio.get_running_loop()
        now, soonest = loop.time(), float("inf")
        for line in self._lines.values():
            for one in line.waiting:
                if one.until > now:  # So has everybody behind it.
                    soonest = min(soonest, one.until)
                    break
                if not one.turn.done():
                    one.turn.set_exception(TimeoutError())
        self._expiry = None if soonest == float("inf") else loop.call_at(soonest, self._expire)

    def _serve(self) -> None:
        """Give free sessions to whoever waits: one for each tenant in turn."""
        passed_over: set[str] = set()
        while self._free and not self._closed:
            tenant = self._next(passed_over)
            if tenant is None:
                return
            line = self._lines[tenant]
            if line.waiting[0].turn.done():
                line.waiting.popleft()  # Whoever waited has gone.
                continue
            taken = self._take(line, line.waiting[0].seconds)
            if taken is None:
                passed_over.add(tenant)
                continue
            one = line.waiting.popleft()
            self._lines.move_to_end(tenant)
            self._free -= 1
            line.lent += 1
            one.turn.set_result(taken)

    def _next(self, passed_over: set[str]) -> str | None:
        """Who waits, and may have one more: its own limit, or as many as are still free."""
        most = min(self._each, self._free)
        for tenant, line in self._lines.items():
            if line.waiting and line.lent < most and tenant not in passed_over:
                return tenant
        return None

    def _take(self, line: _Line, seconds: float) -> _Taken | None:
        """What the next of a line needs on its account; None if that is not to be had now."""
        account = line.account
        if account is None:
            return _NOTHING
        running = account.try_hold(Resource.RUNNING)
        if running is None:
            return None
        reserved = account.reserve_cpu(seconds)
        if reserved is None:
            running.give_back()
            self._look_later(account.cpu_wait(seconds))
            return None
        return _Taken(running, reserved)

    def _look_later(self, seconds: float) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(min(seconds, LOOK_SECONDS), self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self._serve()

    def _forget(self, tenant: str, line: _Line) -> None:
        if not line.lent and not line.waiting and self._lines.get(tenant) is line:
            del self._lines[tenant]

    def _rested(self, tenant: str) -> TenantSession | None:
        """One that is open already: the one that served this tenant last knows its tables, or else any."""
        idle = self._idle
        while idle:
            known = len(idle) - 1
            while known and idle[known].served != tenant:
                known -= 1
            session = idle.pop(known if idle[known].served == tenant else -1)
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

    async def open_for_reading(self) -> TenantSession:
        """One more, which no tenant gets: for rows of ours that are found by their keys."""
        session = await self._open()
        await session.execute(*_BY_KEY)
        return session

    def drop_idle(self) -> None:
        """The server is gone, or another one: whoever asks again asks on a new connection."""
        while self._idle:
            self._idle.pop().close()

    def _is_old(self, session: TenantSession) -> bool:
        return session.uses > USES_MAX or self._environment.monotonic() - session.opened_at > AGE_SECONDS


class Lending:
    """`async with pool.lend(...) as session:`"""

    __slots__ = ("_pool", "account", "held", "line", "seconds", "session", "taken", "tenant")

    def __init__(self, pool: SessionPool, tenant: str, account: Account | None, seconds: float) -> None:
        self._pool = pool
        self.tenant = tenant
        self.account = account
        self.seconds = seconds
        self.held: Hold | None
        """A place in line."""
        self.session: TenantSession
        self.line: _Line
        self.taken: _Taken
        """What is held for the session."""

    def begin(self) -> Coroutine[Any, Any, TenantSession]:
        """The session. Whoever gets it has to `end`: a block does, and costs two coroutines more."""
        return self._pool.take(self)

    def end(self) -> None:
        """Give it back."""
        try:
            self._pool.give(self)
        finally:
            if self.held is not None:
                self.held.give_back()

    def __aenter__(self) -> Coroutine[Any, Any, TenantSession]:
        return self.begin()

    async def __aexit__(self, *_: object) -> None:
        self.end()
