"""
The queue of requests for a worker: one queue per database, and the databases in turn, so that none starves another.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.limits import Limits
from onceward.service.sql.requests import SqlRequest

GROUP_BYTES_MAX = 8 << 20
"""Bytes of requests in one group."""


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
    alone: bool = False
    """Whether it is not to share a transaction: a worker has died with it."""
    deaths: int = 0
    """How many workers died while they ran it."""
    seal: str = field(default="", repr=False)
    """The keys that its record is sealed under, as JSON: secrets, which go to the worker and nowhere else."""

    @property
    def repeatable(self) -> bool:
        """Whether it may be run again without knowing if it was done. Creating and dropping a database may, too."""
        return self.request is None or self.request.repeatable


@dataclass(slots=True)
class JobQueue:
    """Jobs that wait for a worker."""

    limits: Limits
    _waiting: OrderedDict[str, deque[WorkerJob]] = field(default_factory=OrderedDict)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, job: WorkerJob) -> None:
        """Add a job at the end; refused if the queue of its database is full."""
        waiting = self._waiting.setdefault(job.path, deque())
        if len(waiting) >= self.limits.queue_length:
            raise SqlError(
                SqlKind.LOCKED,
                f"the database is busy: {len(waiting)} requests wait for it. This one was not run",
                hint="send it again in a second, with the same key",
                retry_after_seconds=1.0,
            )
        waiting.append(job)
        self._arrived.set()

    def put_back(self, jobs: list[WorkerJob]) -> None:
        """Put jobs at the front again, in order."""
        for job in reversed(jobs):
            self._waiting.setdefault(job.path, deque()).appendleft(job)
            self._waiting.move_to_end(job.path, last=False)
        self._arrived.set()

    async def take(self, most: int) -> list[WorkerJob]:
        """The next database's jobs that may go together, once there are any; empty if nobody waits for them now."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        path, waiting = self._waiting.popitem(last=False)
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
        if waiting:
            self._waiting[path] = waiting  # At the end: the others first.
        return taken

    def clear(self) -> list[WorkerJob]:
        """Take out everything."""
        jobs = [job for waiting in self._waiting.values() for job in waiting]
        self._waiting.clear()
        return jobs
