"""
A plan: a named series of steps. What settled replays, what failed or was never reached runs; in any order.

A step is a record like any other, under (scope, plan, step). A plan's steps live as long as the plan is touched: each
call gives all of them their full retention again, so that step 1 cannot expire while step 5 is still being retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from onceward._core.engine import Ask, operate
from onceward._core.flow import MONOTONIC, Extend, Flow
from onceward._core.keys import check_key, record_id
from onceward._core.operation import Outcome
from onceward.gate.asking import STEP, Asking, Invoke, checked_body, invoker
from onceward.gate.declaring import name_of

if TYPE_CHECKING:
    from onceward.gate.awaiting import AsyncGate
    from onceward.gate.blocking import Gate

T = TypeVar("T")

TOUCH_AT_MOST_EVERY = 1.0
"""Seconds between two touches of a plan by one `Plan` object: touching is a write, a replay is none."""


class _Steps:
    """What both colours share: from a step to its flow."""

    def __init__(self, asking: Asking, plan: str, options: dict[str, Any]) -> None:
        self._asking = asking
        self.plan = asking.stored_key(plan)
        self._options = options
        self._family = record_id("plan", asking.scope, self.plan)
        self._touched: float | None = None
        asking.agreed(options)

    def flow(
        self,
        step: str,
        fn: Callable[..., Any],
        awaits: bool,
        *,
        request: Any,
        probe: Callable[..., Any] | None,
        marked: bool | None,
        options: dict[str, Any],
    ) -> tuple[Flow[Outcome[Any]], Ask, Invoke]:
        terms = self._asking.agreed({**self._options, **options})
        body = checked_body(fn, terms, awaits=awaits, probe=probe)
        ask = self._asking.ask(
            (self.plan, check_key(step)),
            request,
            terms,
            kind=STEP,
            operation=name_of(fn),
            marked=body.marked if marked is None else marked,
            probes=probe is not None,
            family=self._family,
        )
        return self._touch_and_operate(ask), ask, invoker(fn, body)

    def _touch_and_operate(self, ask: Ask) -> Flow[Outcome[Any]]:
        now = yield MONOTONIC
        if self._touched is None or now - self._touched >= TOUCH_AT_MOST_EVERY:
            yield Extend("touch", self._family, ask.terms.retain, ask.terms.forget)
            self._touched = now
        return (yield from operate(ask))


class Plan:
    """A named series of steps under a blocking gate."""

    def __init__(self, gate: Gate, asking: Asking, plan: str, options: dict[str, Any]) -> None:
        self._gate = gate
        self._steps = _Steps(asking, plan, options)

    def call(
        self,
        step: str,
        fn: Callable[..., T],
        *,
        request: Any = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Any,
    ) -> Outcome[T]:
        """Run a step once, and tell how that came about."""
        flow, ask, invoke = self._steps.flow(
            step, fn, False, request=request, probe=probe, marked=marked, options=options
        )
        return self._gate.drive(flow, ask, invoke, probe)

    def step(self, step: str, fn: Callable[..., T], **options: Any) -> T:
        """Same as `call`, but returns the value alone."""
        return self.call(step, fn, **options).value


class AsyncPlan:
    """Same as `Plan`, but awaits."""

    def __init__(self, gate: AsyncGate, asking: Asking, plan: str, options: dict[str, Any]) -> None:
        self._gate = gate
        self._steps = _Steps(asking, plan, options)

    async def call(
        self,
        step: str,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Any,
    ) -> Outcome[Any]:
        """Same as `Plan.call`, but awaits."""
        flow, ask, invoke = self._steps.flow(
            step, fn, True, request=request, probe=probe, marked=marked, options=options
        )
        return await self._gate.drive(flow, ask, invoke, probe)

    async def step(self, step: str, fn: Callable[..., Any], **options: Any) -> Any:
        """Same as `Plan.step`, but awaits."""
        return (await self.call(step, fn, **options)).value
