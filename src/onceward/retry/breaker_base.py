"""
The part of a breaker that has no colour: the clock, the lock, the verdicts. The state machine is in `_core/circuit.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceward._core.circuit import (
    RECOVERY,
    THRESHOLD,
    BreakerRefusal,
    BreakerRule,
    Circuit,
    CircuitState,
    is_failure,
)
from onceward._core.classifier import DEFAULT
from onceward._core.display_text import format_seconds
from onceward._core.errors import CircuitOpen, ConfigurationError, KeyInvalid
from onceward._core.events import EventType
from onceward._core.keys import check_key
from onceward._core.retry_flow import SupportsJudge, verdict_on
from onceward._core.stops import time_after
from onceward.retry.function_shape import warn_hook_failed
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.event_stream import EVENT_STREAM

if TYPE_CHECKING:
    from onceward.retry.breaker import Breaker

CLOSED = CircuitState.CLOSED

NAME_CHARACTERS_MAX = 100

Fallback = Callable[[CircuitOpen], Any]
OnChange = Callable[[str, CircuitState], object]


class BreakerBase:
    """The state of a breaker. `Breaker` adds the ways to call through it."""

    def __init__(
        self,
        name: str,
        *,
        threshold: int = THRESHOLD,
        recovery: float = RECOVERY,
        probes: int = 1,
        successes: int = 1,
        probe_lapse: float | None = None,
        age: float | None = None,
        rate: float | None = None,
        window: float = 60.0,
        calls_min: int = 20,
        retries_only: bool = False,
        enabled: bool = True,
        classifier: SupportsJudge = DEFAULT,
        failed: Callable[[Any], bool] | None = None,
        fallback: Fallback | None = None,
        on_change: OnChange | None = None,
        environment: Environment = REAL,
    ) -> None:
        self.name = checked_name(name)
        self.rule = BreakerRule(
            threshold=threshold,
            recovery=recovery,
            probes=probes,
            successes=successes,
            probe_lapse=probe_lapse,
            age=age,
            rate=rate,
            window=window,
            calls_min=calls_min,
        )
        self.retries_only = retries_only
        if not isinstance(enabled, bool):
            raise ConfigurationError("enabled is True or False")
        self.enabled = enabled
        """Whether it does anything. One that is not enabled stays closed, and decorating with it changes nothing."""
        self.fallback = fallback
        self.environment = environment
        self.circuit = Circuit(self.rule)
        """The state machine. Read it freely; it changes only under the breaker's own lock."""
        # Reentrant: a coroutine that is thrown away gives its ticket back, perhaps in a thread that holds this lock.
        self._lock = threading.RLock()
        self._judge = classifier
        self._failed = failed
        self._on_change = on_change
        self.counts_all = rate is not None
        """Whether successes count even when nothing has failed."""

    # --- looking ---

    @property
    def state(self) -> CircuitState:
        """Closed, open or half open. When the recovery time is over, it stays open until the next call."""
        return self.circuit.state

    def retry_after(self) -> float | None:
        """Seconds until a call may go out; None if one may go out now."""
        with self._lock:
            refused = self.circuit.peek(self.environment.monotonic())
        return None if refused is None else refused.retry_after

    def trip(self) -> None:
        """Open it by hand."""
        if not self.enabled:
            return
        with self._lock:
            self.circuit.open(self.environment.monotonic())
        self._changed()

    def reset(self) -> None:
        """Close it by hand."""
        with self._lock:
            self.circuit.close(self.environment.monotonic())
        self._changed()

    # --- moves of the circuit, which wait for nothing but the lock ---

    def _admit_here(self, peek: bool = False) -> int | BreakerRefusal:
        if self.circuit.state is CLOSED:
            return self.circuit.serial
        now = self.environment.monotonic()
        with self._lock:
            if peek:
                return self.circuit.peek(now) or 0
            before = self.circuit.state
            admitted = self.circuit.admit(now)
            changed = before is not self.circuit.state
        if changed:
            self._changed()
        return admitted

    def _report_here(self, ticket: int | BreakerRefusal | None, end: str) -> None:
        if not isinstance(ticket, int) or not self.enabled:
            return
        now, changed = self.environment.monotonic(), False
        with self._lock:
            if end == "ended":
                self.circuit.ended(ticket)
            elif end == "failed":
                changed = self.circuit.failed(ticket, now)
            else:
                changed = self.circuit.succeeded(ticket, now)
        if changed:
            self._changed()

    def let_go(self, ticket: int | BreakerRefusal | None) -> None:
        """Give back the ticket of a call that was stopped, where nothing can be awaited. Frees a probe's slot."""
        self._report_here(ticket, "ended")

    def refusal(self, refused: BreakerRefusal) -> CircuitOpen:
        """The error for a call that was not made."""
        after = refused.retry_after
        return CircuitOpen(
            f"the circuit {self.name} is open, so no call was made. Retry in {format_seconds(after)}.",
            retry_after_seconds=after,
            retry_at=time_after(self.environment.wall_us(), after),
        )

    def _refused(self, refused: BreakerRefusal) -> Any:
        error = self.refusal(refused)
        if self.fallback is None:
            raise error
        return self.fallback(error)

    def end_of(self, error: BaseException | None, value: Any = None) -> str:
        """What the error or the value of a call says about the dependency: "succeeded", "failed" or "ended"."""
        if error is not None:
            return self._verdict(error) if isinstance(error, Exception) else "ended"
        return self._verdict(value) if self._failed is not None and self._failed(value) else "succeeded"

    def _verdict(self, problem: Any) -> str:
        return "failed" if is_failure(verdict_on(self._judge, problem, self.environment.wall_us())) else "ended"

    def _changed(self) -> None:
        EVENT_STREAM.note(EventType.BREAKER_CHANGED, self.name, self.circuit.state.value)
        if self._on_change is not None:
            try:
                self._on_change(self.name, self.circuit.state)
            except Exception as error:
                warn_hook_failed("on_change", error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.state.value}>"


class BreakerGuardBase:
    """What a block under a breaker holds: the ticket is its own."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._ticket: int | BreakerRefusal | None = None


def checked_name(name: str) -> str:
    """The name of a breaker or a shared budget, if it can be one: visible ASCII, no spaces, no newlines."""
    try:
        return check_key(name, NAME_CHARACTERS_MAX)
    except KeyInvalid:
        raise ConfigurationError(
            f"a name is 1 to {NAME_CHARACTERS_MAX} visible ASCII characters without spaces or newlines, such as "
            f'"payments" or "payments:eu"; not {str(name)[:40]!r}'
        ) from None
