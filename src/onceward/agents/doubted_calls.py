"""
Calls that the stored history takes for answered, and the store does not: somebody made a result of an error.

A callback or hook of the application may turn what a tool raised into a text for the model. The framework stores that
as the call's result, so by its history the next equal call is another one; but it is the same wish, and the call's
record is in doubt. For adapters whose frameworks have such hooks, before `number_in_history`.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceward.agents.agent_gate import AgentGate
from onceward.agents.tool_call import PastCall, ToolCall, key_of_call, number_in_history
from onceward.agents.tools import Tool


async def number_past_doubt(
    gate: AgentGate, call: ToolCall, tool: Tool, answers: Sequence[Sequence[PastCall]], at: int, id: str
) -> int:
    """The number of the call `id`, which is in the answer `at`; a call in doubt has come to no answer."""
    before = next((turn for turn in reversed(range(at)) if answers[turn]), None)
    if before is None or tool.key is not None:
        return number_in_history(answers, id)
    checked = []
    for past in answers[before]:
        number = number_in_history(answers, past.id)
        found = await gate.awaiting.records.get(key_of_call(call._replace(nth=number), tool)) if past.answered else None
        checked.append(past._replace(answered=past.answered and (found is None or found.state != "in_doubt")))
    return number_in_history([*answers[:before], checked, *answers[before + 1 :]], id)
