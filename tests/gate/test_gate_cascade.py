"""The breaker that opens in the middle of a workflow, and the workflow that is retried from its first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward import CircuitOpen
from onceward.retry import Breaker

STEPS = ("inventory", "shipping", "notification", "payment")


class Services:
    """The services that an order needs. Each counts its calls; the payment service is down until it is mended."""

    def __init__(self) -> None:
        self.calls = dict.fromkeys(STEPS, 0)
        self.payments_are_down = True

    def do(self, step: str) -> str:
        self.calls[step] += 1
        if step == "payment" and self.payments_are_down:
            raise ConnectionRefusedError("payments")
        return f"{step} done"


def trouble(services: Services, breaker: Breaker, world: Any) -> None:
    """Other orders run into the failing payment service, until its breaker has opened."""
    while breaker.state != "open":
        with pytest.raises(ConnectionRefusedError):
            world.do(breaker.acall(awaitable(services)) if world.awaits else breaker.call(services.do, "payment"))
    services.calls["payment"] = 0


def awaitable(services: Services) -> Callable[[], Any]:
    async def pay() -> str:
        return services.do("payment")

    return pay


def workflow(gate: Any, services: Services, breaker: Breaker, form: str) -> list[str]:
    """The order, from step 1: with the defaults and nothing else."""
    plan = gate.plan("order-17")
    done = [plan.step(step, lambda step=step: services.do(step)) for step in STEPS[:3]]
    if form == "option":
        return [*done, plan.step("payment", lambda: services.do("payment"), breaker=breaker)]
    return [*done, plan.step("payment", lambda: breaker.call(lambda: services.do("payment")))]


async def aworkflow(gate: Any, services: Services, breaker: Breaker, form: str) -> list[str]:
    plan = gate.plan("order-17")

    async def do(step: str) -> str:
        return services.do(step)

    async def pay() -> str:
        return await breaker.acall(do, "payment")

    done = [await plan.step(step, lambda step=step: do(step)) for step in STEPS[:3]]
    if form == "option":
        return [*done, await plan.step("payment", lambda: do("payment"), breaker=breaker)]
    return [*done, await plan.step("payment", pay)]


@pytest.mark.parametrize("form", ["option", "as the document writes it"])
@pytest.mark.fault("a-refusal-inside-the-function-leaves-doubt")
def test_a_breaker_that_opens_mid_workflow_repeats_nothing_and_leaves_no_doubt(world: Any, form: str) -> None:
    """
    The payment breaker is open, the workflow is retried from step 1 five times and goes through when it is closed:
    inventory, shipping and notification were called once each, and nothing was ever in doubt.
    """
    gate, services = world.gate(), Services()
    breaker = Breaker("payments", environment=world.env)
    trouble(services, breaker, world)
    run = aworkflow if world.awaits else workflow
    for _ in range(5):
        with pytest.raises(CircuitOpen):
            world.do(run(gate.gate, services, breaker, form))
        assert list(gate.in_doubt()) == []
    services.payments_are_down = False
    world.env.advance(31)
    finished = world.do(run(gate.gate, services, breaker, form))

    assert [f"{step} done" for step in STEPS] == finished
    assert dict.fromkeys(STEPS, 1) == services.calls
    assert {row.state for row in gate.rows()} == {"settled"}
