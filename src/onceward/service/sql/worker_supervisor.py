"""
The engine's side of one worker process: it starts it, hands it groups, watches it, and replaces it.

A worker is killed when a request makes no progress for twice its deadline. What a dead worker leaves behind is judged
by its `ProgressPage`: as long as no commit had begun, nothing happened, and every request but the culprit is run again,
alone. After that, requests with a key are run again (the key decides), and a write without one gets `OutcomeUnknown`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from onceward._core.errors import OncewardError, OutcomeUnknown, StoreUnavailable
from onceward.protocol.errors import EngineClosed, SqlError, SqlKind
from onceward.protocol.sql_values import json_text
from onceward.runtime.environment import Environment
from onceward.service.sql.frame_reader_async import read_frame_async
from onceward.service.sql.job_queue import JobQueue, WorkerJob
from onceward.service.sql.limits import Limits
from onceward.service.sql.tenant_database import RequestResult
from onceward.service.sql.worker_channel import (
    IN_COMMIT,
    NOT_BEGUN,
    ProgressPage,
    WorkerProgress,
    pack,
    packed,
)
from onceward.service.sql.worker_errors import from_wire

COMMAND = (sys.executable, "-m", "onceward.service.sql.worker")
START_SECONDS = 60.0
"""How long a worker may take to be ready: importing takes a fraction of a second, on a loaded machine seconds."""
BEGIN_SECONDS = 10.0
"""How long a worker may take to begin with a group: it may have to open the database, and is no tenant's doing."""
COMMIT_SECONDS = 60.0
"""How long a commit may take: a disk that syncs for longer is broken."""
STARTS_MAX = 3
"""Workers in a row that may die before they are ready."""
DEATHS_MAX = 3
"""Workers that may die while running the same request, before it is given up: it may be what kills them."""


_log = logging.getLogger("onceward")


class WorkerSupervisor:
    """Keeps one worker process running, and gives it the jobs of a queue."""

    def __init__(
        self,
        queue: JobQueue,
        limits: Limits,
        settings: dict[str, Any],
        environment: Environment,
        *,
        together: int,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._queue = queue
        self._limits = limits
        self._settings = settings
        self._environment = environment
        self._together = together
        self._command = command
        self._groups = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._progress: ProgressPage | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._busy: list[WorkerJob] = []
        self.started = 0
        """How many workers there have been."""

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return None if self._process is None else self._process.pid

    @property
    def is_busy(self) -> bool:
        """Whether a group is with the worker."""
        return bool(self._busy)

    async def run(self) -> None:
        """Work, until cancelled."""
        try:
            while True:
                jobs = self._in_time(await self._queue.take(self._together))
                if jobs:
                    self._busy = jobs
                    await self._do_safely(jobs)
                    self._busy = []
        finally:
            self._abandon(self._busy, EngineClosed())
            self._busy = []
            await asyncio.shield(self._stop())

    def _in_time(self, jobs: list[WorkerJob]) -> list[WorkerJob]:
        oldest = self._environment.monotonic() - self._limits.queue_seconds
        for job in jobs:
            if job.queued_at < oldest and not job.deaths:
                late = SqlError(
                    SqlKind.LOCKED,
                    f"the database was busy for {self._limits.queue_seconds:g} s. The request was not run",
                    hint="send it again in a second, with the same key",
                    retry_after_seconds=1.0,
                )
                _fail(job, late)
        return [job for job in jobs if not job.future.done()]

    # One group.

    async def _do_safely(self, jobs: list[WorkerJob]) -> None:
        """Run a group. If the engine itself has a bug, its callers get an error and do not wait for ever."""
        try:
            await self._do(jobs)
        except Exception:
            _log.exception("onceward: a group of SQL requests failed in the engine itself")
            await self._stop(kill=True)
            self._abandon(jobs, StoreUnavailable("the engine failed; send it again, with the same key"))

    async def _do(self, jobs: list[WorkerJob]) -> None:
        if self._process is None:
            try:
                await self._start()
            except StoreUnavailable as error:
                for job in jobs:
                    _fail(job, error)
                return
        self._groups += 1
        first = jobs[0]
        requests = ",".join(job.text for job in jobs)
        head = f'"group":{self._groups},"path":{json_text(first.path)},"what":{json_text(first.what)}'
        # All of one database, so of one tenant. The last of them has looked for its keys last.
        seal = next((f',"seal":{job.seal}' for job in reversed(jobs) if job.seal), "")
        frame = packed(f'{{{head}{seal},"requests":[{requests}]}}')
        try:
            self._link.write(frame)
            await self._link.drain()
            await self._watched(self._receive(jobs))
        except _Overdue as overdue:
            await self._stop(kill=True)
            self._after_death(jobs, overdue.seen, overdue=True)
        except (EOFError, OSError, ValueError, KeyError):  # Gone, or not in its right mind.
            seen = self._progress_page.seen()
            await self._stop(kill=True)
            self._after_death(jobs, seen, overdue=False)

    async def _receive(self, jobs: list[WorkerJob]) -> None:
        for job in jobs:
            _settle(job, await read_frame_async(self._reader))

    async def _watched(self, receiving: Coroutine[Any, Any, None]) -> None:
        """Wait for the responses, for as long as there is progress."""
        task = asyncio.create_task(receiving)
        try:
            last, since = self._progress_page.seen(), self._environment.monotonic()
            while True:
                done, _ = await asyncio.wait((task,), timeout=self._limits.statement_seconds / 4)
                if done:
                    task.result()
                    return
                seen, now = self._progress_page.seen(), self._environment.monotonic()
                if seen != last:
                    last, since = seen, now
                if now - since >= self._patience(seen):
                    raise _Overdue(seen)
        finally:
            task.cancel()

    def _patience(self, seen: WorkerProgress) -> float:
        """How long a worker may stay where it is."""
        if seen.group != self._groups or seen.number == NOT_BEGUN:
            return max(BEGIN_SECONDS, 2 * self._limits.statement_seconds)
        return COMMIT_SECONDS if seen.number == IN_COMMIT else 2 * self._limits.statement_seconds

    def _after_death(self, jobs: list[WorkerJob], seen: WorkerProgress, *, overdue: bool) -> None:
        """Settle what a dead worker had before it, or send it again."""
        mine = seen.group == self._groups
        unknown = mine and seen.committing
        culprit = jobs[seen.number] if mine and seen.number < len(jobs) else None
        again = []
        for job in jobs:
            if job.future.done():
                continue
            if job is culprit:
                job.deaths += 1
            if job is culprit and (overdue or job.deaths >= DEATHS_MAX):
                _fail(job, self._given_up(overdue=overdue))
            elif unknown and not job.repeatable:
                _fail(job, _unknown())
            else:
                job.alone = True
                again.append(job)
        self._queue.put_back(again)

    def _given_up(self, *, overdue: bool) -> SqlError:
        if overdue:
            return SqlError(
                SqlKind.TIMEOUT,
                f"the statement was stopped after {2 * self._limits.statement_seconds:g} s; nothing was written",
                hint="make it cheaper: an index, a LIMIT, shorter texts",
            )
        return SqlError(
            SqlKind.TOO_LARGE,
            f"{DEATHS_MAX} processes have died while running this request; nothing was written",
            hint="it needs more memory than there is: make it smaller",
        )

    def _abandon(self, jobs: list[WorkerJob], error: OncewardError) -> None:
        """Nobody works on these any more: the engine closes and its patience is over, or it has failed."""
        for job in jobs:
            _fail(job, error if job.repeatable else _unknown())

    # The process.

    @property
    def _link(self) -> asyncio.StreamWriter:
        if self._writer is None:
            raise EOFError
        return self._writer

    @property
    def _progress_page(self) -> ProgressPage:
        if self._progress is None:
            raise EOFError
        return self._progress

    async def _start(self) -> None:
        for _ in range(STARTS_MAX):
            try:
                await self._try_to_start()
            except (EOFError, OSError, TimeoutError):
                await self._stop(kill=True)
            else:
                return
        raise StoreUnavailable("no worker process could be started; nothing was run", retry_after_seconds=5.0)

    async def _try_to_start(self) -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        with theirs, tempfile.TemporaryFile() as page:
            page.truncate(ProgressPage.SIZE)
            self._progress = ProgressPage(page.fileno())
            ours.setblocking(False)
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            handles = (theirs.fileno(), page.fileno())
            self._process = await loop.run_in_executor(None, self._spawn, handles)
        self.started += 1
        self._writer.write(pack(self._settings))
        async with asyncio.timeout(START_SECONDS):
            await read_frame_async(self._reader)

    def _spawn(self, handles: tuple[int, int]) -> subprocess.Popen[bytes]:
        """A new program and not a fork: nothing of this process is in it but two handles."""
        return subprocess.Popen(  # noqa: S603 - our own command
            [*self._command, *map(str, handles)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=handles,
            start_new_session=True,  # Ctrl-C is for the engine, which then ends its workers in good order.
        )

    async def _stop(self, *, kill: bool = False) -> None:
        """End the worker: it goes when its link is closed, or is killed."""
        writer, process, progress = self._writer, self._process, self._progress
        self._writer = self._process = self._progress = None
        if process is not None and kill:
            process.kill()
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        if process is not None:
            await asyncio.get_running_loop().run_in_executor(None, _reap, process, self._limits.statement_seconds)
        if progress is not None:
            progress.close()


def _reap(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(2 * seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Overdue(Exception):
    """A request has made no progress for too long."""

    def __init__(self, seen: WorkerProgress) -> None:
        super().__init__()
        self.seen = seen


def _unknown() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the process that ran this write ended, and the write may be committed. Look whether it is; with an "
        "idempotency key a write can be sent again safely"
    )


def _settle(job: WorkerJob, response: dict[str, Any]) -> None:
    if job.future.done():
        return
    if "error" in response:
        job.future.set_exception(from_wire(response["error"]))
    else:
        value = response["value"]
        job.future.set_result(value if job.request is None else RequestResult(value, response["replayed"]))


def _fail(job: WorkerJob, error: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(error)
