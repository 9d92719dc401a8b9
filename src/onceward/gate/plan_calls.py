"""
What both colours of `Plan` share: from a step to its prepared call.
"""

from __future__ import annotations

from typing import Any, TypedDict

from onceward._core.flow import Extend, Flow
from onceward._core.keys import KEY_PARTS, check_key, plan_family
from onceward._core.operation_flow import OperationRequest
from onceward._core.terms import CallOptions, Options
from onceward.gate.call_factory import STEP, CallFactory, CallSpec, PreparedCall

TOUCH_INTERVAL_SECONDS = 1.0
"""Seconds between two touches of a plan by one `Plan` object: touching is a write, a replay is none."""


class StepOptions(CallOptions, total=False):
    """What may be said about one step."""

    connection: Any
    """The connection whose transaction the step shares, as in `gate.atomic`."""


class StepIdentity(TypedDict):
    """What kind of record a step is, of which plan, and how its caller names it."""

    kind: str
    family: bytes
    given: str


class PlanCalls:
    """From a step to its call, for both colours."""

    def __init__(self, call_factory: CallFactory, plan: str, options: Options) -> None:
        self._call_factory = call_factory
        self.plan = call_factory.stored_key(plan)
        self._given = plan
        self._options = options
        self._family = plan_family(call_factory.scope, self.plan)
        self._touched: float | None = None
        call_factory.agreed(options)

    def prepare(self, step: str, call: CallSpec, options: Options, *, awaits: bool, joins: bool) -> PreparedCall:
        """One step, ready to be driven."""
        parts, changes = (self.plan, check_key(step)), {**self._options, **options}
        naming: StepIdentity = {"kind": STEP, "family": self._family, "given": f"{self._given}{KEY_PARTS}{step}"}
        if joins:
            return self._call_factory.prepare_joined(parts, call, changes, awaits=awaits, **naming)
        return self._call_factory.prepare(parts, call, changes, awaits=awaits, inside=True, **naming)

    def about(self, step: str) -> PreparedCall:
        """Only the name of a step, for deciding it."""
        return self._call_factory.about((self.plan, check_key(step)), STEP)

    def touch(self, request: OperationRequest, now: float) -> Flow[None] | None:
        """The flow that lengthens the life of the plan's steps; None: that was done just now."""
        if self._touched is not None and now - self._touched < TOUCH_INTERVAL_SECONDS:
            return None
        return self._touch(request, now)

    def _touch(self, request: OperationRequest, now: float) -> Flow[None]:
        yield Extend("touch", self._family, request.terms.retain, request.terms.forget)
        self._touched = now
