"""
A circuit breaker as a state machine: whether a call may go out, and what its end means for the next ones.

                    threshold reached                   recovery is over
        CLOSED ------------------------->  OPEN  ---------------------------->  HALF_OPEN
          ^                                 ^  <------------------------------      |
          |                                 |          a probe fails                |
          +-----------------------------------------------------------------------+
                                        probes succeed

Laws of this file:

1. It knows no clock and no threads. Time comes in as seconds on a clock that does not go back.
2. Whoever is admitted gets a ticket, and brings it back with the end of the call. A ticket from before the last
   change of state says nothing about the present one, and changes nothing.
3. A probe holds its slot for a while only: one that never comes back (killed, cancelled, forgotten) lapses.
4. What is neither a success nor a failure of the dependency (a refused request, a cancelled call) counts for nothing:
   it does not trip, does not reset, does not close, and gives a probe's slot back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from onceward._core.errors import ConfigurationError
from onceward._core.verdict import Action, Kind, Verdict

THRESHOLD = 5
"""Failures in a row that open a circuit: fewer and a hiccup does, more and an outage is called on too often."""

RECOVERY = 30.0
"""Seconds that a circuit stays open before it is tried again: about what a restart takes."""

SECONDS_MAX = 86_400.0

_SAME_KEY, _STATE = Action.SAME_KEY, Kind.STATE

SLICES = 10
"""Parts that a rate's window is counted in."""


class CircuitState(StrEnum):
    """What a breaker does with calls."""

    CLOSED = "closed"
    """They go out."""
    OPEN = "open"
    """They do not."""
    HALF_OPEN = "half_open"
    """A probe goes out, the others do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRule:
    """When a circuit opens, and how it closes again."""

    threshold: int = THRESHOLD
    """This many failures in a row open it (a success resets the count)."""
    recovery: float = RECOVERY
    """Seconds until it is tried again."""
    probes: int = 1
    """Calls that may try it at the same time."""
    successes: int = 1
    """Probes that must succeed before it closes."""
    probe_lapse: float | None = None
    """Seconds after which a probe that has not come back loses its slot. None: `recovery`."""
    age: float | None = None
    """Failures further apart than this many seconds do not count as a row. None: only a success ends a row."""
    rate: float | None = None
    """Instead of a row: this share of failures among the calls of the last `window` seconds opens it."""
    window: float = 60.0
    """Seconds, for `rate`."""
    calls_min: int = 20
    """With fewer calls in the window a rate means nothing yet."""

    def __post_init__(self) -> None:
        for name, count in (
            ("threshold", self.threshold),
            ("probes", self.probes),
            ("successes", self.successes),
            ("calls_min", self.calls_min),
        ):
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1_000_000:
                raise ConfigurationError(f"{name} is a whole number, at least 1")
        for name, seconds in (
            ("recovery", self.recovery),
            ("probe_lapse", self.probe_lapse),
            ("age", self.age),
            ("window", self.window),
        ):
            if seconds is None and name in ("probe_lapse", "age"):
                continue
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= SECONDS_MAX:
                raise ConfigurationError(f"{name} is a number of seconds, more than 0 and at most a day")
        if self.rate is not None and (
            isinstance(self.rate, bool) or not isinstance(self.rate, int | float) or not 0 < self.rate <= 1
        ):
            raise ConfigurationError("rate is a share of failures, more than 0 and at most 1")

    @property
    def lapse(self) -> float:
        """Seconds after which a probe's slot is free again."""
        return self.recovery if self.probe_lapse is None else self.probe_lapse


class BreakerRefusal(NamedTuple):
    """The call is refused. Retry after this many seconds."""

    retry_after: float


def is_failure(verdict: Verdict) -> bool:
    """
    Whether a failed attempt speaks against the dependency: what may be retried does, what was refused does not.

    The same verdict that the retry flow acts on, so the two cannot disagree.
    """
    return verdict.action is _SAME_KEY and verdict.kind is not _STATE


class Circuit:
    """One circuit under a rule. Not safe for threads by itself; no method waits or calls anything."""

    __slots__ = (
        "_calls",
        "_failures",
        "_probes",
        "_since",
        "_slice",
        "_succeeded",
        "rule",
        "serial",
        "state",
        "streak",
    )

    def __init__(self, rule: BreakerRule) -> None:
        self.rule = rule
        self.state = CircuitState.CLOSED
        self.streak = 0
        """Failures in a row."""
        self.serial = 0
        """Rises with every change of state and every probe; while closed, it is the ticket of an admitted call."""
        self._since = 0.0
        self._succeeded = 0
        self._probes: dict[int, float] = {}
        self._calls = [0] * SLICES
        self._failures = [0] * SLICES
        self._slice = 0

    def admit(self, now: float) -> int | BreakerRefusal:
        """A ticket for one call, or a refusal that says when to retry."""
        if self.state is CircuitState.CLOSED:
            return self.serial
        if self.state is CircuitState.OPEN:
            left = self._since + self.rule.recovery - now
            if left > 0:
                return BreakerRefusal(left)
            self._become(CircuitState.HALF_OPEN, now)
        return self._probe(now)

    def peek(self, now: float) -> BreakerRefusal | None:
        """Whether a call would be refused now, without taking a probe's slot."""
        if self.state is CircuitState.CLOSED:
            return None
        if self.state is CircuitState.OPEN:
            left = self._since + self.rule.recovery - now
            return BreakerRefusal(left) if left > 0 else None
        taken = [start for start in self._probes.values() if now - start < self.rule.lapse]
        return None if len(taken) < self.rule.probes else BreakerRefusal(min(taken) + self.rule.lapse - now)

    def succeeded(self, ticket: int, now: float) -> bool:
        """A call with this ticket ended well. Says whether that changed the state."""
        if self.state is CircuitState.CLOSED:
            if ticket == self.serial:
                self.streak = 0
                self._count(now, failed=False)
            return False
        if self._probes.pop(ticket, None) is None:
            return False
        self._succeeded += 1
        if self._succeeded < self.rule.successes:
            return False
        self._become(CircuitState.CLOSED, now)
        return True

    def failed(self, ticket: int, now: float) -> bool:
        """A call with this ticket failed, and the dependency is to blame. Says whether that changed the state."""
        if self.state is CircuitState.CLOSED:
            if ticket != self.serial or not self._trips(now):
                return False
            self._become(CircuitState.OPEN, now)
            return True
        if self._probes.pop(ticket, None) is None:
            return False
        self._become(CircuitState.OPEN, now)
        return True

    def ended(self, ticket: int) -> None:
        """A call with this ticket ended in a way that says nothing about the dependency."""
        self._probes.pop(ticket, None)

    def open(self, now: float, left: float | None = None) -> None:
        """Open it from any state. `left` is how many seconds remain, if another process opened it earlier."""
        self._become(CircuitState.OPEN, now if left is None else now - self.rule.recovery + left)

    def close(self, now: float) -> None:
        """Close it from any state."""
        self._become(CircuitState.CLOSED, now)

    def _probe(self, now: float) -> int | BreakerRefusal:
        lapse = self.rule.lapse
        for ticket in [ticket for ticket, start in self._probes.items() if now - start >= lapse]:
            del self._probes[ticket]
        if len(self._probes) >= self.rule.probes:
            return BreakerRefusal(min(self._probes.values()) + lapse - now)
        self.serial += 1
        self._probes[self.serial] = now
        return self.serial

    def _trips(self, now: float) -> bool:
        rule = self.rule
        if rule.rate is None:
            in_a_row = rule.age is None or self.streak == 0 or now - self._since <= rule.age
            self.streak = self.streak + 1 if in_a_row else 1
            self._since = now  # While closed: when the last failure was.
            return self.streak >= rule.threshold
        self.streak += 1
        self._count(now, failed=True)
        calls = sum(self._calls)
        return calls >= rule.calls_min and sum(self._failures) / calls >= rule.rate

    def _count(self, now: float, *, failed: bool) -> None:
        if self.rule.rate is None:
            return
        current = int(now / (self.rule.window / SLICES))
        for step in range(1, min(current - self._slice, SLICES) + 1):
            self._calls[(self._slice + step) % SLICES] = self._failures[(self._slice + step) % SLICES] = 0
        self._slice = max(current, self._slice)
        self._calls[self._slice % SLICES] += 1
        self._failures[self._slice % SLICES] += failed

    def _become(self, state: CircuitState, now: float) -> None:
        self.state = state
        self.streak = self._succeeded = 0
        self._since = now
        self.serial += 1
        self._probes.clear()
        if state is CircuitState.CLOSED:
            self._calls, self._failures = [0] * SLICES, [0] * SLICES
