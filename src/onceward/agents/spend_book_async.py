# blocking half: spend_book.py; run_on_store_async=run_on_store, store_runner_async=store_runner
"""
Reserves and settles prices in a gate's store. The rules are in `_core/spend_state.py`.

Reserving fails closed: if the store does not respond, the call is not made. What follows the call only keeps books: if
it fails, the price stays reserved, until there is no room left and the call's own record is asked.
"""

from __future__ import annotations

import logging

from onceward._core import record
from onceward._core.operation import Operation
from onceward._core.spend_state import NoRoom, give_back, look, reserve, settle
from onceward.agents.spend import PriceTag, Spend, SpendView, tag_of
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool
from onceward.gate.gate_async import AsyncGate
from onceward.gate.store_runner_async import run_on_store_async

_log = logging.getLogger("onceward.agents")


class AsyncSpendBook:
    """What is spent through one gate."""

    def __init__(self, gate: AsyncGate, spend: Spend) -> None:
        self._gate, self._spend = gate, spend

    def tag(self, call: ToolCall, tool: Tool, operation: Operation) -> PriceTag:
        """The price of a call."""
        return tag_of(self._spend, self._gate.scope, call, tool, operation)

    async def reserve(self, tag: PriceTag) -> None:
        """Reserve a price; `SpendExhausted` if it does not fit, `StoreUnavailable` if that cannot be known."""
        state = await run_on_store_async(
            self._gate.store, reserve(tag.cap, tag.reservation), environment=self._gate.environment
        )
        if isinstance(state, NoRoom):
            raise self._spend.refusal(state, tag.reservation.amount)

    async def end(self, tag: PriceTag, *, ran: bool) -> None:
        """
        The call is over: settle its price if it `ran` to its end, or give it back if it was released. Never raises.

        Whatever is in doubt, or belongs to another claim by now, keeps its price.
        """
        ended = tag.operation.record
        if ran or record.is_settled(ended):
            flow = settle(tag.cap, tag.reservation, tag.actual)
        elif record.is_released(ended):
            flow = give_back(tag.cap, tag.reservation)
        else:
            return
        try:
            await run_on_store_async(self._gate.store, flow, environment=self._gate.environment)
        except Exception as error:
            _log.warning(
                "onceward: the price of %s could not be settled, and stays reserved (%s: %s)",
                tag.operation.digest,
                type(error).__name__,
                error,
            )

    async def view(self, run: str | None) -> SpendView:
        """What was spent."""
        cap = self._spend.cap(self._gate.scope, run)
        state = await run_on_store_async(self._gate.store, look(cap), environment=self._gate.environment)
        return self._spend.view(state)
