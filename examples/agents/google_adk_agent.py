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
from google.genai.types import Content, FunctionCall, Part

from onceward.agents import AgentGate
from onceward.agents.google_adk import OncewardPlugin

WHO = {"user_id": "ann", "session_id": "s-1"}
charged: list[str] = []
logging.getLogger("google_adk").setLevel(logging.CRITICAL)


class Script(BaseLlm):
    """Wants order 42 charged, and reports what it reads."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        answer = llm_request.contents[-1].parts[0].function_response
        call = Part(function_call=FunctionCall(name="charge", args={"order": "42"}))
        said = Part(text=f"The tool says: {answer.response}") if answer else call
        yield LlmResponse(content=Content(role="model", parts=[said]))


def charge(order: str) -> str:
    """Charge an order; the connection breaks after the charge."""
    charged.append(order)
    raise ConnectionError("the bank did not answer")


async def main(folder: str) -> None:
    async with AgentGate(f"sqlite:///{folder}/agent.db", scope="test:example") as gate:
        agent = LlmAgent(name="billing", model=Script(model="script"), tools=[charge])
        app = App(name="billing", root_agent=agent, plugins=[OncewardPlugin(gate, run="order-42")])
        runner = InMemoryRunner(app=app)
        await runner.session_service.create_session(app_name="billing", **WHO)
        asked = Content(role="user", parts=[Part(text="Charge order 42.")])
        for _ in range(2):
            try:
                async for event in runner.run_async(**WHO, new_message=asked):
                    if event.is_final_response() and event.content:
                        print(event.content.parts[0].text)
            except ConnectionError as error:
                print(f"interrupted: {error}")
    print(f"charges={len(charged)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(temporary))
