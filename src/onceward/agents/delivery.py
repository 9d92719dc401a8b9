# Made from delivery_async.py by `make halves`: change that file, not this one.
"""
Which calls of a run were delivered: a record for each, in the gate's own store, so that every process sees them.

The n-th equal call is looked for in steps that double, and then between: a thousand cost about twenty looks.
"""

from __future__ import annotations

from typing import Any

from onceward.agents.tool_call import ToolCall, delivery_key, nothing
from onceward.gate.gate import Gate


def delivered_before(gate: Gate, run: str, tool: str, arguments: Any) -> int:
    """How many equal calls were delivered, in whatever process."""
    asked = ToolCall(run, tool, arguments)
    low, high = 0, 1
    while _is_delivered(gate, asked._replace(nth=high - 1)):
        low, high = high, high * 2
    while low + 1 < high:
        middle = (low + high) // 2
        if _is_delivered(gate, asked._replace(nth=middle - 1)):
            low = middle
        else:
            high = middle
    return low


def mark_delivered(gate: Gate, call: ToolCall) -> None:
    """Note that the answer of a call was delivered. Noting it twice is the same as once."""
    gate.call(delivery_key(call), nothing, name="delivered", guarantee="repeatable")


def _is_delivered(gate: Gate, call: ToolCall) -> bool:
    return gate.records.get(delivery_key(call)) is not None
