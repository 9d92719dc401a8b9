"""
An agent of the OpenAI Agents SDK that is asked twice, because its first process died: the customer is charged once.

The model is a script, so that this runs anywhere. The session is saved after each turn, so what happened in a turn that
was never saved is gone for the SDK. The gate has it: the run is the order, and the same call is the same operation.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from agents.testing import ScriptedModel, assistant_message, function_call

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from onceward.agents import AgentGate, Tool
from onceward.agents.openai_agents import gated

charges: list[str] = []
"""The bank: the effect that must happen once."""


@function_tool
async def charge(order_id: str, amount: str) -> str:
    """Charge the customer of an order."""
    charges.append(f"{order_id}: {amount}")
    return f"charged {amount}"


@function_tool
async def find_charge(order_id: str) -> str:
    """See whether an order was charged."""
    return ", ".join(charges)


async def ask(folder: Path, process: int) -> str:
    """What every process does. A crash is a session that has not heard of the turn."""
    tools = {"charge": Tool("blind", check="find_charge"), "find_charge": Tool("read-only")}
    wanted = function_call("charge", {"order_id": "42", "amount": "12.50"}, call_id=f"call_{process}")
    model = ScriptedModel([[wanted], [assistant_message("Order 42 is paid.")]])
    async with AgentGate(f"sqlite:///{folder}/gate.db", scope="test:example", tools=tools) as gate:
        agent = Agent(name="billing", model=model, tools=gated(gate, "order-42", [charge, find_charge]))
        session = SQLiteSession("order-42", folder / f"session-{process}.db")
        return str((await Runner.run(agent, "Charge order 42.", session=session)).final_output)


def main() -> None:
    """Twice, as after a crash before the session was saved."""
    set_tracing_disabled(True)
    with tempfile.TemporaryDirectory() as folder:
        for process in (1, 2):
            print(f"process {process}:", asyncio.run(ask(Path(folder), process)))
    print(f"2 processes, {len(charges)} charge")


main()
