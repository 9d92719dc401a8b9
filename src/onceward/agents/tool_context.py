"""
What the code of a tool can find out about its call: which run it is of, for the journal, and what it may say it cost.
"""

from __future__ import annotations

from onceward.agents.spend import PriceTag, current_price
from onceward.agents.tool_call import ToolCall
from onceward.journal.call_attempt import RunPosition, current_position


class ToolContext:
    """Context variables, for as long as a tool runs."""

    __slots__ = ("_position", "_price")

    def __init__(self) -> None:
        self._position, self._price = current_position.get(), current_price.get()

    def leave(self) -> None:
        """The tool has returned or raised. Not by tokens: it may be left in another context than it was entered in."""
        current_position.set(self._position)
        current_price.set(self._price)


def enter_tool(call: ToolCall, tag: PriceTag | None) -> ToolContext:
    """A tool is about to run."""
    before = ToolContext()
    current_position.set(RunPosition(call.run, call.turn, call.id))
    current_price.set(tag)
    return before
