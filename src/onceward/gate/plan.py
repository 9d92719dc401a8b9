"""
A plan: a named series of steps. What settled replays, what failed or was never reached runs; in any order.

A step is a record like any other, under (scope, plan, step). A plan's steps live as long as the plan is touched: each
call gives all of them their full retention again, so that step 1 cannot expire while step 5 is still being retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from onceward._core.engine import Ask, reconcile
from onceward._core.flow import MONOTONIC, Extend, Flow
from onceward._core.inside import operation_flow
from onceward._core.joined import operate_joined
from onceward._core.keys import check_key, record_id
from onceward._core.operation import Found, NotFound, Outcome
from onceward._core.terms import CallOptions, Options
from onceward.gate.asking import STEP, Asking, Called, unreachable
from onceward.gate.holding import AsyncHolding, Holding
from onceward.gate.joining import join, join_async
from onceward.gate.records import RecordView, view

if TYPE_CHECKING:
    from onceward.gate.awaiting import AsyncGate
    from onceward.gate.blocking import Gate


TOUCH_AT_MOST_EVERY = 1.0
"""Seconds between two touches of a plan by one `Plan` object: touching is a write, a replay is none."""


class StepOptions(CallOptions, total=False):
    """What may be said about one step."""

    connection: Any
    """The connection whose transaction the step shares, as in `gate.atomic`."""


class _Naming(TypedDict):
    """What kind of record a step is, of which plan, and how its caller names it."""

    kind: str
    family: bytes
    given: str


class _Steps:
    """What both colours share: from a step to its flow."""

    def __init__(self, asking: Asking, plan: str, options: Options) -> None:
        self._asking = asking
        self.plan = asking.stored_key(plan)
        self._given = plan
        self._options = options
        self._family = record_id("plan", asking.scope, self.plan)
        self._touched: float | None = None
        asking.agreed(options)

    def called(
        self,
        step: str,
        fn: Callable[..., Any],
        request: Any,
        name: str | None,
        probe: Callable[..., Any] | None,
        marked: bool | None,
        options: Options,
        *,
        awaits: bool,
        joins: bool,
    ) -> Called:
        """One step, ready to be driven."""
        parts, changes = (self.plan, check_key(step)), {**self._options, **options}
        naming: _Naming = {"kind": STEP, "family": self._family, "given": f"{self._given} / {step}"}
        if joins:
            return self._asking.joined(parts, fn, request, name, changes, **naming)
        return self._asking.called(
            parts, fn, request, name, probe, marked, changes, awaits=awaits, inside=True, **naming
        )

    def about(self, step: str) -> Called:
        """Only the name of a step, for deciding it."""
        return self._asking.about((self.plan, check_key(step)), STEP)

    def flow(self, ask: Ask) -> Flow[Outcome[Any]]:
        """Touch the plan, then run the step."""
        now = yield MONOTONIC
        if self._touched is None or now - self._touched >= TOUCH_AT_MOST_EVERY:
            yield Extend("touch", self._family, ask.terms.retain, ask.terms.forget)
            self._touched = now
        return (yield from operation_flow(ask))


class Plan:
    """A named series of steps under a blocking gate."""

    def __init__(self, gate: Gate, asking: Asking, plan: str, options: Options) -> None:
        self._gate = gate
        self._steps = _Steps(asking, plan, options)

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
        called = self._steps.called(step, fn, request, name, probe, marked, options, awaits=False, joins=joins)
        if joins:
            joined = join(connection, self._gate.store)
            return self._gate.drive(operate_joined(called.ask), called, joined)
        return self._gate.drive(self._steps.flow(called.ask), called)

    def hold(
        self,
        step: str,
        *,
        request: Any = None,
        name: str = "",
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> Holding | Outcome[Any]:
        """Same as `Gate.hold`, for a step."""
        steps = self._steps
        called = steps.called(step, unreachable, request, name, probe, marked, options, awaits=False, joins=False)
        return self._gate.held(steps.flow(called.ask), called)

    def step(self, step: str, fn: Callable[..., Any], **options: Unpack[StepOptions]) -> Any:
        """Same as `call`, but returns the value alone."""
        return (self.call(step, fn, **options)).answer

    def reconcile(self, step: str, answer: Found | NotFound, *, fence: int | None = None) -> RecordView:
        """Decide a step that is in doubt: `Found(result)` settles it, `NOT_FOUND` releases it."""
        about = self._steps.about(step)
        return view(self._gate.drive(reconcile(about.ask, answer, fence), about))


class AsyncPlan:
    """Same as `Plan`, but awaits."""

    def __init__(self, gate: AsyncGate, asking: Asking, plan: str, options: Options) -> None:
        self._gate = gate
        self._steps = _Steps(asking, plan, options)

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
        """Same as `Plan.call`, but awaits."""
        joins = connection is not None
        called = self._steps.called(step, fn, request, name, probe, marked, options, awaits=True, joins=joins)
        if joins:
            joined = join_async(connection, self._gate.store)
            return await self._gate.drive(operate_joined(called.ask), called, joined)
        return await self._gate.drive(self._steps.flow(called.ask), called)

    async def hold(
        self,
        step: str,
        *,
        request: Any = None,
        name: str = "",
        probe: Callable[..., Any] | None = None,
        marked: bool | None = None,
        **options: Unpack[Options],
    ) -> AsyncHolding | Outcome[Any]:
        """Same as `Plan.hold`, but awaits."""
        steps = self._steps
        called = steps.called(step, unreachable, request, name, probe, marked, options, awaits=True, joins=False)
        return await self._gate.held(steps.flow(called.ask), called)

    async def step(self, step: str, fn: Callable[..., Any], **options: Unpack[StepOptions]) -> Any:
        """Same as `Plan.step`, but awaits."""
        return (await self.call(step, fn, **options)).answer

    async def reconcile(self, step: str, answer: Found | NotFound, *, fence: int | None = None) -> RecordView:
        """Same as `Plan.reconcile`, but awaits."""
        about = self._steps.about(step)
        return view(await self._gate.drive(reconcile(about.ask, answer, fence), about))
