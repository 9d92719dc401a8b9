"""
A handler that pushes its answer out, under an awaiting gate: ASGI's, and Django's async views.

It is given to the gate's `call`. A task can be cancelled, or closed, wherever it waits; the gate ends the claim in each
of these cases, and it may call the handler again, where the route has a policy for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from onceward._core.flow import Raised
from onceward._core.operation import Operation, Outcome
from onceward._core.reply import Reply
from onceward.http.server.handler_outcomes import UnstoredResponse
from onceward.http.server.handler_run import HandlerReport
from onceward.http.server.keyed_exchange_async import AsyncKeyedExchange

RunHandler = Callable[[Operation], Awaitable[HandlerReport]]
"""The handler, as its wire runs it: what it raises has no answer."""


class PushExchange(AsyncKeyedExchange):
    """A keyed request whose handler runs to its end inside the gate."""

    async def run(self, work: RunHandler) -> Reply | None:
        """Claim it and run the handler. What its client gets in place of the handler's answer; None: that."""
        self._work = work
        try:
            outcome = await self._called()
        except BaseException as error:
            struck = error
        else:
            return self.given(outcome)
        return self.refused(struck)

    def _called(self) -> Awaitable[Outcome[Any]]:
        gate, claim = self.claim_arguments()
        key, plan = self.admitted.identity
        if plan is None:
            return gate.call_on(self.admitted.terms, key, self._once, **claim)
        return gate.plan(plan).call(key, self._once, marked=False, **claim, **self.admitted.options)

    async def _once(self, operation: Operation) -> Reply | UnstoredResponse:
        """What the gate calls."""
        self.start(operation)
        try:
            how = self.result_for_gate(await self._work(operation))
        except GeneratorExit:
            raise  # Nobody waits for it any more, and nothing can be awaited: the gate sees to the record.
        except BaseException as error:
            how = self.failure_for_gate(error)
        if isinstance(how, Raised):
            raise how.error
        value: Reply | UnstoredResponse = how.value
        return value
