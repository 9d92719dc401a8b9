"""Activities on a real Temporal server: retried by it and replayed by us, in both colours; and what is no result."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("temporalio", reason="in make test-agents")

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue, RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    UnsandboxedWorkflowRunner,
    Worker,
)

from onceward import current_operation
from onceward.agents import AgentGate, Tool, ToolCall, tool
from onceward.agents.temporal import AuthError, OncewardInterceptor, ValidationError
from onceward.errors import ConfigurationError, NothingHappened
from servers.temporal import running

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agents" / "temporal_activity.py"
PATIENCE = 120
"""Seconds; a limit for what hangs."""


@dataclass
class Step:
    """One activity that a workflow runs, and how."""

    name: str
    arguments: list[Any] = field(default_factory=list)
    seconds: float = 30.0
    heartbeat: float | None = None
    attempts: int = 4
    local: bool = False
    patience: float | None = None
    """`local_retry_threshold`: longer pauses are left to the server."""
    id: str | None = None
    final: list[str] = field(default_factory=list)
    """`non_retryable_error_types`."""
    again: bool = False
    """Continue as new once, and do the same again."""


@workflow.defn
class OneStep:
    """Runs one activity, and says what its workflow would read: the result, or the error's type and message."""

    @workflow.run
    async def run(self, step: Step) -> list[Any]:
        policy = RetryPolicy(
            initial_interval=timedelta(milliseconds=20), maximum_attempts=step.attempts,
            non_retryable_error_types=step.final or None,
        )  # fmt: skip
        common: Any = {"args": step.arguments, "retry_policy": policy}
        common["start_to_close_timeout"] = timedelta(seconds=step.seconds)
        try:
            if step.local:
                patience = None if step.patience is None else timedelta(seconds=step.patience)
                result = await workflow.execute_local_activity(
                    step.name, local_retry_threshold=patience, activity_id=step.id, **common
                )
            else:
                silence = None if step.heartbeat is None else timedelta(seconds=step.heartbeat)
                result = await workflow.execute_activity(
                    step.name, heartbeat_timeout=silence,
                    cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED, **common,
                )  # fmt: skip
        except ActivityError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError):
                return [cause.type, cause.message]
            return [type(cause).__name__, str(cause)]
        if step.again:
            workflow.continue_as_new(replace(step, again=False))
        return ["returned", result]


class Loses(Interceptor):
    """Around ours: loses the first answer of every activity, as a worker that dies before the server has it."""

    def __init__(self, times: int = 1) -> None:
        self.seen: list[Any] = []
        self.times = times

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        outer = self

        class Inbound(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                result = await self.next.execute_activity(input)
                outer.seen.append(result)
                if len(outer.seen) <= outer.times:
                    raise ConnectionError("the worker was gone before the server had the answer")
                return result

        return Inbound(next)


class World:
    """What happened outside."""

    def __init__(self) -> None:
        self.effects: list[Any] = []
        self.attempts = 0


def gate_with(**tools: Tool) -> AgentGate:
    return AgentGate("memory://", scope="test:temporal", tools=tools, wait=5)


@asynccontextmanager
async def a_worker(
    activities: Sequence[Callable[..., Any]], interceptors: Sequence[Interceptor], converter: DataConverter
) -> AsyncIterator[tuple[Client, str]]:
    client = await Client.connect(running().address, data_converter=converter)
    queue = f"queue-{id(activities)}-{asyncio.get_running_loop().time()}"
    with ThreadPoolExecutor(4) as threads:
        async with Worker(
            client, task_queue=queue, workflows=[OneStep], activities=activities, activity_executor=threads,
            interceptors=interceptors, workflow_runner=UnsandboxedWorkflowRunner(),
        ):  # fmt: skip
            yield client, queue


Meanwhile = Callable[[Client, "WorkflowHandle[Any, Any]"], Awaitable[Any]]


def run(
    step: Step,
    *activities: Callable[..., Any],
    gate: AgentGate | None = None,
    around: Sequence[Interceptor] = (),
    meanwhile: Meanwhile | None = None,
    converter: DataConverter = DataConverter.default,
    **options: Any,
) -> list[Any]:
    """Run a workflow of one step on a worker; `meanwhile` is done while it runs, or after it if it is over."""

    async def go() -> list[Any]:
        ours = [] if gate is None else [OncewardInterceptor(gate, **options)]
        async with a_worker(activities, [*around, *ours], converter) as (client, queue):
            handle = await client.start_workflow(OneStep.run, step, id=f"workflow-{queue}", task_queue=queue)
            if meanwhile is not None:
                handle = await meanwhile(client, handle) or handle
            result: list[Any] = await handle.result()
        if gate is not None:
            await gate.aclose()
        return result

    async def patiently() -> list[Any]:
        return await asyncio.wait_for(go(), PATIENCE)

    return asyncio.run(patiently())


def charging(world: World, colour: str, result: Any = "charged") -> Callable[..., Any]:
    """An activity with an effect, of either colour."""

    @activity.defn(name="charge")
    async def charge(order: str) -> Any:
        world.effects.append(order)
        return result

    @activity.defn(name="charge")
    def charge_blocking(order: str) -> Any:
        world.effects.append(order)
        return result

    return charge if colour == "async" else charge_blocking


colours = pytest.mark.parametrize("colour", ["async", "sync"])
places = pytest.mark.parametrize("local", [False, True], ids=["activity", "local activity"])


class TestRetriesOfTheServer:
    @colours
    @places
    def test_an_answer_that_was_lost_is_replayed(self, colour: str, local: bool) -> None:
        """
        The server retries an activity that has had its effect. It gets the first answer, and nothing happens again.
        """
        world = World()

        came_to = run(
            Step("charge", ["42"], local=local), charging(world, colour), gate=gate_with(), around=[Loses(times=2)]
        )

        assert came_to == ["returned", "charged"]
        assert world.effects == ["42"]

    @pytest.mark.parametrize(("id", "effects"), [("charge-42", 1), (None, 2)])
    def test_a_local_activity_that_is_retried_by_the_server_needs_an_id(self, id: str | None, effects: int) -> None:
        """
        A pause that is too long for the worker is left to the server, and the activity gets another id after it: the
        page says so. With an id of its own it stays what it was.
        """
        world, step = World(), Step("charge", ["42"], local=True, patience=0.001, id=id)

        came_to = run(step, charging(world, "async"), gate=gate_with(), around=[Loses()])

        assert came_to == ["returned", "charged"]
        assert world.effects == ["42"] * effects

    @pytest.mark.requirement("D75")
    @colours
    def test_without_the_key_the_retry_repeats_the_effect(self, colour: str) -> None:
        """
        The negative control: a framework's retry alone handles the backoff, and not the effect.
        """
        world = World()

        came_to = run(Step("charge", ["42"]), charging(world, colour), around=[Loses()])

        assert came_to == ["returned", "charged"]
        assert world.effects == ["42", "42"]

    @pytest.mark.fault("temporal-retries-what-is-in-doubt")
    @colours
    def test_a_blind_activity_that_failed_is_in_doubt_and_not_retried(self, colour: str) -> None:
        """
        The first failure is the activity's own. The second attempt finds doubt, and is the last: its text is ours.
        """
        world, seen = World(), _Attempts()

        came_to = run(Step("charge", ["42"]), _failing(world, colour), gate=gate_with(), around=[seen])

        assert world.effects == ["42"]
        assert seen.count == 2
        assert came_to[0] == "InDoubt"
        assert came_to[1].startswith("'charge' may already have happened")

    @colours
    def test_without_the_gate_a_failing_activity_has_its_effect_at_every_attempt(self, colour: str) -> None:
        """
        The negative control of the test before.
        """
        world = World()

        came_to = run(Step("charge", ["42"]), _failing(world, colour))

        assert world.effects == ["42"] * 4
        assert came_to[0] == "ConnectionError"

    @colours
    def test_a_keyed_activity_is_sent_again_with_the_same_key(self, colour: str) -> None:
        """
        `current_operation()` is there in the activity, also in its thread, and the retry's key is the first one's.
        """
        world = World()

        came_to = run(Step("charge", ["42"]), _failing(world, colour, keyed=True), gate=gate_with(charge=Tool("keyed")))

        assert came_to[0] == "ConnectionError"
        assert len(world.effects) == 4
        assert len(set(world.effects)) == 1

    def test_a_read_only_activity_is_left_alone(self) -> None:
        """
        Nothing is stored of it, whether a mapping or a decorator says so.
        """
        world = World()
        looks = tool("read-only")(charging(world, "async"))

        run(Step("charge", ["42"]), looks, gate=gate_with(), around=[Loses()])

        assert world.effects == ["42", "42"]

    def test_a_business_key_wins(self) -> None:
        """
        Two workflows that want the same order charged: one charge. The key is made from the argument's fields.
        """
        world = World()
        gate = gate_with(charge=Tool("blind", key="charge:{order_id}"))

        @activity.defn(name="charge")
        async def charge(request: Order) -> str:
            world.effects.append(request.order_id)
            return "charged"

        async def another(client: Client, handle: WorkflowHandle[Any, Any]) -> WorkflowHandle[Any, Any]:
            first = await handle.result()
            queue = (await handle.describe()).task_queue
            second = await client.start_workflow(OneStep.run, step, id=f"{handle.id}-2", task_queue=queue)
            assert await second.result() == first
            return second

        step = Step("charge", [{"order_id": "42", "amount": 5}])
        came_to = run(step, charge, gate=gate, meanwhile=another)

        assert came_to == ["returned", "charged"]
        assert world.effects == ["42"]


@dataclass
class Order:
    order_id: str
    amount: int


class _Attempts(Interceptor):
    """Counts attempts."""

    count = 0

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        self.count += 1
        return next


def _failing(world: World, colour: str, *, keyed: bool = False) -> Callable[..., Any]:
    """An activity that fails after its effect, every time."""

    def charge_all(order: str) -> None:
        operation = current_operation() if keyed else None
        world.effects.append(order if operation is None else operation.downstream_key("stripe"))
        raise ConnectionError("the line broke after the request was sent")

    @activity.defn(name="charge")
    async def charge(order: str) -> None:
        charge_all(order)

    @activity.defn(name="charge")
    def charge_blocking(order: str) -> None:
        charge_all(order)

    return charge if colour == "async" else charge_blocking


class TestTheFourthDocument:
    """
    "Framework retry policies handle backoff + jitter; your idempotency key handles the business effect. You need both."
    """

    @pytest.mark.requirement("D74")
    @pytest.mark.parametrize(
        ("error", "attempts"),
        [(ValidationError, 1), (AuthError, 1), (ConnectionError, 5)],
        ids=lambda value: getattr(value, "__name__", str(value)),
    )
    def test_the_named_errors_stop_the_policy_and_others_are_retried(
        self, error: type[Exception], attempts: int
    ) -> None:
        """
        The activity receives its key. `non_retryable_error_types=["ValidationError", "AuthError"]` stops at ours.
        """
        world = World()

        @activity.defn
        async def book_flight(flight_id: str, idempotency_key: str) -> str:
            world.effects.append(idempotency_key)
            raise error("no")

        came_to = run(
            Step("book_flight", ["LH1", "user-1:booking-7"], attempts=5, final=["ValidationError", "AuthError"]),
            book_flight,
            gate=gate_with(book_flight=Tool("keyed", key="book_flight:{idempotency_key}")),
        )

        assert came_to[0] == error.__name__
        assert world.effects == ["user-1:booking-7"] * attempts

    @pytest.mark.requirement("D74")
    @pytest.mark.parametrize("error", [ValidationError, AuthError])
    def test_the_named_errors_leave_no_doubt_behind(self, error: type[Exception]) -> None:
        """
        They say that nothing was done: a blind activity that raised one may be attempted again.
        """
        world = World()

        @activity.defn
        async def book_flight() -> str:
            world.attempts += 1
            if world.attempts == 1:
                raise error("not yet")
            return "booked"

        assert run(Step("book_flight"), book_flight, gate=gate_with()) == ["returned", "booked"]

    @pytest.mark.requirement("D74", "D75")
    def test_the_example_books_one_seat(self, tmp_path: Path) -> None:
        """
        Its policy retries the booking whose answer was lost, and one seat is booked. It runs again, and leaves nothing.
        """
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-W", "error", str(EXAMPLE)],
                cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip

            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.splitlines()[-3:] == [
                "seat 12A", "ValidationError: there is no flight XX1", "2 bookings, 1 seat"
            ]  # fmt: skip
        assert list(tmp_path.iterdir()) == []


class Booking(BaseModel):
    seat: str
    price: float


@dataclass
class Charge:
    order: str
    lines: list[int]


class TestResults:
    @pytest.mark.parametrize(
        ("value", "converter"),
        [
            (Charge("42", [1, 2]), DataConverter.default),
            (b"\x00\xff", DataConverter.default),
            (None, DataConverter.default),
            ({"ä": [1.5, None]}, DataConverter.default),
            (Booking(seat="12A", price=9.5), pydantic_data_converter),
        ],
        ids=["dataclass", "bytes", "none", "data", "pydantic"],
    )
    def test_a_replay_is_the_first_answer_byte_by_byte(self, value: Any, converter: DataConverter) -> None:
        """
        The payload that the server gets is the one that it would have had without the gate, the first time and later.
        """
        lost = Loses()
        plain = converter.payload_converter.to_payloads([value])[0]
        alone = run(Step("charge", ["42"]), charging(World(), "async", value), converter=converter)

        came_to = run(
            Step("charge", ["42"]), charging(World(), "async", value),
            gate=gate_with(), around=[lost], converter=converter,
        )  # fmt: skip

        assert [type(seen) for seen in lost.seen] == [RawValue, RawValue]
        assert [seen.payload for seen in lost.seen] == [plain, plain]
        assert came_to == alone

    def test_a_result_that_cannot_be_sent_is_not_made_again(self) -> None:
        """
        The worker fails on encoding it, after the effect. The retry is told that it was done, and its result not kept.
        """
        world = World()

        came_to = run(Step("charge", ["42"]), charging(world, "async", object()), gate=gate_with())

        assert world.effects == ["42"]
        assert came_to[0] == "NotReplayable"

    def test_a_codec_sees_what_is_stored(self) -> None:
        """
        With `codec=`, results are stored as Temporal stores them; a replay is decoded again.
        """
        gate, codec = gate_with(), Backwards()
        stored: list[Any] = []

        async def look(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
            await handle.result()
            stored.extend(await gate.awaiting.records.list())

        came_to = run(
            Step("charge", ["42"]), charging(World(), "async", "secret"),
            gate=gate, around=[Loses()], meanwhile=look, codec=codec,
        )  # fmt: skip

        assert came_to == ["returned", "secret"]
        assert len(stored) == 1
        assert "secret" not in str(stored[0].result)
        assert codec.decoded == 2


class Backwards(PayloadCodec):
    """Encrypts, after a fashion."""

    decoded = 0

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": b"binary/backwards"}, data=one.SerializeToString()[::-1]) for one in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        self.decoded += len(payloads)
        return [Payload.FromString(one.data[::-1]) for one in payloads]


class TestWorkflowRuns:
    @pytest.mark.parametrize(("per", "effects"), [("run", 2), ("workflow", 1)])
    def test_a_reset_finds_the_earlier_run_only_if_told_to(self, per: str, effects: int) -> None:
        """
        A reset is another run of the workflow. With per="workflow", its activities are those of the run before.
        """
        world = World()

        async def reset(client: Client, handle: WorkflowHandle[Any, Any]) -> WorkflowHandle[Any, Any]:
            await handle.result()
            began = await client.workflow_service.reset_workflow_execution(
                ResetWorkflowExecutionRequest(
                    namespace="default",
                    request_id="once",
                    reason="a test",
                    workflow_task_finish_event_id=4,
                    workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.result_run_id or ""),
                )
            )
            return client.get_workflow_handle(handle.id, run_id=began.run_id)

        came_to = run(Step("charge", ["42"]), charging(world, "async"), gate=gate_with(), meanwhile=reset, per=per)

        assert came_to == ["returned", "charged"]
        assert world.effects == ["42"] * effects

    @pytest.mark.parametrize(("per", "effects"), [("run", 2), ("workflow", 1)])
    def test_a_workflow_that_continues_as_new_means_its_activities_anew(self, per: str, effects: int) -> None:
        """
        The same call, wanted by two runs, is two effects. With per="workflow" the second is lost: the page warns.
        """
        world = World()

        came_to = run(Step("charge", ["42"], again=True), charging(world, "async"), gate=gate_with(), per=per)

        assert came_to == ["returned", "charged"]
        assert world.effects == ["42"] * effects


class TestSomebodyElseCompletes:
    @pytest.mark.parametrize(("kind", "handed_over"), [("blind", 1), ("repeatable", 2), (None, 2)])
    def test_a_blind_activity_is_handed_over_once(self, kind: str | None, handed_over: int) -> None:
        """
        Nobody completes the first attempt in time. The second one does not hand it over again, and is completed by its
        ids; a repeatable one is handed over again, as it is without the gate.
        """
        world, second = World(), asyncio.Event()

        class Seconds(Interceptor):
            def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
                if activity.info().attempt == 2:
                    second.set()
                return next

        @activity.defn
        async def approve() -> str:
            world.effects.append("mail to the approver")
            activity.raise_complete_async()

        async def complete(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
            await second.wait()
            one = client.get_async_activity_handle(workflow_id=handle.id, run_id=None, activity_id="1")
            await one.complete("approved")

        gate = None if kind is None else gate_with(approve=Tool(kind))  # type: ignore[arg-type]
        came_to = run(Step("approve", seconds=2), approve, gate=gate, around=[Seconds()], meanwhile=complete)

        assert came_to == ["returned", "approved"]
        assert len(world.effects) == handed_over


class TestCancellation:
    @colours
    def test_an_activity_hears_that_it_is_cancelled(self, colour: str) -> None:
        """
        It may undo something, and what it raises passes. Nobody knows what it had done: it is in doubt.
        """
        began, heard, ended = threading.Event(), [], threading.Event()
        gate = gate_with()

        @activity.defn(name="wait")
        async def wait() -> None:
            began.set()
            try:
                while True:
                    activity.heartbeat()
                    await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        @activity.defn(name="wait")
        def wait_blocking() -> None:
            began.set()
            try:
                while not ended.wait(0.05):
                    activity.heartbeat()
            except CancelledError:
                heard.append("cancelled")
                raise

        async def cancel(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
            await asyncio.to_thread(began.wait, PATIENCE)
            await handle.cancel()
            await handle.result()
            heard.extend(view.state for view in await gate.awaiting.records.list())

        try:
            fn = wait if colour == "async" else wait_blocking
            came_to = run(Step("wait", heartbeat=1), fn, gate=gate, meanwhile=cancel)
        finally:
            ended.set()

        assert came_to[0] == "CancelledError"
        assert heard == ["cancelled", "in_doubt"]


class TestAnotherAttemptIsAtWork:
    """In the context of an activity, without a server: its heartbeats and its cancellation are seen from outside."""

    @colours
    def test_whoever_waits_lets_the_server_know_and_keeps_the_details(self, colour: str) -> None:
        """
        The other holder takes longer than the heartbeat time-out. This attempt beats, with the details that the last
        attempt left, and gets the other's answer. It beats no more when its own activity runs.
        """
        beats: list[tuple[Any, ...]] = []

        async def go() -> Any:
            gate = gate_with(charge=Tool("blind", key="charge:{order}"))
            held = await gate.aopen_call(ToolCall("another", "charge", {"order": "42"}))
            enough = asyncio.Event()

            def beat(*details: Any) -> None:
                beats.append(details)
                if len(beats) == 6:
                    enough.set()

            waiting = asyncio.ensure_future(_attempt(gate, charging(World(), colour), "42", beat))
            await asyncio.wait([waiting, asyncio.ensure_future(enough.wait())], return_when=asyncio.FIRST_COMPLETED)
            await held.end("charged by another")
            result = await waiting
            await gate.aclose()
            return result

        assert asyncio.run(asyncio.wait_for(go(), PATIENCE)) == "charged by another"
        assert set(beats) == {("page 7",)}

    def test_a_blocking_activity_that_waits_hears_its_cancellation(self) -> None:
        """
        A worker cancels blocking activities in their threads, and one that waits has none yet.
        """

        async def go() -> None:
            gate = gate_with(charge=Tool("blind", key="charge:{order}"))
            held = await gate.aopen_call(ToolCall("another", "charge", {"order": "42"}))
            environment = ActivityEnvironment()
            waiting = asyncio.ensure_future(
                _attempt(gate, charging(World(), "sync"), "42", lambda *_: environment.cancel(), environment)
            )
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await held.end("charged by another")
            await gate.aclose()

        asyncio.run(asyncio.wait_for(go(), PATIENCE))

    def test_whoever_does_not_wait_is_retried_when_there_may_be_an_answer(self) -> None:
        """
        Retryable, and not before the time that our error says.
        """

        async def go() -> ApplicationError:
            gate = gate_with(charge=Tool("blind", key="charge:{order}", options={"in_flight": "refuse"}))
            held = await gate.aopen_call(ToolCall("another", "charge", {"order": "42"}))
            with pytest.raises(ApplicationError) as refused:
                await _attempt(gate, charging(World(), "async"), "42")
            await held.end("charged by another")
            await gate.aclose()
            return refused.value

        refused = asyncio.run(go())
        assert refused.type == "InFlight"
        assert not refused.non_retryable
        assert refused.next_retry_delay == timedelta(seconds=1)
        assert refused.details[0]["code"] == "in_flight"

    @pytest.mark.parametrize(
        ("start_to_close", "heartbeat", "lease", "wait"),
        [(30.0, None, 10.0, 12.5), (30.0, 6.0, 2.0, 5.0), (600.0, None, 60.0, 75.0), (2.0, None, 1.0, 1.0)],
    )
    def test_leases_and_waits_fit_the_time_outs(
        self, start_to_close: float, heartbeat: float | None, lease: float, wait: float
    ) -> None:
        """
        A lease is at most a third of the shortest time-out, a wait is longer than that, and at most half of the time.
        """
        interceptor = OncewardInterceptor(gate_with())
        info = replace(
            ActivityEnvironment().info,
            start_to_close_timeout=timedelta(seconds=start_to_close),
            heartbeat_timeout=None if heartbeat is None else timedelta(seconds=heartbeat),
        )

        options = interceptor.fitted(Tool("blind"), info).options

        assert (options["lease"], options["wait"]) == (lease, wait)


async def _attempt(
    gate: AgentGate,
    fn: Callable[..., Any],
    order: str,
    beat: Callable[..., None] | None = None,
    environment: ActivityEnvironment | None = None,
) -> Any:
    """One attempt, as a worker makes it."""
    environment = environment or ActivityEnvironment()
    environment.info = replace(
        ActivityEnvironment().info,
        activity_type="charge",
        start_to_close_timeout=timedelta(seconds=PATIENCE),
        heartbeat_timeout=None if beat is None else timedelta(seconds=0.2),
        heartbeat_details=["page 7"],
    )
    if beat is not None:
        environment.on_heartbeat = beat
    inbound = OncewardInterceptor(gate).intercept_activity(_Runs())
    with ThreadPoolExecutor(1) as threads:
        executor = None if asyncio.iscoroutinefunction(fn) else threads
        input = ExecuteActivityInput(fn=fn, args=[order], executor=executor, headers={})

        async def execute() -> Any:
            return await inbound.execute_activity(input)

        return await environment.run(execute)


class _Runs(ActivityInboundInterceptor):
    """The innermost: runs the function."""

    def __init__(self) -> None: ...

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        result = input.fn(*input.args)
        return await result if asyncio.iscoroutine(result) else result


class TestSetUp:
    def test_a_gate_of_another_kind_is_refused(self) -> None:
        """
        A worker would find out with its first activity.
        """
        with pytest.raises(ConfigurationError, match="AgentGate"):
            OncewardInterceptor("sqlite:///gate.db")  # type: ignore[arg-type]

    def test_what_a_key_belongs_to_is_one_of_two(self) -> None:
        """
        Anything else is refused, and said so.
        """
        with pytest.raises(ConfigurationError, match="'run' or 'workflow'"):
            OncewardInterceptor(gate_with(), per="activity")  # type: ignore[arg-type]

    def test_an_error_of_the_activity_is_told_from_ours(self) -> None:
        """
        An activity that raises one of our errors has raised it itself: it passes as it is.
        """

        @activity.defn(name="charge")
        async def charge(order: str) -> None:
            raise NothingHappened("the bank was closed")

        async def go() -> None:
            with pytest.raises(NothingHappened, match="bank was closed"):
                await _attempt(gate_with(), charge, "42")

        asyncio.run(go())
