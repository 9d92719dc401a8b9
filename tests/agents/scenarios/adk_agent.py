"""
A Google ADK app whose sessions are in a file: resumed as an invocation; or, blocking, asked once more.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from typing import Any

from crash_kit import Kit
from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from onceward.agents.google_adk import OncewardPlugin

warnings.filterwarnings("ignore", message=r"\[EXPERIMENTAL\]")
kit = Kit()
where = {"user_id": "ann", "session_id": "order-42"}
asked = types.Content(role="user", parts=[types.Part(text="Charge order 42, and tell them.")])


class Scripted(BaseLlm):
    """Two calls in one answer, then an end; ADK makes up the ids."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        kit.model_reads([part.function_response.response for part in parts if part.function_response])
        answer = [types.Part(text="done")]
        if any(part.function_response for part in parts):
            kit.die_at("saved")
        else:
            calls = [types.FunctionCall(name=name, args={"order": "42"}) for name in ("notify", "charge")]
            answer = [types.Part(function_call=call) for call in calls]
        yield LlmResponse(content=types.Content(role="model", parts=answer))


notified: asyncio.Event
"""The tools of one answer run side by side: here, `charge` begins when `notify` has ended."""


async def notify(order: str) -> dict[str, str]:
    """The other call."""
    return kit.notify(order)


async def charge(order: str) -> dict[str, str]:
    """The call that a process dies in."""
    if not kit.restarted:
        await notified.wait()
    return kit.charge(order)


def after_tool(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
    """The answer is known, and not yet saved."""
    if tool.name == "notify":
        notified.set()
    else:
        kit.die_at("answer")


async def prepare(*_: Any) -> None:
    """Events belong to the loop that they are used in."""
    global notified
    notified = asyncio.Event()


gate = kit.gate()
agent = LlmAgent(
    name="billing", model=Scripted(model="scripted"), tools=[notify, charge],
    before_agent_callback=lambda callback_context: prepare(), after_tool_callback=after_tool,
)  # fmt: skip
app = App(
    name="billing",
    root_agent=agent,
    plugins=[OncewardPlugin(gate, None if kit.awaits else "order-42")] if gate is not None else [],
    resumability_config=ResumabilityConfig(is_resumable=True) if kit.awaits else None,
)
sessions = SqliteSessionService(str(kit.folder / "sessions.db"))
runner = Runner(app=app, session_service=sessions)


async def begin() -> dict[str, Any]:
    """What is asked of the runner: the invocation that was interrupted, or the user's message."""
    session = await sessions.get_session(app_name="billing", **where)
    if session is None:
        await sessions.create_session(app_name="billing", **where)
    if session is not None and session.events and kit.awaits:
        return {"invocation_id": session.events[-1].invocation_id}
    return {"new_message": asked}


async def work() -> None:
    """Awaiting."""
    async for _ in runner.run_async(**where, **await begin()):
        pass


if kit.awaits:
    asyncio.run(work())
else:
    for _ in runner.run(**where, **asyncio.run(begin())):
        pass
kit.finished()
