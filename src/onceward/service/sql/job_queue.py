"""
The line of requests for workers: fair by tenant first, then by that tenant's databases.

    JobQueue --- acme --- read:shop    job job job       tenants in turn, those with the lowest load first
             |        +-- read:blog    job               a tenant's databases in turn
             +-- zeta --- read:shop    job

A tenant whose account has no processor time left, or as many statements running as it may have, is passed over until
it has: its requests wait, those of the others do not. Whoever would wait for too long is told for how long.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from onceward._core.errors import OncewardError
from onceward.runtime.environment import REAL, Environment
from onceward.service.access.accounts import Account, CpuReservation, Hold, Resource
from onceward.service.sql.costs import NO_COST, SqlCost
from onceward.service.sql.limits import Limits
from onceward.service.sql.requests import SqlRequest
from onceward.service.sql.tenant_loads import TenantLoads
from onceward.service.sql.turn_refusals import line_full, no_processor_time, waited_too_long

GROUP_BYTES_MAX = 8 << 20
"""Bytes of requests in one group."""
SHORT_SECONDS = 0.002
"""
What takes less is left to the worker that serves its tenant already: the way to another one takes as long as a dozen
short reads, and what has queued up goes together. Nobody waits for longer than this because of that.
"""
LOOK_SECONDS = 0.5
"""How often a line is looked through for who has waited for too long, and for who has processor time again."""


@dataclass(slots=True, eq=False)
class WorkerJob:
    """Something for a worker to do, and who waits for it."""

    path: str
    what: str
    """`group` for a request; otherwise what the worker's method is called."""
    future: asyncio.Future[Any]
    queued_at: float
    request: SqlRequest | None = None
    text: str = ""
    """The request as JSON."""
    tenant: str = ""
    account: Account | None = None
    """Who pays; None: nobody counts."""
    mode: str = "write"
    """`write` or `read`: which kind of connection it needs."""
    growth: int | None = None
    """For what is not a request: how many bytes it may add."""
    alone: bool = False
    """Whether it is not to share a transaction: a worker has died with it."""
    deaths: int = 0
    """How many workers died while they ran it."""
    seal: str = field(default="", repr=False)
    """The keys that its record is sealed under, as JSON: secrets, which go to the worker and nowhere else."""
    cost: SqlCost = NO_COST

    @property
    def repeatable(self) -> bool:
        """Whether it may be run again without knowing if it was done. Creating and dropping a database may, too."""
        return self.request is None or self.request.repeatable

    @property
    def line(self) -> str:
        """Its place in the tenant's line: a database, for reading or for writing."""
        return f"{self.mode}:{self.path}"

    def fail(self, error: OncewardError) -> None:
        """Tell whoever waits, if anybody still does."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class WorkerTurn:
    """A tenant's turn: jobs of one database, for one worker, and what is held and reserved for them."""

    jobs: list[WorkerJob]
    tenant: str
    holds: list[Hold] = field(default_factory=list)
    reserved: CpuReservation | None = None


class TenantLine:
    """The jobs of one tenant, by database."""

    def __init__(self, tenant: str, account: Account | None) -> None:
        self.tenant = tenant
        self.account = account
        self.databases: OrderedDict[str, deque[WorkerJob]] = OrderedDict()

    def jobs(self) -> Iterator[WorkerJob]:
        """All of them."""
        return (job for waiting in self.databases.values() for job in waiting)


class JobQueue:
    """
    Jobs that wait for the workers of one kind.

    `seconds` of processor time are reserved for a turn. In a `serial` queue a tenant has one turn at a time; in a
    `shared` one several workers serve a database, and a turn leaves them half of what waits, unless that is done
    sooner than they would be there. `writing`
    is the set of databases that are being written now, by whichever worker, and is shared by all queues: nobody else
    writes them meanwhile.
    """

    def __init__(
        self,
        limits: Limits,
        environment: Environment = REAL,
        *,
        loads: TenantLoads | None = None,
        writing: set[str] | None = None,
        seconds: float = 0.1,
        serial: bool = False,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._limits = limits
        self._environment = environment
        self._loads = loads or TenantLoads(environment.monotonic)
        self._writing: set[str] = set() if writing is None else writing
        self._seconds = seconds
        self._serial = serial
        self._lines: OrderedDict[str, TenantLine] = OrderedDict()
        self._busy: set[str] = set()
        self._idle = 0
        """Workers with nothing to do: each takes a job as soon as the loop comes to it, so that one does not wait."""
        self._changed = asyncio.Event()
        self._starting = 0
        self._each = seconds
        """Processor seconds of a request, as the last turns had it."""
        self._reminder: asyncio.TimerHandle | None = None
        self._looked_at = environment.monotonic()

    def __len__(self) -> int:
        return sum(1 for line in self._lines.values() for _ in line.jobs())

    def put(self, job: WorkerJob) -> None:
        """Add a job at the end; refused if its database's line is full, or its tenant would wait for too long."""
        line = self._line_of(job)
        waiting = line.databases.get(job.line, ())
        if len(waiting) >= self._limits.queue_length + self._idle:
            raise line_full(len(waiting))
        if job.account is not None and job.account.cpu_wait(self._seconds) > self._limits.queue_seconds:
            raise no_processor_time(job.account, self._seconds)
        line.databases.setdefault(job.line, deque()).append(job)
        self._lines[line.tenant] = line
        if self._shared and job.tenant in self._busy and self._is_short(len(waiting) + 1):
            self._look_soon()
        else:
            self._changed.set()

    def put_back(self, jobs: list[WorkerJob]) -> None:
        """Put jobs at the front again, in order."""
        for job in reversed(jobs):
            line = self._line_of(job)
            line.databases.setdefault(job.line, deque()).appendleft(job)
            line.databases.move_to_end(job.line, last=False)
            self._lines[line.tenant] = line
            self._lines.move_to_end(line.tenant, last=False)
        self._changed.set()

    def take_out(self, job: WorkerJob) -> list[WorkerJob]:
        """Everything that waits in a job's place: it goes elsewhere."""
        line = self._lines.get(job.tenant)
        found = [] if line is None else list(line.databases.pop(job.line, ()))
        if line is not None and not line.databases:
            del self._lines[job.tenant]
        return found

    def take_out_tenant(self, tenant: str) -> list[WorkerJob]:
        """Everything that a tenant has here: it goes elsewhere."""
        line = self._lines.pop(tenant, None)
        return [] if line is None else list(line.jobs())

    async def take(self, most: int) -> WorkerTurn:
        """The next turn, once there is one."""
        while True:
            self._changed.clear()
            turn = self._next(most)
            if turn is not None:
                return turn
            self._idle += 1
            try:
                if self._lines:
                    await self._environment.await_event(self._changed, LOOK_SECONDS)
                else:
                    await self._changed.wait()
            finally:
                self._idle -= 1

    async def wait_for_work(self) -> None:
        """Until there is a job that no worker has taken at once, and that none is being started for."""
        while len(self) <= self._starting:
            self._changed.clear()
            await self._changed.wait()
            await self._environment.asleep(0.0)  # Whoever is ready comes first.

    @contextmanager
    def worker_starting(self) -> Iterator[None]:
        """A worker is being started for a job."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1
            self._changed.set()

    def finished(self, turn: WorkerTurn, cpu_seconds: float) -> None:
        """A turn is over, and has taken so much."""
        for hold in turn.holds:
            hold.give_back()
        if turn.reserved is not None:
            turn.reserved.settle(cpu_seconds)
        if turn.jobs:
            self._each += (cpu_seconds / len(turn.jobs) - self._each) / 8
        self._busy.discard(turn.tenant)
        self._writing.difference_update([job.path for job in turn.jobs if job.mode == "write"])
        self.wake()

    def wake(self) -> None:
        """Something has changed elsewhere: look again, if anybody waits."""
        if self._lines:
            self._changed.set()

    def clear(self) -> list[WorkerJob]:
        """Take out everything."""
        jobs = [job for line in self._lines.values() for job in line.jobs()]
        self._lines.clear()
        return jobs

    def _line_of(self, job: WorkerJob) -> TenantLine:
        return self._lines.get(job.tenant) or TenantLine(job.tenant, job.account)

    def _next(self, most: int) -> WorkerTurn | None:
        self._refuse_late()
        passed_over: set[str] = set()
        while (line := self._first(passed_over)) is not None:
            turn = self._turn(line, most)
            if turn is not None:
                return turn
            passed_over.add(line.tenant)
        return None

    def _first(self, passed_over: set[str]) -> TenantLine | None:
        """Whose turn it is: the lowest level, and of those the one that waits for longest."""
        found, level = None, 0
        for line in self._lines.values():
            if line.tenant in passed_over or (self._serial and line.tenant in self._busy):
                continue
            behind = self._loads.level(line.tenant) + (line.tenant in self._busy)
            if found is None or behind < level:
                found, level = line, behind
            if level == 0:
                break
        return found

    def _turn(self, line: TenantLine, most: int) -> WorkerTurn | None:
        """A turn for this tenant, if its account and its databases allow it now."""
        place = next((place for place in line.databases if not self._is_being_written(line.databases[place])), None)
        if place is None:
            return None
        turn = WorkerTurn([], line.tenant)
        if line.account is not None:
            running = line.account.try_hold(Resource.RUNNING)
            if running is None:
                return None
            turn.holds.append(running)
            turn.reserved = line.account.reserve_cpu(self._seconds)
            if turn.reserved is None:
                running.give_back()
                return None
        waiting = line.databases.pop(place)
        if self._shared and not self._is_short(len(waiting)):
            most = min(most, (len(waiting) + 1) // 2)
        turn.jobs = _together(waiting, most)
        if waiting:
            line.databases[place] = waiting  # At the end: the tenant's other databases first.
        self._lines.move_to_end(line.tenant)  # And the other tenants.
        if not line.databases:
            del self._lines[line.tenant]
        self._busy.add(line.tenant)
        self._writing.update([job.path for job in turn.jobs if job.mode == "write"])
        if not turn.jobs:
            self.finished(turn, 0.0)
            return self._turn(line, most) if line.databases else None
        return turn

    def _is_short(self, requests: int) -> bool:
        return requests * self._each < SHORT_SECONDS

    def _look_soon(self) -> None:
        """If the turn that is under way is over by then, somebody has looked before."""
        if self._reminder is None:
            self._reminder = asyncio.get_running_loop().call_later(SHORT_SECONDS, self._remind)

    def _remind(self) -> None:
        self._reminder = None
        self.wake()

    def _is_being_written(self, waiting: deque[WorkerJob]) -> bool:
        return waiting[0].mode == "write" and waiting[0].path in self._writing

    def _refuse_late(self) -> None:
        now = self._environment.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        oldest = now - self._limits.queue_seconds
        for line in list(self._lines.values()):
            for place, waiting in list(line.databases.items()):
                while waiting and (waiting[0].future.done() or _is_late(waiting[0], oldest)):
                    job = waiting.popleft()
                    job.fail(waited_too_long(self._limits.queue_seconds, line.account, self._seconds))
                if not waiting:
                    del line.databases[place]
            if not line.databases:
                del self._lines[line.tenant]


def _is_late(job: WorkerJob, oldest: float) -> bool:
    return job.queued_at < oldest and not job.deaths


def _together(waiting: deque[WorkerJob], most: int) -> list[WorkerJob]:
    """The jobs at the front that may share a transaction; those that nobody waits for any more are left out."""
    taken: list[WorkerJob] = []
    size = 0
    while waiting and len(taken) < most:
        job = waiting[0]
        if taken and (job.alone or job.what != "group" or size + len(job.text) > GROUP_BYTES_MAX):
            break
        waiting.popleft()
        if job.future.done():
            continue  # Whoever asked has gone, and nothing was run.
        taken.append(job)
        size += len(job.text)
        if job.alone or job.what != "group":
            break
    return taken
