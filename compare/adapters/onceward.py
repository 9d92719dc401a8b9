"""Onceward, as its first page shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compare.place import Place, Request, Work
from onceward import AsyncGate, Breaker, Budget, Gate, Retry, deadline
from onceward.errors import RateLimitError


class Onceward:
    """A function that is declared once, and the same for async functions."""

    def __init__(self, place: Place, work: Work) -> None:
        options: dict[str, Any] = {} if place.lease is None else {"lease": place.lease, "takeover": "lease"}
        if place.repeatable:
            options["guarantee"] = "repeatable"
        # what a user adds
        gate = Gate(place.url, scope="live:shop", **options)

        @gate.once(key="charge:{key}")
        def charge(key: str, request: Request) -> Any:
            return work(key, request)

        # until here
        self._charge, self._gate = charge, gate
        self._async_gate = AsyncGate(place.url, scope="live:shop", **options)

        @self._async_gate.once(key="charge:{key}")
        async def acharge(key: str, request: Request) -> Any:
            return await work.awaited(key, request)

        self.acall = acharge

    def call(self, key: Any, request: Request) -> Any:
        """Run it once."""
        return self._charge(key, request)

    def close(self) -> None:
        """Close it."""
        self._gate.close()


def make(place: Place, work: Work) -> Onceward:
    """On the store that the question is asked on."""
    return Onceward(place, work)


def steps(place: Place, work: Callable[[str], Any]) -> Callable[[], Any]:
    """A plan of three steps."""
    gate = Gate(place.url, scope="live:shop", guarantee="repeatable")

    def run() -> list[Any]:
        plan = gate.plan("order-17")
        return [plan.step(name, lambda name=name: work(name)) for name in ("one", "two", "three")]

    return run


def limited(seconds: float) -> Exception:
    """What a 429 with Retry-After is as an error."""
    return RateLimitError(retry_after_seconds=seconds)


def retrying(work: Callable[[], Any], *, attempts: int, total: float | None = None) -> Callable[[], Any]:
    """A policy around the work."""
    # what a user adds
    policy = Retry(attempts=attempts)
    charge = policy(work)
    # until here

    def within() -> Any:
        with deadline(total or 60):
            return charge()

    return within


def budgeted(work: Callable[[], Any], *, attempts: int) -> Callable[[], Any]:
    """The same with a budget."""
    return Retry(attempts=attempts, budget=Budget())(work)


def breaking(work: Callable[[], Any], *, failures: int, recovery: float) -> Callable[[], Any]:
    """A breaker around the work."""
    # what a user adds
    payments = Breaker("payments", threshold=failures, recovery=recovery)
    charge = payments(work)
    # until here
    return charge
