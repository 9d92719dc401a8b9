"""
Two lanes: most statements take a millisecond, and one that takes seconds must not be in their way.

    put --> quick lane   writers and readers; a request gets a slice of processor time, and is undone when it is over
             |  slice used up
             v
            slow lane    workers of the lowest priority; all of the statement's time; one turn per tenant at a time

What used up its slice before goes to the slow lane at once, and so does everything of a tenant that is heavy while
others are not (`TenantLoads`). A database is written by one worker at a time: while one of its writes is in the slow
lane, all others follow it there, in order.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any
from zlib import crc32

from onceward._core.errors import OncewardError
from onceward.runtime.environment import Environment
from onceward.service.sql.job_queue import JobQueue, WorkerJob, WorkerTurn
from onceward.service.sql.limits import Limits
from onceward.service.sql.tenant_loads import KILLED, OVERRUN, TenantLoads

FILE_BYTES = 300_000
"""To make or delete a file keeps the disk as busy as writing so much."""
STATEMENTS_MAX = 10_000
"""Requests that are known to be slow."""


class Lanes:
    """Where jobs wait: a queue for each writer, one for the readers, one for the slow lane."""

    def __init__(self, limits: Limits, environment: Environment, writers: int) -> None:
        self._environment = environment
        self.loads = TenantLoads(environment.monotonic)
        self._writing: set[str] = set()
        self._slow_writes: Counter[str] = Counter()
        """Writes of each database that are in the slow lane."""
        self._slow_statements: OrderedDict[int, None] = OrderedDict()
        """Requests (by tenant and text) that have used up their slice, the last of them at the end."""
        self._slice = limits.slice_seconds
        quick = 2 * limits.slice_seconds  # The last request of a group may begin when the group's time is almost over.
        self.writes = [self._queue(limits, quick) for _ in range(writers)]
        self.reads = self._queue(limits, quick, shared=True)
        self.slow = self._queue(limits, limits.statement_seconds, serial=True)

    @property
    def queues(self) -> list[JobQueue]:
        """All of them."""
        return [*self.writes, self.reads, self.slow]

    def put(self, job: WorkerJob) -> None:
        """Let a job wait where it belongs; refused if there is no place for it."""
        makes_way = job.account is not None and self.loads.makes_way(job.tenant)
        if (
            not makes_way
            and not (self._slow_statements and _statements(job) in self._slow_statements)
            and not (job.mode == "write" and self._slow_writes[job.path])
        ):
            self._quick_queue(job).put(job)
            return
        for earlier in self._waiting_elsewhere(job):
            self._put_slow(earlier)
        self.slow.put(job)
        self._count_slow(job)

    def requeue(self, queue: JobQueue, jobs: list[WorkerJob], *, slow: bool) -> None:
        """
        Jobs of one turn that were not done, in order; if `slow`, the first of them needs more time than it had.

        The writes of a database follow the one that goes to the slow lane, those that were still waiting, too.
        """
        if not jobs:
            return
        first = jobs[0]
        if queue is self.slow or not (slow or (first.mode == "write" and self._slow_writes[first.path])):
            queue.put_back(jobs)
            return
        if slow:
            self._note_slow(first)
        if first.mode == "read":
            queue.put_back(jobs[1:])  # Reads are in no order: the others have done nothing.
            jobs = jobs[:1]
        for job in [*jobs, *self._waiting_elsewhere(first)]:
            job.queued_at = self._environment.monotonic()
            self._put_slow(job)
        self._make_way(first)

    def finished(self, queue: JobQueue, turn: WorkerTurn, cpu_seconds: float, grown_bytes: int = 0) -> None:
        """A turn is over: it is paid, and it weighs, as processor time and as what had to be brought to the disk."""
        queue.finished(turn, cpu_seconds)
        if queue is self.slow:
            self.loads.add(turn.tenant, cpu_seconds)
            if cpu_seconds < self._slice / 2:
                for job in turn.jobs:
                    self._slow_statements.pop(_statements(job), None)
        else:
            made = FILE_BYTES * sum(one.what in ("create", "drop") for one in turn.jobs)
            self.loads.note_turn(turn.tenant, cpu_seconds, grown_bytes + made)
            self._make_way(turn.jobs[0])
        for one in self.queues:
            one.wake()  # The database may be free for another worker, and the tenant for another statement.

    def _make_way(self, job: WorkerJob) -> None:
        """If its tenant has become heavy, what it still has in the quick lane would be in the way like this one was."""
        if job.account is not None and self.loads.is_heavy(job.tenant) and self.loads.makes_way(job.tenant):
            for one in (*self.writes, self.reads):
                for waiting in one.take_out_tenant(job.tenant):
                    self._put_slow(waiting)

    def note_kill(self, queue: JobQueue, job: WorkerJob) -> None:
        """A worker had to be killed because of a job."""
        if queue is not self.slow:
            self.loads.add(job.tenant, KILLED)

    def _queue(self, limits: Limits, seconds: float, *, serial: bool = False, shared: bool = False) -> JobQueue:
        common: dict[str, Any] = {"loads": self.loads, "writing": self._writing}
        return JobQueue(limits, self._environment, **common, seconds=seconds, serial=serial, shared=shared)

    def _quick_queue(self, job: WorkerJob) -> JobQueue:
        if job.mode == "read":
            return self.reads
        return self.writes[crc32(job.path.encode()) % len(self.writes)]

    def _note_slow(self, job: WorkerJob) -> None:
        self.loads.add(job.tenant, OVERRUN)
        statements = _statements(job)
        self._slow_statements[statements] = None
        self._slow_statements.move_to_end(statements)
        if len(self._slow_statements) > STATEMENTS_MAX:
            self._slow_statements.popitem(last=False)

    def _waiting_elsewhere(self, job: WorkerJob) -> list[WorkerJob]:
        """Writes of the database that wait in the quick lane, if none is in the slow one yet; now they do not."""
        if job.mode != "write" or self._slow_writes[job.path]:
            return []
        return self._quick_queue(job).take_out(job)

    def _put_slow(self, job: WorkerJob) -> None:
        try:
            self.slow.put(job)
        except OncewardError as refusal:
            job.fail(refusal)
        else:
            self._count_slow(job)

    def _count_slow(self, job: WorkerJob) -> None:
        if job.mode == "write":
            self._slow_writes[job.path] += 1
            job.future.add_done_callback(lambda _: self._left_slow(job.path))

    def _left_slow(self, path: str) -> None:
        self._slow_writes[path] -= 1
        if self._slow_writes[path] <= 0:
            del self._slow_writes[path]


def _statements(job: WorkerJob) -> int:
    """What a request is known by: whose it is, and what it runs; not its parameters."""
    texts = (job.what,) if job.request is None else tuple(sql for sql, _ in job.request.statements)
    return hash((job.tenant, job.path, texts))
