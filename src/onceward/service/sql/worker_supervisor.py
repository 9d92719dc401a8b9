"""
The engine's side of one worker process: it starts it, hands it groups, watches it, and replaces it.

A worker is killed when a request has used more processor time than it may and did not let itself be interrupted. What a
dead worker leaves behind is judged by its `ProgressPage`: as long as no commit had begun, nothing happened, and every
request but the culprit is run again, alone; the culprit pays for what the group had used. After that, requests with a
key are run again (the key decides), and a write without one gets `OutcomeUnknown`. Whatever killed a worker of the
quick lane has its next try in the slow one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Sequence
from json import loads
from typing import Any

from onceward._core.errors import OncewardError, OutcomeUnknown, StoreUnavailable
from onceward.protocol.errors import EngineClosed, SqlError, SqlKind
from onceward.protocol.sql_values import json_text
from onceward.runtime.environment import Environment
from onceward.service.sql.costs import SqlCost
from onceward.service.sql.job_queue import JobQueue, WorkerJob, WorkerTurn
from onceward.service.sql.lanes import Lanes
from onceward.service.sql.limits import Limits
from onceward.service.sql.tenant_database import RequestResult
from onceward.service.sql.worker_channel import (
    IN_COMMIT,
    NOT_BEGUN,
    ProgressPage,
    WorkerProgress,
    pack,
    packed,
    unpack_responses,
)
from onceward.service.sql.worker_errors import from_wire
from onceward.service.sql.worker_link import WorkerLink
from onceward.service.sql.worker_sandbox import SandboxReport, WorkerSandbox

COMMAND = (sys.executable, "-m", "onceward.service.sql.worker")
START_SECONDS = 60.0
"""How long a worker may take to be ready: importing takes a fraction of a second, on a loaded machine seconds."""
BEGIN_SECONDS = 10.0
"""How long a worker may take to begin with a group: it may have to open the database, and is no tenant's doing."""
READS_TOGETHER = 16
"""
Reads of one database in one turn: the way to a worker and back takes longer than most of them. They are answered
together, so a slow one keeps fewer than a commit does waiting, for its slice at most.
"""
GATHERING = 3
"""
Turns of the event loop between two turns of a worker whose requests come in company: whatever has arrived meanwhile is
read in them, and shares the way and the commit. Where nothing has, they take no time.
"""
KILL_SECONDS = 0.5
"""Processor time past the deadline after which a worker is killed: a single instruction takes so long."""
STUCK_SECONDS = 60.0
"""
How long a commit, a request or a slow worker's beginning may take by the clock on the wall: a disk that syncs for
longer is broken, and on a busy machine the slow lane has to wait.
"""
STUCK_TIMES = 12
"""Or so many times the deadline of a request, if that is longer."""
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
        lanes: Lanes,
        limits: Limits,
        settings: dict[str, Any],
        environment: Environment,
        *,
        command: Sequence[str] = COMMAND,
        sandbox: WorkerSandbox,
    ) -> None:
        self._queue = queue
        self._lanes = lanes
        self._is_slow = queue is lanes.slow
        self._seconds = limits.statement_seconds if self._is_slow else limits.slice_seconds
        """What a request may take here."""
        self._limits = limits
        self._settings = settings
        self._environment = environment
        self._together = min(READS_TOGETHER, limits.group_length) if queue is lanes.reads else limits.group_length
        self._command = command
        self._sandbox = sandbox
        self.confined: SandboxReport | None = None
        """What holds the worker in, as it said when it was ready; None: there is none that is."""
        self._groups = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._progress: ProgressPage | None = None
        self._link: WorkerLink | None = None
        self._turn: WorkerTurn | None = None
        """What the worker is doing."""
        self._used = 0.0
        """Processor time of the turn, as far as it is known."""
        self._grown = 0
        """Bytes that it added to its database."""
        self._in_company = False
        """Whether the last turn had several requests: then others are on their way."""
        self.started = 0
        """How many workers there have been."""
        self._not_started: OncewardError = StoreUnavailable("no worker process is running; nothing was run")
        """Why there is none, if there is none."""

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return None if self._process is None else self._process.pid

    @property
    def is_busy(self) -> bool:
        """Whether a group is with the worker."""
        return self._turn is not None

    async def run(self) -> None:
        """Work, until cancelled."""
        busy: list[WorkerJob] = []
        try:
            while True:
                await self._get_ready()
                self._turn = await self._queue.take(self._together)
                self._used, self._grown = 0.0, 0
                try:
                    await self._do_safely(self._busy)
                finally:
                    busy = self._busy
                    self._finish()
                busy = []
        finally:
            # Whoever is cancelled in the middle of a turn has a worker that is in the middle of it, too.
            self._abandon(busy, EngineClosed())
            await asyncio.shield(self._stop(kill=bool(busy)))

    async def _get_ready(self) -> None:
        """
        Start the worker when there is work that no other one has taken, and before any of it is taken for this.

        To one that is there, what comes in company comes together.
        """
        for _ in range(GATHERING if self._in_company else 0):
            await self._environment.asleep(0.0)
        if self._process is None:
            await self._queue.wait_for_work()
            with self._queue.worker_starting():
                try:
                    await self._start()
                except OncewardError as error:
                    self._not_started = error

    @property
    def _busy(self) -> list[WorkerJob]:
        return [] if self._turn is None else self._turn.jobs

    def _finish(self) -> None:
        """The turn is over, and paid: before anybody is answered."""
        turn, self._turn = self._turn, None
        if turn is not None:
            self._in_company = len(turn.jobs) > 1
            self._lanes.finished(self._queue, turn, self._used, self._grown)

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
            for job in jobs:
                job.fail(self._not_started)
            return
        self._groups += 1
        first = jobs[0]
        head = {"group": self._groups, "path": first.path, "mode": first.mode, "what": first.what}
        requests = ",".join(job.text for job in jobs)
        # All of one database, so of one tenant. The last of them has looked for its keys last.
        seal = next((f',"seal":{job.seal}' for job in reversed(jobs) if job.seal), "")
        frame = packed(f'{json_text({**head, "growth": first.growth})[:-1]}{seal},"requests":[{requests}]}}')
        responses: list[dict[str, Any]] = []

        def take(frame: bytes) -> bool:
            responses.extend(unpack_responses(frame))
            if len(responses) < len(jobs):
                return False
            self._answer(jobs, responses)
            return True

        try:
            if self._link is None:
                raise EOFError
            await self._watched(self._link, self._link.ask(frame, take))
        except _Overdue as overdue:
            await self._bury(jobs, responses, overdue.seen, overdue=True)
        except (EOFError, OSError, ValueError, KeyError):  # Gone, or not in its right mind.
            await self._bury(jobs, responses, self._progress_page.seen(), overdue=False)

    def _answer(self, jobs: list[WorkerJob], responses: list[dict[str, Any]]) -> None:
        """Settle what has a response, or send it again if it was not done. A worker that died may have sent fewer."""
        again: list[WorkerJob] = []
        slow = False
        for job, response in zip(jobs, responses, strict=False):
            job.cost = job.cost.plus(SqlCost(response["cpu"], response.get("grown", 0)))
            self._used += response["cpu"]
            self._grown += max(0, response.get("grown", 0))
            if response.get("again") == "slow" and not slow:
                again, slow = [job, *again], True  # It goes first: the others of its group follow it.
            elif "again" in response:
                again.append(job)
        self._finish()
        for job, response in zip(jobs, responses, strict=False):
            if "again" not in response:
                _settle(job, response)
        self._lanes.requeue(self._queue, again, slow=slow)

    async def _bury(
        self, jobs: list[WorkerJob], responses: list[dict[str, Any]], seen: WorkerProgress, *, overdue: bool
    ) -> None:
        """A worker is dead, or has to be: the culprit pays, and the others have another."""
        used = self._cpu_of_worker()
        await self._stop(kill=True)
        if seen.group == self._groups and seen.number < len(jobs):
            spent = self._seconds + KILL_SECONDS if used is None else max(0.0, used - seen.group_cpu)
            culprit = jobs[seen.number]
            culprit.cost = culprit.cost.plus(SqlCost(spent))
            self._used += spent
            self._lanes.note_kill(self._queue, culprit)
        answered = len(responses)  # They come all at once, at the end: most of the time there is none, or the last is.
        self._answer(jobs, responses)
        self._after_death(jobs, seen, overdue=overdue, answered=answered)

    async def _watched(self, link: WorkerLink, answered: Awaitable[None]) -> None:
        """
        Wait for the responses, for as long as there is progress.

        Whoever looks at that is a timer, and no task: most responses are there long before it looks for the first time.
        What it finds is raised where the response is waited for.
        """
        every = self._seconds / 4 + 0.05
        later = asyncio.get_running_loop().call_later
        last, since = self._progress_page.seen(), self._environment.monotonic()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal last, since, timer
            try:
                seen, now = self._progress_page.seen(), self._environment.monotonic()
                if seen != last:
                    last, since = seen, now
                if now - since >= self._patience(seen) or self._is_overdrawn(seen):
                    raise _Overdue(seen)
            except Exception as error:
                link.fail(error)
            else:
                timer = later(every, look)

        timer = later(every, look)
        try:
            await answered
        finally:
            timer.cancel()

    def _patience(self, seen: WorkerProgress) -> float:
        """How long a worker may stay where it is, by the clock on the wall."""
        if not self._is_slow and (seen.group != self._groups or seen.number == NOT_BEGUN):
            return max(BEGIN_SECONDS, 2 * self._limits.statement_seconds)
        return max(STUCK_SECONDS, STUCK_TIMES * self._limits.statement_seconds)

    def _is_overdrawn(self, seen: WorkerProgress) -> bool:
        """Whether the request that runs has used more processor time than it may, and goes on."""
        if seen.group != self._groups or seen.number in (NOT_BEGUN, IN_COMMIT):
            return False
        used = self._cpu_of_worker()
        return used is not None and used - seen.cpu >= self._seconds + KILL_SECONDS

    def _cpu_of_worker(self) -> float | None:
        return None if self.pid is None else self._environment.cpu_seconds_of(self.pid)

    def _after_death(self, jobs: list[WorkerJob], seen: WorkerProgress, *, overdue: bool, answered: int = 0) -> None:
        """Settle what a dead worker had before it, or send it again."""
        mine = seen.group == self._groups
        unknown = mine and seen.committing
        culprit = jobs[seen.number] if mine and seen.number < len(jobs) else None
        again: list[WorkerJob] = []
        for job in jobs[answered:]:
            if job.future.done():
                continue
            if job is culprit:
                job.deaths += 1
            if job is culprit and self._is_slow and (overdue or job.deaths >= DEATHS_MAX):
                job.fail(self._given_up(overdue=overdue))
            elif unknown and not job.repeatable:
                job.fail(_unknown())
            elif job is culprit:
                job.alone = True
                again.insert(0, job)
            else:
                job.alone = True
                again.append(job)
        self._lanes.requeue(self._queue, again, slow=culprit is not None and culprit in again)

    def _given_up(self, *, overdue: bool) -> SqlError:
        if overdue:
            return SqlError(
                SqlKind.TIMEOUT,
                f"the statement was stopped because it took more than {self._limits.statement_seconds:g} "
                "s of processor time. Nothing was written",
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
            job.fail(error if job.repeatable else _unknown())

    # The process.

    @property
    def _progress_page(self) -> ProgressPage:
        if self._progress is None:
            raise EOFError
        return self._progress

    async def _start(self) -> None:
        for _ in range(STARTS_MAX):
            try:
                await self._try_to_start()
            except (EOFError, OSError, TimeoutError) as error:
                # For whoever runs the service; a tenant is not told paths.
                _log.warning("onceward: a worker process could not be started: %s", str(error) or type(error).__name__)
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
            self._link = link = await WorkerLink.connect(ours)
            handles = (theirs.fileno(), page.fileno())
            self._process = await loop.run_in_executor(None, self._spawn, handles)
        self.started += 1
        told: dict[str, Any] = {}
        async with asyncio.timeout(START_SECONDS):
            await link.ask(
                pack({**self._settings, "sandbox": self._sandbox.orders()}),
                lambda frame: told.update(loads(frame)) is None,
            )
        if "error" in told:  # It cannot be held in as it must be, and no other one could.
            await self._stop(kill=True)
            raise from_wire(told["error"])
        self.confined = SandboxReport(*told["sandbox"])

    def _spawn(self, handles: tuple[int, int]) -> subprocess.Popen[bytes]:
        """A new program and not a fork: nothing of this process is in it but two handles."""
        return subprocess.Popen(  # noqa: S603 - our own command
            [*self._command, *map(str, handles)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=handles,
            env=self._sandbox.environment(),
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the engine, which then ends its workers in good order.
        )

    async def _stop(self, *, kill: bool = False) -> None:
        """End the worker: it goes when its link is closed, or is killed."""
        link, process, progress = self._link, self._process, self._progress
        self._link = self._process = self._progress = self.confined = None
        if process is not None and kill:
            process.kill()
        if link is not None:
            await link.close()
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
        "the process that ran this write ended, and the write may be committed. Check whether it is; with an "
        "idempotency key, a write can be sent again safely"
    )


def _settle(job: WorkerJob, response: dict[str, Any]) -> None:
    if job.future.done():
        return
    if "error" in response:
        job.future.set_exception(from_wire(response["error"]))
    else:
        done = response["value"] if job.request is None else RequestResult(response["text"], response["replayed"])
        job.future.set_result(done)
