# blocking half: plan.py
"""
A plan: a named series of steps. What settled replays, what failed or was never reached runs; in any order.

A step is a record like any other, under (scope, plan, step). A plan's steps live as long as the plan is touched: each
call gives all of them their full retention again, so that step 1 cannot expire while step 5 is still being retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from onceward._core.colour import AWAITS
from onceward._core.operation import Found, NotFound, Outcome
from onceward._core.operation_flow import reconcile
from onceward._core.terms import Options
from onceward.adapters._transaction_async import join_async
from onceward.gate.call_factory import CallFactory, CallSpec, PreparedCall, unreachable
from onceward.gate.held_operation_async import AsyncHeldOperation
from onceward.gate.plan_calls import PlanCalls, StepOptions
from onceward.gate.record_view import RecordView, view

if TYPE_CHECKING:
    from onceward.gate import AsyncGate


class AsyncPlan:
    """A named series of steps under an `AsyncGate`."""

    def __init__(self, gate: AsyncGate, call_factory: CallFactory, plan: str, options: Options) -> None:
        self._gate = gate
        self._steps = PlanCalls(call_factory, plan, options)

    async def call(
        self,
        step: str,
        fn: Callable[..., Any],
        *,
        request: Any = None,
        name: str | None = None,
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        connection: Any = None,
        **options: Unpack[Options],
    ) -> Outcome[Any]:
        """
        Run a step once, and tell how that came about.

        With `connection`, the step shares that connection's transaction, as in `gate.atomic`.
        """
        joins = connection is not None
        call = CallSpec(fn, request, name, probe, marked)
        prepared = self._steps.prepare(step, call, options, awaits=AWAITS, joins=joins)
        if joins:
            joined = join_async(connection, self._gate.store)
            return await self._gate.operate_joined(prepared, joined)
        await self._touch(prepared)
        return await self._gate.operate(prepared)

    async def hold(
        self,
        step: str,
        *,
        request: Any = None,
        name: str = "",
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> AsyncHeldOperation | Outcome[Any]:
        """Claim a step whose work is more than one function call; call `end` when it is done."""
        call = CallSpec(unreachable, request, name, probe, marked)
        prepared = self._steps.prepare(step, call, options, awaits=AWAITS, joins=False)
        await self._touch(prepared)
        return await self._gate.held(prepared)

    async def step(self, step: str, fn: Callable[..., Any], **options: Unpack[StepOptions]) -> Any:
        """Run a step once; the value alone."""
        return (await self.call(step, fn, **options)).answer

    async def reconcile(self, step: str, answer: Found | NotFound, *, fence: int | None = None) -> RecordView:
        """Decide a step that is in doubt: `Found(result)` settles it, `NOT_FOUND` releases it."""
        about = self._steps.about(step)
        return view(await self._gate.drive(reconcile(about.request, answer, fence), about))

    async def _touch(self, prepared: PreparedCall) -> None:
        touch = self._steps.touch(prepared.request, self._gate.environment.monotonic())
        if touch is not None:
            await self._gate.drive(touch, prepared)
