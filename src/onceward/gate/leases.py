"""
Which leases are due for renewal, and when to check again: shared by threads and event loops.

A lease is renewed at a third of it, up to a ceiling. Nothing is started here, and no clock is read. An operation is
taken off the books without a lock, because a coroutine that is thrown away leaves from wherever garbage happens to be
collected.
"""

from __future__ import annotations

import logging

from onceward._core.errors import IllegalMove, OncewardError, OwnershipLost, StoreForgot
from onceward._core.flow import Flow
from onceward._core.operation import Operation
from onceward._core.operation_flow import OperationRequest, renew
from onceward._core.record import Record

CHECKS_PER_LEASE = 6
"""A look at every sixth of the shortest lease: renewals come between a third and a half of it."""

NEVER = float("inf")
_log = logging.getLogger("onceward")


class RunningLease:
    """A running operation."""

    __slots__ = ("began", "held", "lease", "operation", "renewed", "request", "trying")

    def __init__(self, request: OperationRequest, operation: Operation, held: Record, now: float) -> None:
        self.request = request
        self.operation = operation
        self.held = held
        self.lease: float = request.claimant.lease / 1e6
        """In seconds."""
        self.began = self.renewed = now
        operation.held_until = now + self.lease
        self.trying = False
        """Whether a renewal of it is under way."""

    def is_due(self, now: float) -> bool:
        """
        Whether a third of its lease has gone by since it was last renewed, and its ceiling has not.

        Two thirds, if its function has settled it: its open transaction then holds the record, and a renewal would wait
        for that. It usually commits at once. If it was undone, and the function tries again, the lease must not lapse.
        """
        lease, inside = self.lease, self.operation.inside
        within = now + lease - self.began <= self.request.terms.lease_max / 1e6
        share = 2 / 3 if inside is not None and inside.called else 1 / 3
        return within and not self.operation.lost and not self.trying and now - self.renewed >= lease * share

    def renewal(self) -> Flow[Record]:
        """The flow that renews it."""
        return renew(self.request, self.held, self.operation)

    def done(self, held: Record, now: float, sent: float) -> None:
        """Its renewal landed, which was sent at `sent` on the clock that counts suspension."""
        self.operation.confirm(sent, self.request.claimant.lease)
        self.held = self.operation.record = held
        self.renewed = now
        self.operation.held_until = now + self.lease

    def failed(self, error: Exception) -> bool:
        """Its renewal did not land; whether it has ended, so that there is nothing to renew any more."""
        if isinstance(error, OwnershipLost | StoreForgot):
            self.operation.lost = True
        elif not isinstance(error, OncewardError):
            _log.error(
                "onceward: renewing the lease of %s failed; it will be tried again",
                self.operation.digest,
                exc_info=error,
            )
        # If the store is away, there are more chances before the lease runs out: at every look.
        return isinstance(error, IllegalMove)  # Its function has settled it, and committed.


class Leases:
    """The books of one thread, or of one event loop: what runs, and by which lease it is looked at."""

    __slots__ = ("shortest", "watched")

    def __init__(self) -> None:
        self.watched: dict[int, RunningLease] = {}
        """By the `id` of each operation; whoever has ended is taken out."""
        self.shortest = NEVER
        """The lease by which somebody looks; endless if nobody does."""

    def begin(self, request: OperationRequest, operation: Operation, held: Record, now: float) -> float:
        """An operation runs from now on; its lease in seconds. If that is less than `shortest`, look sooner."""
        watched = self.watched[id(operation)] = RunningLease(request, operation, held, now)
        return watched.lease

    def due(self, now: float) -> list[RunningLease]:
        """What is to be renewed now."""
        return [one for one in self._copied() if one.is_due(now)]

    def seconds_to_next_check(self, *, woken: bool = False) -> float:
        """
        Seconds until the next look; endless if nothing runs.

        Who was woken for an operation that has ended meanwhile still looks once before it rests: short operations, one
        after the other, would wake it each time, and that costs more than they do.
        """
        by, self.shortest = self.shortest, NEVER
        # Endless meanwhile: whoever comes while the others are looked through finds that, and wakes who looks.
        self.shortest = min((one.lease for one in self._copied()), default=NEVER)
        if woken and self.shortest == NEVER:
            self.shortest = by
        return self.shortest / CHECKS_PER_LEASE

    def _copied(self) -> list[RunningLease]:
        """What is watched now, whoever else comes and goes meanwhile."""
        while True:
            try:
                return list(self.watched.values())
            except RuntimeError:  # Somebody came or went in the middle of it.
                continue
