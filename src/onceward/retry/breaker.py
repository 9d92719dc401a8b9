"""
`Breaker`: no calls to a dependency that is failing.

The state machine is in `_core/circuit.py`; here are the ways to use it, in both colours. No lock is held while a
call runs: the breaker admits it before, and learns its result after.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from onceward._core.errors import ConfigurationError
from onceward.retry.breaker_base import checked_name
from onceward.retry.breaker_budget_mixins import BreakerGuardMixin, BreakerMixin
from onceward.retry.breaker_budget_mixins_async import AsyncBreakerGuardMixin, AsyncBreakerMixin
from onceward.retry.function_shape import awaits, check_function

if TYPE_CHECKING:
    from onceward._core.store_protocols import AsyncStore, Store
    from onceward.gate import AsyncGate, Gate

__all__ = ["Breaker", "BreakerGuard", "breaker", "checked_name", "forget_breakers"]

P = ParamSpec("P")
T = TypeVar("T")


class Breaker(BreakerMixin, AsyncBreakerMixin):
    """
    Counts what a dependency's calls end in, and lets none through while it is failing.

    One per dependency: `breaker("payments")` is the same object everywhere in the process. What counts as a failure is
    what the classifier calls worth retrying. Refused requests and cancelled calls are not counted.
    """

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

        Calls that succeed never touch the store. A failure is reported to it at most every `staleness` seconds,
        and the reply says what the others have seen. When the circuit is open, one process of all gets the probe. If
        the store does not respond within `patience` seconds, this process decides by its own count for the time being.
        """
        from onceward.retry.shared import SharedBreaker

        return SharedBreaker(store, name, scope=scope, staleness=staleness, patience=patience, **options)

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

    def guard(self) -> BreakerGuard:
        """A block under the breaker: `with breaker.guard():` or `async with breaker.guard():`."""
        return BreakerGuard(self)

    def resilience(self, retry: Any, breaker: Breaker | None, budget: Any) -> Any:
        """This breaker around an operation. For gates: `once(breaker=payments)`."""
        from onceward.retry.resilience import OperationResilience

        return OperationResilience(retry, breaker, budget)


class BreakerGuard(BreakerGuardMixin, AsyncBreakerGuardMixin):
    """One use of a breaker as a block: the ticket is its own, so any number of tasks may share the breaker."""


_known: dict[str, tuple[Breaker, dict[str, Any]]] = {}
_known_lock = threading.Lock()


def breaker(name: str, **options: Any) -> Breaker:
    """
    The breaker of that name in this process: made on first use with these options, and the same one from then on.

    Other options for the same name are refused: two parts of a program would expect two different breakers.
    """
    with _known_lock:
        found = _known.get(name) if isinstance(name, str) else None
        if found is None:
            made = Breaker(name, **options)
            _known[name] = made, options
            return made
    if options and options != found[1]:
        raise ConfigurationError(
            f"the breaker {found[0].name} exists already, with other options. Give the options in one place, and only "
            "the name elsewhere"
        )
    return found[0]


def forget_breakers() -> None:
    """Forget every breaker that was made by name: for tests."""
    with _known_lock:
        _known.clear()
