"""
A Pydantic AI agent that is interrupted after a charge, and started again from its prompt: one charge.

The model is a script, so that this runs anywhere. `pip install 'onceward[pydantic-ai]'`
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from onceward.agents import AgentGate, Tool
from onceward.agents.pydantic_ai import Onceward

charged: list[str] = []
"""The outside world."""


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Wants order 42 charged, and reports what it reads."""
    answers = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if answers:
        return ModelResponse([TextPart(f"The tool says: {answers[0].content}")])
    return ModelResponse([ToolCallPart("charge", {"order": "42"})])  # With a new id, whenever it is asked.


def charge(order: str) -> str:
    """Charge an order. The first time, the connection breaks after the charge."""
    charged.append(order)
    if len(charged) == 1:
        raise ConnectionError("the bank did not answer")
    return "charged"


def find_charge(order: str) -> bool:
    """Whether an order was charged."""
    return order in charged


def main(folder: Path) -> None:
    """Ask, be interrupted, and ask again."""
    tools = {"charge": Tool("blind", check="find_charge"), "find_charge": Tool("read-only")}
    with AgentGate(f"sqlite:///{folder}/agent.db", scope="test:example", tools=tools) as gate:
        agent = Agent(FunctionModel(model), tools=[charge, find_charge], capabilities=[Onceward(gate)])
        for _ in range(2):
            try:
                print(agent.run_sync("Charge order 42.", conversation_id="order-42").output)
            except ConnectionError as error:
                print(f"interrupted: {error}")
    print(f"charges={len(charged)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
