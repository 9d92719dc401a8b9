"""
Leases are renewed while their functions run: at a third of the lease, up to a ceiling.

Nothing is started per call. A running operation is an entry in a dictionary; one thread (or one timer of each event
loop) looks through it now and then and renews what is due. A renewal that fails is tried again at the next look; one
that finds somebody else's claim, or none, marks the operation as lost and stops.

This only keeps books. Whatever goes wrong here is logged: it neither reaches an operation nor ends the looking for
good. And an operation is taken off the books without a lock, because a coroutine that is thrown away leaves from
wherever garbage happens to be collected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from onceward._core.engine import Ask, renew
from onceward._core.errors import IllegalMove, OncewardError, OwnershipLost, StoreForgot
from onceward._core.flow import Flow
from onceward._core.operation import Operation
from onceward._core.record import Record
from onceward.environment import Environment

LOOKS_PER_LEASE = 6
"""A look at every sixth of the shortest lease: renewals come between a third and a half of it."""

IDLE_SECONDS = 10.0
"""The thread ends when nothing has run for this long; the next call starts another."""

_NEVER = float("inf")
_log = logging.getLogger("onceward")


class Watched:
    """A running operation."""

    __slots__ = ("ask", "began", "held", "operation", "renewed", "trying")

    def __init__(self, ask: Ask, operation: Operation, held: Record, now: float) -> None:
        self.ask = ask
        self.operation = operation
        self.held = held
        self.began = self.renewed = now
        self.trying = False
        """Whether a renewal of it is under way."""

    @property
    def lease(self) -> float:
        """In seconds."""
        return self.ask.claimant.lease / 1e6

    def is_due(self, now: float) -> bool:
        """
        Whether a third of its lease has gone by since it was last renewed, and its ceiling has not.

        Two thirds, if its function has settled it: its open transaction then holds the record, and a renewal would wait
        for that. It usually commits at once. If it was undone, and the function tries again, the lease must not lapse.
        """
        lease, inside = self.lease, self.operation.inside
        within = now + lease - self.began <= self.ask.terms.lease_max / 1e6
        share = 2 / 3 if inside is not None and inside.called else 1 / 3
        return within and not self.operation.lost and not self.trying and now - self.renewed >= lease * share

    def renewal(self) -> Flow[Record]:
        """The flow that renews it."""
        return renew(self.ask, self.held, self.operation)

    def done(self, held: Record, now: float, sent: float) -> None:
        """Its renewal landed, which was sent at `sent` on the clock that counts suspension."""
        self.operation.confirm(sent, self.ask.claimant.lease)
        self.held = self.operation.record = held
        self.renewed = now
        self.operation.held_until = now + self.lease

    def failed(self, error: Exception) -> bool:
        """Its renewal did not land; whether it has ended, so that there is nothing to renew any more."""
        if isinstance(error, OwnershipLost | StoreForgot):
            self.operation.lost = True
        elif not isinstance(error, OncewardError):
            _log.error("onceward: a renewal of %s raised; it is tried again", self.operation.digest, exc_info=error)
        # If the store is away, there are more chances before the lease runs out: at every look.
        return isinstance(error, IllegalMove)  # Its function has settled it, and committed.


def _copied(watched: dict[int, Watched]) -> list[Watched]:
    """What is watched now, whoever else comes and goes meanwhile."""
    while True:
        try:
            return list(watched.values())
        except RuntimeError:  # Somebody came or went in the middle of it.
            continue


def _shortest(watched: Iterable[Watched]) -> float:
    return min((one.lease for one in watched), default=_NEVER)


class Renewer:
    """For threads: one thread of its own per gate, there while something runs, that holds the gate weakly."""

    def __init__(self, environment: Environment, drive: Callable[[Ask, Flow[Record]], Record]) -> None:
        self._environment = environment
        self._drive = drive
        self._watched: dict[int, Watched] = {}
        self._shortest = _NEVER
        """The lease by which the thread looks; endless if it rests, or if there is none."""
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closed = False
        self._lock = threading.Lock()

    def watch(self, ask: Ask, operation: Operation, held: Record) -> None:
        """Renew this operation's lease from now on."""
        now = self._environment.monotonic()
        watched = Watched(ask, operation, held, now)
        operation.held_until = now + watched.lease
        self._watched[id(operation)] = watched
        if watched.lease < self._shortest or self._pid != os.getpid():
            if self._pid not in (0, os.getpid()):
                self._lock = threading.Lock()  # Of a parent process: its thread may have held it when this one began.
            with self._lock:
                self._start(watched.lease)

    def unwatch(self, operation: Operation) -> None:
        """It has ended."""
        self._watched.pop(id(operation), None)

    def sweep(self) -> None:
        """Renew what is due. Called by the thread; a test may call it instead."""
        now = self._environment.monotonic()
        for watched in _copied(self._watched):
            if watched.is_due(now):
                sent = self._environment.boottime()
                try:
                    watched.done(self._drive(watched.ask, watched.renewal()), now, sent)
                except Exception as error:
                    if watched.failed(error):
                        self.unwatch(watched.operation)

    def close(self) -> None:
        """Stop the thread."""
        self._closed = True
        self._wake.set()

    def _start(self, lease: float) -> None:
        """Start the thread, or make it look more often; a forked child starts its own."""
        if self._thread is not None and self._pid == os.getpid() and self._thread.is_alive():
            self._shortest = min(self._shortest, lease)
            self._wake.set()
            return
        self._pid = os.getpid()
        self._wake = threading.Event()
        arguments = (weakref.ref(self), self._wake)
        thread = threading.Thread(target=_keep_sweeping, args=arguments, name="onceward-renewer", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # The next call tries again. This one runs for as long as its lease.
            self._shortest = _NEVER
            _log.exception("onceward: no thread could be started, so leases are not renewed; the operation goes on")
            return
        self._thread, self._shortest = thread, lease

    def between_looks(self, *, woken: bool = False) -> float | None:
        """
        Seconds until the next look; None to stop.

        Who was woken for an operation that has ended meanwhile still looks once before it rests: short operations, one
        after the other, would wake it each time, and that costs more than they do.
        """
        if self._closed:
            return None
        with self._lock:
            by, self._shortest = self._shortest, _NEVER
            # Endless meanwhile: whoever comes while the others are looked through finds that, and wakes the thread.
            self._shortest = _shortest(_copied(self._watched))
            if woken and self._shortest == _NEVER:
                self._shortest = by
            return IDLE_SECONDS if self._shortest == _NEVER else self._shortest / LOOKS_PER_LEASE

    def goes_home(self) -> bool:
        """Whether nothing runs, so that the thread may end."""
        with self._lock:
            if self._shortest != _NEVER or self._watched:
                return False
            self._thread = None
            return True


def _keep_sweeping(renewer: weakref.ref[Renewer], wake: threading.Event) -> None:
    woken = True
    while (living := renewer()) is not None and (pause := living.between_looks(woken=woken)) is not None:
        del living
        woken = wake.wait(pause)
        wake.clear()
        if woken or (living := renewer()) is None:
            continue  # Somebody has come who is due sooner, or the gate has gone.
        if living.goes_home():
            return
        try:
            living.sweep()
        except BaseException:
            _log.exception("onceward: a look at the running operations failed; it is repeated in %s s", pause)


class _Loop:
    """What runs in one event loop. Only that loop's own thread adds to it and looks through it."""

    __slots__ = ("loop", "shortest", "tasks", "timer", "watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.watched: dict[int, Watched] = {}
        self.shortest = _NEVER
        self.timer: asyncio.TimerHandle | None = None
        self.tasks: set[asyncio.Task[None]] = set()


class AsyncRenewer:
    """Same as `Renewer`, for tasks: one timer per event loop, running only while something is watched."""

    def __init__(
        self, environment: Environment, drive: Callable[[Ask, Flow[Record]], Coroutine[Any, Any, Record]]
    ) -> None:
        self._environment = environment
        self._drive = drive
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        self._homes: dict[int, _Loop] = {}
        """Running operations, and the loop that each of them runs in."""
        self._lock = threading.Lock()

    def watch(self, ask: Ask, operation: Operation, held: Record) -> None:
        """Same as `Renewer.watch`."""
        now = self._environment.monotonic()
        watched = Watched(ask, operation, held, now)
        operation.held_until = now + watched.lease
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop) or self._settle_in(loop)
        state.watched[id(operation)] = watched
        self._homes[id(operation)] = state
        if watched.lease < state.shortest:
            state.shortest = watched.lease
            self._look_later(state)

    def unwatch(self, operation: Operation) -> None:
        """Same as `Renewer.unwatch`."""
        home = self._homes.pop(id(operation), None)
        if home is not None:
            home.watched.pop(id(operation), None)

    def _settle_in(self, loop: asyncio.AbstractEventLoop) -> _Loop:
        """The books of a loop that is new here; those of loops that were closed are put away."""
        with self._lock:
            for other in list(self._loops):
                if other.is_closed():
                    del self._loops[other]
            state = self._loops[loop] = _Loop(loop)
            return state

    def _look_later(self, state: _Loop) -> None:
        if state.timer is not None:
            state.timer.cancel()
        state.timer = state.loop.call_later(state.shortest / LOOKS_PER_LEASE, self._look, state)

    def _look(self, state: _Loop) -> None:
        """One look at what runs in this loop; the timer ends when nothing does."""
        state.timer = None
        watched = _copied(state.watched)
        state.shortest = _shortest(watched)
        if not watched:
            return
        self._look_later(state)
        now = self._environment.monotonic()
        for one in watched:
            if one.is_due(now):
                self._begin(state, one)

    def _begin(self, state: _Loop, one: Watched) -> None:
        renewal = self._renew(one)
        try:
            task = state.loop.create_task(renewal)
        except Exception:
            renewal.close()
            _log.exception("onceward: a renewal could not be begun; it is tried again at the next look")
            return
        one.trying = True  # Not due again until this one has answered.
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)

    async def _renew(self, watched: Watched) -> None:
        sent = self._environment.boottime()
        try:
            held = await self._drive(watched.ask, watched.renewal())
            watched.done(held, self._environment.monotonic(), sent)
        except Exception as error:
            if watched.failed(error):
                self.unwatch(watched.operation)
        finally:
            watched.trying = False
