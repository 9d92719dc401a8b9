"""A Google ADK app that is interrupted after a charge, and asked once more: one charge. Its model is a script."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, FunctionCall, Part, UserContent

from onceward.agents import AgentGate
from onceward.agents.google_adk import OncewardPlugin

WHO = {"user_id": "ann", "session_id": "s-1"}
charged: list[str] = []


class Script(BaseLlm):
    """Wants order 42 charged, and reports what it reads."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        said = Part(function_call=FunctionCall(name="charge", args={"order": "42"}))
        if answer := llm_request.contents[-1].parts[0].function_response:
            said = Part(text=f"The tool says: {answer.response}")
        yield LlmResponse(content=Content(role="model", parts=[said]))


def charge(order: str) -> str:
    """Charge an order; the connection breaks after the charge."""
    charged.append(order)
    raise ConnectionError("the bank did not answer")


async def main(folder: str) -> None:
    """Ask, be interrupted, and ask again."""
    async with AgentGate(f"sqlite:///{folder}/agent.db", scope="test:example") as gate:
        agent = LlmAgent(name="billing", model=Script(model="script"), tools=[charge])
        runner = InMemoryRunner(app=App(name="billing", root_agent=agent, plugins=[OncewardPlugin(gate, "order-42")]))
        await runner.session_service.create_session(app_name="billing", **WHO)
        for _ in range(2):
            try:
                async for event in runner.run_async(**WHO, new_message=UserContent("Charge order 42.")):
                    if event.is_final_response() and event.content:
                        print(event.content.parts[0].text)
            except ConnectionError as error:
                print(f"interrupted: {error}")
    print(f"charges={len(charged)}")


if __name__ == "__main__":
    logging.disable()  # ADK logs errors that are raised as well.
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(temporary))
