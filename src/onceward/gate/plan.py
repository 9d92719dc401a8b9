# Made from plan_async.py by `make halves`: change that file, not this one.
"""
A plan: a named series of steps. What settled replays, what failed or was never reached runs; in any order.

A step is a record like any other, under (scope, plan, step). A plan's steps live as long as the plan is touched: each
call gives all of them their full retention again, so that step 1 cannot expire while step 5 is still being retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from onceward._core.operation import Found, NotFound, Outcome
from onceward._core.operation_flow import reconcile
from onceward._core.terms import Options
from onceward.adapters._transaction import join
from onceward.gate.call_factory import CallFactory, CallSpec, PreparedCall, unreachable
from onceward.gate.held_operation import HeldOperation
from onceward.gate.plan_calls import PlanCalls, StepOptions
from onceward.gate.record_view import RecordView, view

if TYPE_CHECKING:
    from onceward.gate import Gate


class Plan:
    """A named series of steps under a `Gate`."""

    def __init__(self, gate: Gate, call_factory: CallFactory, plan: str, options: Options) -> None:
        self._gate = gate
        self._steps = PlanCalls(call_factory, plan, options)

    def call(
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
        prepared = self._steps.prepare(step, call, options, awaits=False, joins=joins)
        if joins:
            joined = join(connection, self._gate.store)
            return self._gate.operate_joined(prepared, joined)
        self._touch(prepared)
        return self._gate.operate(prepared)

    def hold(
        self,
        step: str,
        *,
        request: Any = None,
        name: str = "",
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> HeldOperation | Outcome[Any]:
        """Claim a step whose work is more than one function call; call `end` when it is done."""
        call = CallSpec(unreachable, request, name, probe, marked)
        prepared = self._steps.prepare(step, call, options, awaits=False, joins=False)
        self._touch(prepared)
        return self._gate.held(prepared)

    def step(self, step: str, fn: Callable[..., Any], **options: Unpack[StepOptions]) -> Any:
        """Run a step once; the value alone."""
        return self.call(step, fn, **options).answer

    def reconcile(self, step: str, answer: Found | NotFound, *, fence: int | None = None) -> RecordView:
        """Decide a step that is in doubt: `Found(result)` settles it, `NOT_FOUND` releases it."""
        about = self._steps.about(step)
        return view(self._gate.drive(reconcile(about.request, answer, fence), about))

    def _touch(self, prepared: PreparedCall) -> None:
        touch = self._steps.touch(prepared.request, self._gate.environment.monotonic())
        if touch is not None:
            self._gate.drive(touch, prepared)
