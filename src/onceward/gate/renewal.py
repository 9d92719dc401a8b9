"""
Leases are renewed while their functions run: at a third of the lease, up to a ceiling.

Nothing is started per call. A running operation is an entry in a dictionary; one thread (or one timer of the event
loop) looks through it now and then and renews what is due. A renewal that fails because the store is away is tried
again; one that finds somebody else's claim, or none, marks the operation as lost and stops.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from onceward._core.engine import Ask, renew
from onceward._core.errors import IllegalMove, OncewardError, OwnershipLost, StoreForgot
from onceward._core.flow import Flow
from onceward._core.operation import Operation
from onceward._core.record import Record
from onceward.environment import Environment

LOOKS_PER_LEASE = 6
"""A look at every sixth of the shortest lease: renewals come between a third and a half of it."""


class Watched:
    """A running operation."""

    __slots__ = ("ask", "began", "held", "operation", "renewed")

    def __init__(self, ask: Ask, operation: Operation, held: Record, now: float) -> None:
        self.ask = ask
        self.operation = operation
        self.held = held
        self.began = self.renewed = now

    def is_due(self, now: float) -> bool:
        """
        Whether a third of its lease has gone by, and its ceiling has not.

        Two thirds, if its function has settled it: its open transaction then holds the record, and a renewal would wait
        for that. It usually commits at once. If it was undone, and the function tries again, the lease must not lapse.
        """
        lease, inside = self.ask.claimant.lease / 1e6, self.operation.inside
        within = now + lease - self.began <= self.ask.terms.lease_max / 1e6
        share = 2 / 3 if inside is not None and inside.called else 1 / 3
        return within and not self.operation.lost and now - self.renewed >= lease * share

    def renewal(self) -> Flow[Record]:
        """The flow that renews it."""
        return renew(self.ask, self.held, self.operation)

    def done(self, held: Record, now: float, sent: float) -> None:
        """Its renewal landed, which was sent at `sent` on the clock that counts suspension."""
        self.operation.confirm(sent, self.ask.claimant.lease)
        self.held = self.operation.record = held
        self.renewed = now
        self.operation.held_until = now + self.ask.claimant.lease / 1e6


class Renewer:
    """For threads: one thread of its own per gate, started with the first call, that holds the gate weakly."""

    def __init__(self, environment: Environment, drive: Callable[[Ask, Flow[Record]], Record]) -> None:
        self._environment = environment
        self._drive = drive
        self._watched: dict[int, Watched] = {}
        self._shortest = float("inf")
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False
        self._lock = threading.Lock()

    def watch(self, ask: Ask, operation: Operation, held: Record) -> None:
        """Renew this operation's lease from now on."""
        now = self._environment.monotonic()
        lease = ask.claimant.lease / 1e6
        operation.held_until = now + lease
        self._watched[id(operation)] = Watched(ask, operation, held, now)
        if lease < self._shortest or self._pid != os.getpid():
            with self._lock:
                self._start(lease)

    def unwatch(self, operation: Operation) -> None:
        """It has ended."""
        self._watched.pop(id(operation), None)

    def sweep(self) -> None:
        """Renew what is due. Called by the thread; a test may call it instead."""
        now = self._environment.monotonic()
        for watched in list(self._watched.values()):
            if watched.is_due(now):
                sent = self._environment.boottime()
                try:
                    watched.done(self._drive(watched.ask, watched.renewal()), now, sent)
                except (OwnershipLost, StoreForgot):
                    watched.operation.lost = True
                except IllegalMove:
                    self.unwatch(watched.operation)  # It has ended: its function has settled it, and committed.
                except OncewardError:
                    continue  # The store is away: there are two more chances before the lease runs out.

    def close(self) -> None:
        """Stop the thread."""
        self._closed = True
        self._wake.set()

    def _start(self, lease: float) -> None:
        """Start the thread, or make it look more often; a forked child starts its own."""
        self._shortest = lease if self._pid != os.getpid() else min(self._shortest, lease)
        if self._thread is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._wake = threading.Event()
            arguments = (weakref.ref(self), self._wake)
            self._thread = threading.Thread(target=_keep_sweeping, args=arguments, name="onceward-renewer", daemon=True)
            self._thread.start()
        else:
            self._wake.set()

    def between_looks(self) -> float | None:
        """Seconds until the next look; None to stop."""
        return None if self._closed else self._shortest / LOOKS_PER_LEASE


def _keep_sweeping(renewer: weakref.ref[Renewer], wake: threading.Event) -> None:
    while (living := renewer()) is not None and (pause := living.between_looks()) is not None:
        living.sweep()
        del living
        wake.wait(pause)
        wake.clear()


class _Loop:
    """What runs in one event loop."""

    __slots__ = ("shortest", "timer", "watched")

    def __init__(self) -> None:
        self.watched: dict[int, Watched] = {}
        self.shortest = float("inf")
        self.timer: asyncio.TimerHandle | None = None


class AsyncRenewer:
    """Same as `Renewer`, for tasks: one timer per event loop, running only while something is watched."""

    def __init__(
        self, environment: Environment, drive: Callable[[Ask, Flow[Record]], Coroutine[Any, Any, Record]]
    ) -> None:
        self._environment = environment
        self._drive = drive
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, ask: Ask, operation: Operation, held: Record) -> None:
        """Same as `Renewer.watch`."""
        now = self._environment.monotonic()
        lease = ask.claimant.lease / 1e6
        operation.held_until = now + lease
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None:
            for closed in [other for other in self._loops if other.is_closed()]:
                del self._loops[closed]
            state = self._loops[loop] = _Loop()
        state.watched[id(operation)] = Watched(ask, operation, held, now)
        if lease < state.shortest:
            state.shortest = lease
            self._look_later(loop, state)

    def unwatch(self, operation: Operation) -> None:
        """Same as `Renewer.unwatch`."""
        for state in self._loops.values():
            state.watched.pop(id(operation), None)

    def _look_later(self, loop: asyncio.AbstractEventLoop, state: _Loop) -> None:
        if state.timer is not None:
            state.timer.cancel()
        state.timer = loop.call_later(state.shortest / LOOKS_PER_LEASE, self._look, loop, state)

    def _look(self, loop: asyncio.AbstractEventLoop, state: _Loop) -> None:
        """One look at what runs in this loop; the timer ends when nothing does."""
        state.timer = None
        state.shortest = min((one.ask.claimant.lease / 1e6 for one in state.watched.values()), default=float("inf"))
        if not state.watched:
            return
        now = self._environment.monotonic()
        for one in list(state.watched.values()):
            if one.is_due(now):
                one.renewed = now  # Not due again until this one has answered or a third has gone by.
                task = loop.create_task(self._renew(one))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._look_later(loop, state)

    async def _renew(self, watched: Watched) -> None:
        sent = self._environment.boottime()
        try:
            held = await self._drive(watched.ask, watched.renewal())
            watched.done(held, self._environment.monotonic(), sent)
        except (OwnershipLost, StoreForgot):
            watched.operation.lost = True
        except IllegalMove:
            self.unwatch(watched.operation)  # It has ended: its function has settled it, and committed.
        except OncewardError:
            return  # The store is away: there are two more chances before the lease runs out.
