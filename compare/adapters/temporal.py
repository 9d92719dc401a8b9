"""temporalio: a workflow with one activity under a workflow id, which is its key; worker and client in one process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from compare.place import Place, Request, Work

HOLDS_SECONDS = 60.0
"""How long an activity may take before the server gives it to another worker, unless the question says."""


# what a user adds
@workflow.defn
class Order:
    """One activity. The server repeats it until it succeeds, as it does by default."""

    @workflow.run
    async def run(self, key: str, request: Request, seconds: float) -> Any:
        """Wait for it."""
        return await workflow.execute_activity(
            "charge", args=[key, request], start_to_close_timeout=timedelta(seconds=seconds)
        )


async def ordered(client: Client, queue: str, key: str, request: Request, seconds: float) -> Any:
    """Start it, or find the one that was started under this id."""
    try:
        handle = await client.start_workflow(
            Order.run, args=[key, request, seconds], id=f"{queue}:{key}", task_queue=queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )  # fmt: skip
    except WorkflowAlreadyStartedError:
        handle = client.get_workflow_handle(f"{queue}:{key}")
    return await handle.result()


# until here


@workflow.defn
class Steps:
    """Three activities."""

    @workflow.run
    async def run(self) -> list[Any]:
        """One after the other."""
        timeout = timedelta(seconds=2)
        names = ("one", "two", "three")
        return [await workflow.execute_activity("step", name, start_to_close_timeout=timeout) for name in names]


class Temporal:
    """A loop in a thread, with a worker on it."""

    def __init__(self, place: Place, work: Callable[[str], Any] | Work) -> None:
        self._seconds = place.lease or HOLDS_SECONDS
        self.queue = place.folder.name  # All questions are asked on one server.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

        @activity.defn(name="charge")
        def charge(key: str, request: Request) -> Any:
            assert isinstance(work, Work)
            return work(key, request)

        @activity.defn(name="step")
        def step(name: str) -> Any:
            assert not isinstance(work, Work)
            return work(name)

        async def begin() -> Client:
            client = await Client.connect(place.url)
            worker = Worker(
                client, task_queue=self.queue, workflows=[Order, Steps], activities=[charge, step],
                activity_executor=ThreadPoolExecutor(8), workflow_runner=UnsandboxedWorkflowRunner(),
            )  # fmt: skip
            self._running = asyncio.ensure_future(worker.run())
            return client

        self.client = self.wait(begin())

    def wait(self, awaitable: Any) -> Any:
        """For what the loop does."""
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(45)

    def call(self, key: Any, request: Request) -> Any:
        """Run it once."""
        return self.wait(ordered(self.client, self.queue, key, request, self._seconds))

    def close(self) -> None:
        """The worker goes with the process."""


def make(place: Place, work: Work) -> Temporal:
    """On its development server."""
    return Temporal(place, work)


def steps(place: Place, work: Callable[[str], Any]) -> Callable[[], Any]:
    """The workflow of three activities."""
    temporal = Temporal(place, work)
    name = f"{temporal.queue}:order-17"

    async def flow() -> Any:
        try:
            policy = WorkflowIDReusePolicy.REJECT_DUPLICATE
            handle: Any = await temporal.client.start_workflow(
                Steps.run, id=name, task_queue=temporal.queue, id_reuse_policy=policy
            )
        except WorkflowAlreadyStartedError:
            handle = temporal.client.get_workflow_handle(name)
        return await handle.result()

    return lambda: temporal.wait(flow())
