"""
Renews the leases of running operations: a thread, or a timer of each event loop, renews what is due (`leases.py`).

Nothing is started per call. A running operation is an entry in `Leases`, which is checked now and then. A renewal that
fails is tried again at the next check; one that finds somebody else's claim, or none, marks the operation as lost.

This only keeps books. Whatever goes wrong here is logged: it never reaches an operation, and checking goes on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from onceward._core.flow import Flow
from onceward._core.operation import Operation
from onceward._core.operation_flow import OperationRequest
from onceward._core.record import Record
from onceward.gate.leases import NEVER, Leases, RunningLease
from onceward.runtime.environment import Environment
from onceward.runtime.processes import fork_count

IDLE_SECONDS = 10.0
"""The thread ends when nothing has run for this long; the next call starts another."""

_log = logging.getLogger("onceward")


class LeaseRenewer:
    """Renews leases of threads: one thread per gate, which lives while something runs and holds the gate weakly."""

    def __init__(self, environment: Environment, drive: Callable[[OperationRequest, Flow[Record]], Record]) -> None:
        self._environment = environment
        self._drive = drive
        self._leases = Leases()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._process: int | None = None
        """The process that the thread is of, counted by forks; None: there is no thread yet."""
        self._closed = False
        self._lock = threading.Lock()

    def watch(self, request: OperationRequest, operation: Operation, held: Record) -> None:
        """Renew this operation's lease from now on."""
        leases = self._leases
        # As `begin`, which would be one more call for each.
        watched = RunningLease(request, operation, held, self._environment.monotonic())
        leases.watched[id(operation)] = watched
        lease = watched.lease
        if lease < leases.shortest or self._process != fork_count():
            if self._process not in (None, fork_count()):
                self._lock = threading.Lock()  # Of a parent process: its thread may have held it when this one began.
            with self._lock:
                self._start(lease)

    def unwatch(self, operation: Operation) -> None:
        """Stop renewing: the operation has ended."""
        self._leases.watched.pop(id(operation), None)

    def sweep(self) -> None:
        """Renew what is due. Called by the thread; a test may call it instead."""
        now = self._environment.monotonic()
        for watched in self._leases.due(now):
            sent = self._environment.boottime()
            try:
                watched.done(self._drive(watched.request, watched.renewal()), now, sent)
            except Exception as error:
                if watched.failed(error):
                    self.unwatch(watched.operation)

    def close(self) -> None:
        """Stop the thread."""
        self._closed = True
        self._wake.set()

    def _start(self, lease: float) -> None:
        """Start the thread, or make it look more often; a forked child starts its own."""
        if self._thread is not None and self._process == fork_count() and self._thread.is_alive():
            self._leases.shortest = min(self._leases.shortest, lease)
            self._wake.set()
            return
        self._process = fork_count()
        self._wake = threading.Event()
        arguments = (weakref.ref(self), self._wake)
        thread = threading.Thread(target=_keep_sweeping, args=arguments, name="onceward-renewer", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # The next call tries again. This one runs for as long as its lease.
            self._leases.shortest = NEVER
            _log.exception("onceward: no thread could be started, so leases are not renewed; the operation continues")
            return
        self._thread, self._leases.shortest = thread, lease

    def _seconds_to_next_check(self, *, woken: bool = False) -> float | None:
        """Seconds until the next look; None to stop."""
        if self._closed:
            return None
        with self._lock:
            pause = self._leases.seconds_to_next_check(woken=woken)
            return IDLE_SECONDS if pause == NEVER else pause

    def _ends_if_idle(self) -> bool:
        """Whether nothing runs, so that the thread may end."""
        with self._lock:
            if self._leases.shortest != NEVER or self._leases.watched:
                return False
            self._thread = None
            return True


def _keep_sweeping(renewer: weakref.ref[LeaseRenewer], wake: threading.Event) -> None:
    woken = True
    while (living := renewer()) is not None and (pause := living._seconds_to_next_check(woken=woken)) is not None:
        del living
        woken = wake.wait(pause)
        wake.clear()
        if woken or (living := renewer()) is None:
            continue  # Somebody has come who is due sooner, or the gate has gone.
        if living._ends_if_idle():
            return
        try:
            living.sweep()
        except BaseException:
            _log.exception("onceward: a check of the running leases failed; the next check is in %s s", pause)


class _Loop:
    """What runs in one event loop. Only that loop's own thread adds to it and looks through it."""

    __slots__ = ("leases", "loop", "tasks", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.leases = Leases()
        self.timer: asyncio.TimerHandle | None = None
        self.tasks: set[asyncio.Task[None]] = set()


class AsyncLeaseRenewer:
    """Renews leases of tasks: one timer per event loop, which runs only while something is watched."""

    def __init__(
        self, environment: Environment, drive: Callable[[OperationRequest, Flow[Record]], Coroutine[Any, Any, Record]]
    ) -> None:
        self._environment = environment
        self._drive = drive
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        self._loop_of: dict[int, _Loop] = {}
        """Running operations, and the loop that each of them runs in."""
        self._closed = False
        self._lock = threading.Lock()

    def watch(self, request: OperationRequest, operation: Operation, held: Record) -> None:
        """Renew this operation's lease from now on."""
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop) or self._settle_in(loop)
        lease = state.leases.begin(request, operation, held, self._environment.monotonic())
        self._loop_of[id(operation)] = state
        if lease < state.leases.shortest:
            self._look_later(state)

    def unwatch(self, operation: Operation) -> None:
        """Stop renewing: the operation has ended."""
        loop_state = self._loop_of.pop(id(operation), None)
        if loop_state is not None:
            loop_state.leases.watched.pop(id(operation), None)

    async def sweep(self) -> None:
        """Renew what is due, in whatever loop it runs. A test may call it, instead of the timers."""
        now = self._environment.monotonic()
        for state in list(self._loops.values()):
            for one in state.leases.due(now):
                await self._renew(one)

    def close(self) -> None:
        """Look no more. The timers find that by themselves, each in its loop."""
        self._closed = True

    def _settle_in(self, loop: asyncio.AbstractEventLoop) -> _Loop:
        """The books of a loop that is new here; those of loops that were closed are put away."""
        with self._lock:
            for other in list(self._loops):
                if other.is_closed():
                    del self._loops[other]
            state = self._loops[loop] = _Loop(loop)
            return state

    def _look_later(self, state: _Loop) -> None:
        """Have the timer ring when it is time to look; it ends when nothing runs."""
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None
        pause = state.leases.seconds_to_next_check()
        if pause != NEVER and not self._closed:
            state.timer = state.loop.call_later(pause, self._look, state)

    def _look(self, state: _Loop) -> None:
        """One look at what runs in this loop."""
        if self._closed:
            return
        self._look_later(state)
        for one in state.leases.due(self._environment.monotonic()):
            self._begin(state, one)

    def _begin(self, state: _Loop, one: RunningLease) -> None:
        renewal = self._renew(one)
        try:
            task = state.loop.create_task(renewal)
        except Exception:
            renewal.close()
            _log.exception("onceward: a lease could not be renewed; the next check tries again")
            return
        one.trying = True  # Not due again until this one has answered.
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)

    async def _renew(self, watched: RunningLease) -> None:
        sent = self._environment.boottime()
        try:
            held = await self._drive(watched.request, watched.renewal())
            watched.done(held, self._environment.monotonic(), sent)
        except Exception as error:
            if watched.failed(error):
                self.unwatch(watched.operation)
        finally:
            watched.trying = False
