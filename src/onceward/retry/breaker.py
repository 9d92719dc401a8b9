"""
`Breaker`: no calls to a dependency that is failing.

The state machine is in `_core/breaker.py`; here are the clock, the threads, the verdicts and the ways to use it. No
thread is held up while a call runs: the breaker is asked before and told after.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from onceward._core.attempts import Judge, judged
from onceward._core.breaker import RECOVERY, THRESHOLD, BreakerRule, Circuit, CircuitState, Refused, is_failure
from onceward._core.classifier import DEFAULT
from onceward._core.errors import CircuitOpen, ConfigurationError, KeyInvalid
from onceward._core.keys import check_key
from onceward._core.stops import instant
from onceward._core.words import roughly
from onceward.environment import REAL, Environment
from onceward.retry.functions import awaits, check_function, warn

if TYPE_CHECKING:
    from onceward._core.register import AsyncStore, Store
    from onceward.gate import AsyncGate, Gate

CLOSED = CircuitState.CLOSED

P = ParamSpec("P")
T = TypeVar("T")

NAME_CHARACTERS_MAX = 100

Fallback = Callable[[CircuitOpen], Any]
OnChange = Callable[[str, CircuitState], object]


class Breaker:
    """
    Counts what a dependency's calls end in, and lets none through while it is failing.

    One per dependency: `breaker("payments")` is the same object everywhere in the process. What counts as a failure is
    what the classifier calls worth retrying; refused requests and cancelled calls count for nothing.
    """

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
        classifier: Judge = DEFAULT,
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
        """The state machine. Looked at freely, moved only under the breaker's own lock."""
        # One that its holder may take again: a coroutine that is thrown away gives its ticket back wherever it is.
        self._lock = threading.RLock()
        self._judge = classifier
        self._failed = failed
        self._on_change = on_change
        self.counts_all = rate is not None
        """Whether successes count even when nothing has failed."""

    @classmethod
    def shared(
        cls,
        store: Gate | AsyncGate | Store | AsyncStore,
        name: str,
        *,
        scope: str | None = None,
        staleness: float = 1.0,
        patience: float = 0.25,
        **options: Any,
    ) -> Breaker:
        """
        One breaker for every process that names it on the same store. Options as for `Breaker`.

        Calls that succeed never touch the store. A failure is handed in, and brings back what others have seen, at
        most every `staleness` seconds; when the circuit is open, one process in all gets the probe. A store that does
        not answer within `patience` seconds is left alone, and this process's own count decides meanwhile.
        """
        from onceward.retry.sharing import SharedBreaker

        return SharedBreaker(store, name, scope=scope, staleness=staleness, patience=patience, **options)

    # --- looking ---

    @property
    def state(self) -> CircuitState:
        """Closed, open or half open. One whose recovery is over is open until somebody calls."""
        return self.circuit.state

    def retry_after(self) -> float | None:
        """Seconds until a call may be let through; None if one would be now."""
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

    # --- calling through it ---

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn` if the circuit lets it; else `CircuitOpen` (or what the fallback says)."""
        circuit = self.circuit
        if circuit.state is CLOSED:
            ticket: int | Refused | None = circuit.serial
        elif isinstance(ticket := self.first(), Refused):
            return self._refused(ticket)  # type: ignore[no-any-return]
        try:
            value = fn(*args, **kwargs)
        except Exception as error:
            self._ended(ticket, error)
            raise
        except BaseException:
            self.report(ticket, "ended")
            raise
        if self._failed is not None and self._failed(value):
            self._ended(ticket, value)
        elif circuit.streak or self.counts_all or circuit.state is not CLOSED:
            self.report(ticket, "succeeded")
        return value

    async def acall(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Same as `call`, but awaits. A cancelled call counts for nothing."""
        circuit = self.circuit
        if circuit.state is CLOSED:
            ticket: int | Refused | None = circuit.serial
        elif isinstance(ticket := await self.afirst(), Refused):
            instead = self._refused(ticket)
            return await instead if isawaitable(instead) else instead  # type: ignore[no-any-return]
        try:
            value = await fn(*args, **kwargs)
        except Exception as error:
            await self._aended(ticket, error)
            raise
        except BaseException as struck:
            await self.ainterrupted(ticket, struck)
            raise
        if self._failed is not None and self._failed(value):
            await self._aended(ticket, value)
        elif circuit.streak or self.counts_all or circuit.state is not CLOSED:
            await self.areport(ticket, "succeeded")
        return value

    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function, `def` or `async def`."""
        check_function(fn)
        if not self.enabled:
            return fn
        if awaits(fn):

            @wraps(fn)
            async def awaiting(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await self.acall(fn, *args, **kwargs)  # type: ignore[arg-type]

            return awaiting  # type: ignore[return-value]

        @wraps(fn)
        def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.call(fn, *args, **kwargs)

        return blocking

    def guard(self) -> Guard:
        """A block under the breaker: `with breaker.guard():` or `async with breaker.guard():`."""
        return Guard(self)

    # --- what a retry policy asks ---

    def first(self) -> int | Refused | None:
        """A ticket for a first try; None if it goes out uncounted (`retries_only`)."""
        admitted = self.admit()
        return None if self.retries_only and isinstance(admitted, Refused) else admitted

    async def afirst(self) -> int | Refused | None:
        """Same as `first`, for awaiting callers."""
        admitted = await self.aadmit()
        return None if self.retries_only and isinstance(admitted, Refused) else admitted

    def admit(self, *, peek: bool = False) -> int | Refused:
        """A ticket, or how long to stay away. With `peek` no probe's slot is taken."""
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

    async def aadmit(self, *, peek: bool = False) -> int | Refused:
        """Same as `admit`, for awaiting callers."""
        return self.admit(peek=peek)

    def report(self, ticket: int | Refused | None, end: str) -> None:
        """Bring a ticket back: "succeeded", "failed", or "ended" (says nothing about the dependency)."""
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

    async def areport(self, ticket: int | Refused | None, end: str) -> None:
        """Same as `report`, for awaiting callers."""
        self.report(ticket, end)

    async def ainterrupted(self, ticket: int | Refused | None, struck: BaseException) -> None:
        """Bring back the ticket of an awaiting call that was cancelled: it says nothing, and a probe's slot is free."""
        if isinstance(struck, GeneratorExit):
            self.report(ticket, "ended")  # The coroutine is being closed: nothing can be awaited any more.
        else:
            await self.areport(ticket, "ended")

    async def acaught_up(self) -> None:
        """Wait until what was reported has been handed in: at once, where nothing is handed in."""

    def refusal(self, refused: Refused) -> CircuitOpen:
        """The error for a call that was not made."""
        after = refused.retry_after
        return CircuitOpen(
            f"the circuit {self.name} is open, so no call was made. Come back in {roughly(after)}.",
            retry_after_seconds=after,
            retry_at=instant(self.environment.wall_us(), after),
        )

    def _refused(self, refused: Refused) -> Any:
        error = self.refusal(refused)
        if self.fallback is None:
            raise error
        return self.fallback(error)

    def around(self, retry: Any, breaker: Breaker | None, budget: Any) -> Any:
        """This breaker around an operation. For gates: `once(breaker=payments)`."""
        from onceward.retry.gated import Around

        return Around(retry, breaker, budget)

    def end_of(self, error: BaseException | None, value: Any = None) -> str:
        """What the end of a call says about the dependency: what was raised, or what was returned."""
        if error is not None:
            return self._verdict(error) if isinstance(error, Exception) else "ended"
        return self._verdict(value) if self._failed is not None and self._failed(value) else "succeeded"

    def _verdict(self, problem: Any) -> str:
        return "failed" if is_failure(judged(self._judge, problem, self.environment.wall_us())) else "ended"

    def _ended(self, ticket: int | Refused | None, problem: Any) -> None:
        self.report(ticket, self._verdict(problem))

    async def _aended(self, ticket: int | Refused | None, problem: Any) -> None:
        await self.areport(ticket, self._verdict(problem))

    def _changed(self) -> None:
        if self._on_change is not None:
            try:
                self._on_change(self.name, self.circuit.state)
            except Exception as error:
                warn("on_change", error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.state.value}>"


class Guard:
    """One use of a breaker as a block: the ticket is its own, so any number of tasks may share the breaker."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._ticket: int | Refused | None = None

    def __enter__(self) -> Guard:
        self._ticket = self._breaker.first()
        if isinstance(self._ticket, Refused):
            raise self._breaker.refusal(self._ticket)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._breaker.report(self._ticket, self._breaker.end_of(error))

    async def __aenter__(self) -> Guard:
        self._ticket = await self._breaker.afirst()
        if isinstance(self._ticket, Refused):
            raise self._breaker.refusal(self._ticket)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            await self._breaker.ainterrupted(self._ticket, error)
        else:
            await self._breaker.areport(self._ticket, self._breaker.end_of(error))


def checked_name(name: str) -> str:
    """The name of a breaker or a shared budget, if it can be one: visible ASCII, no spaces, no newlines."""
    try:
        return check_key(name, NAME_CHARACTERS_MAX)
    except KeyInvalid:
        raise ConfigurationError(
            f"a name is 1 to {NAME_CHARACTERS_MAX} visible ASCII characters without spaces or newlines, such as "
            f'"payments" or "payments:eu"; not {str(name)[:40]!r}'
        ) from None


_known: dict[str, tuple[Breaker, dict[str, Any]]] = {}
_known_lock = threading.Lock()


def breaker(name: str, **options: Any) -> Breaker:
    """
    The breaker of that name in this process: made on first use, with these options, and the same one ever after.

    Asking with other options is refused: two parts of a program would believe in two different breakers.
    """
    with _known_lock:
        found = _known.get(name) if isinstance(name, str) else None
        if found is None:
            made = Breaker(name, **options)
            _known[name] = made, options
            return made
    if options and options != found[1]:
        raise ConfigurationError(
            f"the breaker {found[0].name} was made with other options; give them once, and only its name elsewhere"
        )
    return found[0]


def forget_breakers() -> None:
    """Forget every breaker that was made by name: for tests."""
    with _known_lock:
        _known.clear()
