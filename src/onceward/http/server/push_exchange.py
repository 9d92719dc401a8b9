"""
A keyed request whose handler sends its response itself and runs to its end inside the gate: ASGI, async Django views.

The handler is passed to the gate. Its task can be cancelled or closed wherever it waits; the gate ends the
claim in each of these cases. It may run the handler again, if the route has a retry policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from onceward._core.flow import Raised
from onceward._core.operation import Operation
from onceward._core.record_types import new_tuple
from onceward._core.reply import Reply
from onceward.gate.call_factory import PreparedCall
from onceward.http.server.handler_outcomes import UnstoredResponse
from onceward.http.server.handler_run import HandlerReport
from onceward.http.server.keyed_exchange_async import AsyncKeyedExchange

RunHandler = Callable[[Operation], Awaitable[HandlerReport]]
"""Runs the handler. If it raises, there is no response."""


class PushExchange(AsyncKeyedExchange):
    """A keyed request whose handler runs to its end inside the gate."""

    async def run(self, work: RunHandler) -> Reply | None:
        """Claim it and run the handler. The reply to send in place of the handler's response; None: send that."""
        self._work = work
        key, plan = self.admitted.identity
        try:
            if plan is None:
                request, _, probe = self._ready
                outcome = await self.gate.operate(new_tuple(PreparedCall, (request, self._once, probe)))
            else:
                outcome = await self.gate.plan(plan).call(key, self._once, **self.step_arguments())
        except BaseException as error:
            raised = error
        else:
            return self.response_for_outcome(outcome)
        finally:
            del self._work  # It knows us: a connection's own.
        return self.response_for_error(raised)

    async def _once(self, operation: Operation) -> Reply | UnstoredResponse:
        """Run the handler once. Called by the gate."""
        self.start(operation)
        try:
            how = self.result_for_gate(await self._work(operation))
        except GeneratorExit:
            raise  # Nobody waits for it any more, and nothing can be awaited: the gate takes care of the record.
        except BaseException as error:
            how = self.failure_for_gate(error)
        if isinstance(how, Raised):
            raise how.error
        value: Reply | UnstoredResponse = how.value
        return value
