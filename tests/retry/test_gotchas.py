"""What goes wrong most often around retries, each shown to go right with the defaults, in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from retry_support import REFUSED, Failed, Script, Sleepless

from onceward import AsyncGate, CircuitOpen, Gate, Retry
from onceward.retry import Breaker

STEPS = ("payment", "inventory", "shipping", "notification")
BUSINESS = [Failed(400), Failed(401), Failed(404), Failed(409), Failed(422), ValueError("bug")]


@pytest.fixture(params=["blocking", "awaiting"])
def guarded(request: pytest.FixtureRequest) -> Callable[[Breaker, Any], Any]:
    """Call a function inside `with breaker.guard():`, or `async with`."""

    def blocking(through: Breaker, fn: Callable[[], Any]) -> Any:
        with through.guard():
            return fn()

    async def entered(through: Breaker, fn: Callable[[], Any]) -> Any:
        async with through.guard():
            return fn()

    return blocking if request.param == "blocking" else lambda through, fn: asyncio.run(entered(through, fn))


@pytest.mark.requirement("D65")
@pytest.mark.fault("a-guard-counts-any-exception")
@pytest.mark.parametrize("error", BUSINESS)
def test_business_errors_inside_a_guard_neither_trip_nor_save_it(
    guarded: Any, still: Sleepless, error: Exception
) -> None:
    """
    Twenty of them leave it closed; and among them, five failures in a row still open it.
    """
    through = Breaker("payments", environment=still)

    def heard(what: Any) -> type:
        try:
            guarded(through, Script(what))
        except Exception as raised:
            return type(raised)
        raise AssertionError("nothing was raised")

    assert [type(error)] * 20 == [heard(error) for _ in range(20)]
    assert through.state == "closed"
    assert [REFUSED, type(error)] * 4 == [heard(what) for _ in range(4) for what in (REFUSED, error)]
    assert (REFUSED, "open", CircuitOpen) == (heard(REFUSED), through.state, heard(REFUSED))


class Worker:
    """A workflow of four steps behind one breaker, in either colour: what each run did."""

    def __init__(self, still: Sleepless) -> None:
        self.still = still
        self.done: list[str] = []
        self.breaker = Breaker("downstream", environment=still)

    def effect(self, step: str, opens_at: str | None) -> str:
        if step == opens_at:
            self.breaker.trip()
        self.breaker.call(lambda: self.done.append(step))
        return step

    def blocking(self, opens_at: str | None) -> list[str]:
        plan = self.gate.plan("order-7")
        return [plan.step(step, lambda step=step: self.effect(step, opens_at), before=CircuitOpen) for step in STEPS]

    async def awaiting(self, opens_at: str | None) -> list[str]:
        async def effect(step: str) -> str:
            return self.effect(step, opens_at)

        plan = self.agate.plan("order-7")
        return [await plan.step(step, lambda step=step: effect(step), before=CircuitOpen) for step in STEPS]

    def runs(self, colour: str, *opens_at: str | None) -> list[Any]:
        """What each run came to: its answers, or the refusal that stopped it."""
        ends: list[Any] = []
        options = {"scope": "test:acme", "environment": self.still}

        async def awaited() -> None:
            async with AsyncGate("memory://", **options) as self.agate:
                for where in opens_at:
                    try:
                        ends.append(await self.awaiting(where))
                    except CircuitOpen:
                        ends.append(CircuitOpen)
                        self.still.advance(31)

        if colour == "awaiting":
            asyncio.run(awaited())
            return ends
        with Gate("memory://", **options) as self.gate:
            for where in opens_at:
                try:
                    ends.append(self.blocking(where))
                except CircuitOpen:
                    ends.append(CircuitOpen)
                    self.still.advance(31)
        return ends


@pytest.mark.requirement("D70")
@pytest.mark.fault("a-plan-forgets-which-step-it-was")
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
@pytest.mark.parametrize("opens_at", STEPS)
def test_wherever_the_breaker_opens_the_workflow_restarts_at_step_one_and_repeats_nothing(
    still: Sleepless, colour: str, opens_at: str
) -> None:
    """
    Four steps, each with its name. The first run stops where the breaker opens, the second begins at step one: what
    was done replays its own answer, the rest runs, and a third run does nothing at all.
    """
    worker = Worker(still)
    ends = worker.runs(colour, opens_at, None, None)

    assert [CircuitOpen, list(STEPS), list(STEPS)] == ends
    assert worker.done == list(STEPS)


@pytest.mark.requirement("D80")
@pytest.mark.fault("a-400-is-tried-again")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_was_refused_for_what_it_is_is_sent_once(call: Any, still: Sleepless, status: int) -> None:
    """
    With the default policy and classifier, under a key: one call, no waiting. A 503 beside it is sent again.
    """
    refused, away = Script(Failed(status)), Script(Failed(503), "done")
    with pytest.raises(Failed):
        call(Retry(environment=still).bind(key="k"), refused)
    slept = list(still.slept)
    call(Retry(environment=still).bind(key="k"), away)

    assert (refused.calls, slept) == (1, [])
    assert away.calls == 2


@pytest.mark.requirement("D80")
@pytest.mark.fault("no-jitter-by-default")
def test_without_a_word_about_it_waits_are_spread(call: Any) -> None:
    """
    A hundred callers that fail at one moment do not come back at one: their first waits cover the whole span.
    """
    waits = []
    for number in range(100):
        still = Sleepless(seed=f"caller {number}")
        with pytest.raises(REFUSED):
            call(Retry(attempts=2, environment=still), Script(REFUSED))
        waits += still.slept
    top = Retry().backoff.base

    assert len(waits) == 100
    assert len(set(waits)) > 90
    assert min(waits) < top / 4 < 3 * top / 4 < max(waits) <= top


@pytest.mark.requirement("D80")
@pytest.mark.fault("the-tenant-is-not-in-the-identity")
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_two_tenants_with_one_key_have_two_effects_and_neither_reads_the_others(colour: str) -> None:
    """
    The same key and the same request under two scopes: each runs, each replays its own answer.
    """
    tenants = ("test:alice", "test:bob", "test:alice", "test:bob")
    ran: list[str] = []

    def effect(tenant: str) -> str:
        ran.append(tenant)
        return f"the secret of {tenant}"

    async def awaited() -> list[Any]:
        async with AsyncGate("memory://", scope="test:nobody") as gate:

            async def aeffect(tenant: str) -> str:
                return effect(tenant)

            return [
                await gate.scoped(tenant).call("order-1", lambda tenant=tenant: aeffect(tenant), request={"n": 1})
                for tenant in tenants
            ]

    if colour == "awaiting":
        outcomes = asyncio.run(awaited())
    else:
        with Gate("memory://", scope="test:nobody") as gate:
            outcomes = [
                gate.scoped(tenant).call("order-1", lambda tenant=tenant: effect(tenant), request={"n": 1})
                for tenant in tenants
            ]

    assert [(f"the secret of {tenant}", number > 1) for number, tenant in enumerate(tenants)] == [
        (outcome.value, outcome.replayed) for outcome in outcomes
    ]
    assert ran == ["test:alice", "test:bob"]
