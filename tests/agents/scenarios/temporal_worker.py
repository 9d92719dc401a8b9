"""
A worker of Temporal and its workflow, an agent's loop: killed in an activity, and started again by whoever watches it.

The server lives on, and has the activity attempted again when its time is up. `AGENT_TAKEOVER=lease` makes the worker
that comes next one of another host, which cannot see that the first one is dead.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from crash_kit import Kit
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    UnsandboxedWorkflowRunner,
    Worker,
)

from onceward.agents import AgentGate, Tool
from onceward.agents.temporal import OncewardInterceptor

kit = Kit()
ORDER = "order-42"
ONCE_DEAD = timedelta(seconds=6)
"""After this the server takes an attempt for dead."""


class DiesAfterAnswers(Interceptor):
    """Around ours: the answer is known here, and the server does not have it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _DiesAfterAnswer(next)


class _DiesAfterAnswer(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        result = await self.next.execute_activity(input)
        if activity.info().activity_type == "charge":
            kit.die_at("answer")
        return result


@activity.defn(name="model")
async def model(messages: list[str]) -> list[str]:
    """The scripted model: two tools in its first answer, none in the second."""
    kit.model_reads(messages)
    if len(messages) > 1:
        kit.die_at("saved")
        return []
    return ["notify", "charge"]


@activity.defn(name="notify")
async def notify(order: str) -> dict[str, str]:
    return kit.notify(order)


@activity.defn(name="charge")
async def charge(order: str) -> dict[str, str]:
    return kit.charge(order)


@activity.defn(name="notify")
def notify_blocking(order: str) -> dict[str, str]:
    return kit.notify(order)


@activity.defn(name="charge")
def charge_blocking(order: str) -> dict[str, str]:
    return kit.charge(order)


@workflow.defn
class Agent:
    """Asks the model, calls its tools, and asks again until it wants none."""

    @workflow.run
    async def run(self, order: str) -> int:
        messages = [f"charge {order}"]
        while calls := await self._activity("model", messages):
            for name in calls:  # One after the other: the first has ended when the second begins.
                try:
                    messages.append(str(await self._activity(name, order)))
                except ActivityError as error:
                    cause = error.cause
                    messages.append(cause.message if isinstance(cause, ApplicationError) else str(cause))
        return len(messages)

    async def _activity(self, name: str, argument: Any) -> Any:
        return await workflow.execute_activity(
            name, argument, start_to_close_timeout=ONCE_DEAD, result_type=None,
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=50), maximum_attempts=2),
        )  # fmt: skip


def interceptors(gate: AgentGate | None) -> list[Interceptor]:
    return [DiesAfterAnswers()] + ([] if gate is None else [OncewardInterceptor(gate)])


def gate() -> AgentGate | None:
    if os.environ.get("AGENT_TAKEOVER") != "lease":
        return kit.gate(model=Tool("read-only"))
    charge = Tool(kit.kind, check="find_charge", options={"takeover": "lease"})  # type: ignore[arg-type]
    return kit.gate(model=Tool("read-only"), charge=charge)


async def main() -> None:
    client = await Client.connect(os.environ["AGENT_TEMPORAL"])
    name = f"agent-{kit.folder.name}-{kit.folder.stat().st_ino}"
    gated = gate()
    activities = [model, notify, charge] if kit.awaits else [model, notify_blocking, charge_blocking]
    with ThreadPoolExecutor(2) as threads:
        async with Worker(
            client, task_queue=name, workflows=[Agent], activities=activities, activity_executor=threads,
            interceptors=interceptors(gated), workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=0,  # Otherwise the server waits ten seconds for the worker that knew the workflow.
        ):  # fmt: skip
            if kit.restarted:
                await client.get_workflow_handle(name).result()
            else:
                await client.execute_workflow(Agent.run, ORDER, id=name, task_queue=name)
    if gated is not None:
        await gated.aclose()
    kit.finished()


asyncio.run(main())
os._exit(0)  # Threads of Temporal's may abort an interpreter that ends in the usual way: temporalio/sdk-python#300.
