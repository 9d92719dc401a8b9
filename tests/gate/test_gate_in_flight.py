"""While another holder runs it: wait for its answer, refuse, or accept. And crowds under one key."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onceward import AsyncGate, ConfigurationError, Gate, InFlight
from onceward._core.terms import WAITERS_MAX
from onceward.errors import Fault, RetryAdvice


def while_running(world: Any, call: Any, key: str = "charge:1") -> Any:
    """What `call` hears while another gate is in the middle of that key."""
    heard: list[Any] = []

    def pay() -> str:
        heard.append(world.hear(call))
        return "ch_1"

    world.gate().run(key, pay)
    return heard[0]


def test_refuse_says_no_at_once(world: Any) -> None:
    """
    With advice: the same key, after a pause of a second at most.
    """
    gate, charge = world.gate(in_flight="refuse"), world.Effect()
    before = world.env.monotonic()

    error = while_running(world, lambda: gate.run("charge:1", charge))

    assert (InFlight, RetryAdvice.SAME_KEY, Fault.HOLDER) == (type(error), error.retry, error.fault)
    assert 0 < error.retry_after_seconds <= 1
    assert (0, before) == (charge.count, world.env.monotonic())


@pytest.mark.parametrize("wait", [0, 5, 30])
def test_waiting_is_bounded(world: Any, wait: int) -> None:
    """
    A holder that does not end in time is not waited for any longer than agreed.
    """
    gate, charge = world.gate(), world.Effect()
    before = world.env.monotonic()

    error = while_running(world, lambda: gate.run("charge:1", charge, wait=wait))

    assert (InFlight, 0) == (type(error), charge.count)
    assert wait == pytest.approx(world.env.monotonic() - before, abs=0.001)


def test_accept_answers_pending(world: Any) -> None:
    """
    A pending outcome has no value yet, and says when to ask again.
    """
    gate, charge = world.gate(), world.Effect()

    outcome = while_running(world, lambda: gate.call("charge:1", charge, in_flight="accept"))

    assert (outcome.value, outcome.pending, outcome.replayed, charge.count) == (None, True, False, 0)
    assert 0 < outcome.retry_after_seconds <= 1
    assert gate.call("charge:1", charge, in_flight="accept").value == "ch_1"


def test_accept_is_for_call_only(world: Any) -> None:
    """
    `run` returns the value alone, and pending has none: refused when it is asked for.
    """
    gate, effect = world.gate(), world.Effect()

    with pytest.raises(ConfigurationError, match=r"gate\.call only"):
        gate.run("charge:1", effect, in_flight="accept")
    with pytest.raises(ConfigurationError, match=r"gate\.call only"):
        gate.once(key="charge:{order}", in_flight="accept")(lambda order: order)

    assert effect.count == 0


@pytest.mark.parametrize("shape", ["run", "plan", "sequence", "window"])
def test_pending_is_never_taken_for_an_answer(world: Any, shape: str) -> None:
    """
    Whoever gets the value alone must not get None for an operation that is still running.
    """
    gate, effect, heard = world.gate(in_flight="accept"), world.Effect("ch_1"), []
    call = {
        "run": lambda fn: gate.run("charge:1", fn),
        "plan": lambda fn: gate.plan("p").step("charge", fn),
        "sequence": lambda fn: gate.sequence("s").run(1, fn),
        "window": lambda fn: gate.window("w").run({"q": 1}, fn),
    }[shape]

    def pay() -> str:
        heard.append(world.hear(lambda: call(effect)))
        return "ch_1"

    world.hear(lambda: call(pay))

    assert [answer for answer in heard if answer is None] == []


def test_calling_the_same_key_from_inside_is_in_flight_and_ends(world: Any) -> None:
    """
    An operation that asks for itself would wait for ever; it waits for as long as agreed.
    """
    gate, ran = world.gate(wait=2), world.Effect()

    def again() -> Any:
        ran()
        return gate.run("charge:1", again)

    with pytest.raises(InFlight):
        gate.run("charge:1", again)

    assert ran.count == 1
    assert gate.get("charge:1").state == "in_doubt"


def test_nested_operations_keep_to_their_own_keys(world: Any) -> None:
    """
    An operation inside an operation is claimed, settled and replayed by itself.
    """
    gate, inner, mail = world.gate(), world.gate(), world.Effect("sent")

    def pay() -> list[str]:
        return ["ch_1", inner.run("mail:1", mail)]

    assert [gate.run("charge:1", pay) for _ in range(2)] == [["ch_1", "sent"]] * 2
    assert gate.run("mail:1", mail) == "sent"
    assert mail.count == 1


@pytest.mark.requirement("A09", "E19", "E25", "D02")
def test_fifty_threads_with_one_key_have_one_effect(threads: Any) -> None:
    """
    They start together; one runs, and the other forty-nine get its answer as a normal reply.
    """
    gate, together, charge = threads.gate(), threading.Barrier(50), threads.Effect("ch_1")

    def caller(_: int) -> Any:
        together.wait()
        return gate.call("charge:1", charge, request={"amount": 12})

    with ThreadPoolExecutor(50) as pool:
        outcomes = list(pool.map(caller, range(50)))

    assert charge.count == 1
    assert [outcome.value for outcome in outcomes] == ["ch_1"] * 50
    assert sum(not outcome.replayed for outcome in outcomes) == 1
    assert len({(outcome.first_at_us, outcome.fence, outcome.attempt) for outcome in outcomes}) == 1


@pytest.mark.requirement("C14")
def test_a_hundred_in_turn_and_a_hundred_at_once_leave_one_delta(threads: Any) -> None:
    """
    Retrying an emit any number of times never records it twice.
    """
    gate, ledger = threads.gate(), []

    def emit(_: int) -> Any:
        return gate.run("delta:r-1", lambda: ledger.append(-1), request={"delta": -1})

    with ThreadPoolExecutor(100) as pool:
        at_once = list(pool.map(emit, range(100)))
    in_turn = [emit(number) for number in range(100)]

    assert ledger == [-1]
    assert at_once + in_turn == [None] * 200


def test_two_hundred_tasks_with_one_key_have_one_effect(tasks: Any) -> None:
    """
    The same for an awaiting gate.
    """
    charge = tasks.Effect("ch_1")

    async def pay() -> Any:
        await asyncio.sleep(0.01)
        return charge()

    async def main() -> list[Any]:
        async with AsyncGate(tasks.store(), scope="acme") as gate:
            return await asyncio.gather(*(gate.call("charge:1", pay) for _ in range(200)))

    outcomes = asyncio.run(main())

    assert charge.count == 1
    assert [outcome.value for outcome in outcomes] == ["ch_1"] * 200
    assert sum(not outcome.replayed for outcome in outcomes) == 1


@pytest.mark.requirement("E04")
def test_a_double_click_has_one_effect(threads: Any) -> None:
    """
    Two submits within a few milliseconds, through two gates, as two workers of one site would get them.
    """
    gates, charge = [threads.gate(), threads.gate()], threads.Effect("ch_1")
    together = threading.Barrier(2)

    def click(gate: Any) -> Any:
        together.wait()
        return gate.run("submit:form-7", charge)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(click, gates))

    assert (charge.count, answers) == (1, ["ch_1"] * 2)


def test_many_keys_at_once_do_not_get_in_each_others_way(threads: Any) -> None:
    """
    Forty threads over ten keys: ten effects, and each key's callers agree.
    """
    gate = threads.gate()
    effects = [threads.Effect(number) for number in range(10)]

    def caller(number: int) -> Any:
        return gate.run(f"charge:{number % 10}", effects[number % 10])

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(caller, range(40)))

    assert [effect.count for effect in effects] == [1] * 10
    assert [number % 10 for number in range(40)] == answers


def test_a_waiter_is_woken_by_the_end_and_not_by_the_clock(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With a pause so long that the test would time out, the waiter answers because the bell rang.
    """
    monkeypatch.setattr("onceward._core.operation_flow.POLL_FIRST", 600)
    gate, running, waiting = threads.gate(wait=900, lease=1_000), threading.Event(), threading.Event()
    gate.gate.listen(lambda event: waiting.set() if event.type.value == "waiting" else None)

    def pay() -> str:
        running.set()
        assert waiting.wait(20)
        return "ch_1"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(gate.run, "charge:1", pay)
        assert running.wait(20)
        second = pool.submit(gate.run, "charge:1", threads.Effect("never"))

        assert [first.result(30), second.result(30)] == ["ch_1", "ch_1"]


def test_an_awaiting_waiter_is_woken_by_the_end_too(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The same for tasks, also in another event loop and another thread.
    """
    monkeypatch.setattr("onceward._core.operation_flow.POLL_FIRST", 600)
    gate = AsyncGate(tasks.store(), scope="acme", wait=900, lease=1_000)
    running, waiting = threading.Event(), threading.Event()
    gate.listen(lambda event: waiting.set() if event.type.value == "waiting" else None)

    async def pay() -> str:
        running.set()
        assert await asyncio.to_thread(waiting.wait, 20)
        return "ch_1"

    async def first() -> Any:
        return await gate.run("charge:1", pay)

    async def second() -> Any:
        assert await asyncio.to_thread(running.wait, 20)
        return await gate.run("charge:1", tasks.Effect("never"))

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(asyncio.run, call()) for call in (first, second)]

        assert [answer.result(40) for answer in answers] == ["ch_1", "ch_1"]
    asyncio.run(gate.close())


def test_waiters_are_limited(world: Any) -> None:
    """
    A thousand waiting callers are an outage already; the next one is refused at once, with advice.
    """
    gate, charge = world.gate(), world.Effect()
    gate.gate._waiters._table._shards[0] = {object(): (b"", None) for _ in range(WAITERS_MAX)}
    before = world.env.monotonic()

    error = while_running(world, lambda: gate.run("charge:1", charge))

    assert (InFlight, 1.0) == (type(error), error.retry_after_seconds)
    assert (0, before) == (charge.count, world.env.monotonic())


def test_waiters_leave_when_they_are_done(world: Any) -> None:
    """
    Those that were answered and those that gave up are not counted any more.
    """
    gate = world.gate(wait=1)

    for key in ("charge:1", "charge:2", "charge:3"):
        while_running(world, lambda key=key: gate.run(key, world.Effect()), key)

    assert not any(gate.gate._waiters._table._shards)


@pytest.mark.requirement("D01", "E02")
def test_a_client_that_gave_up_waiting_and_retries_learns_the_first_answer(threads: Any) -> None:
    """
    The operation takes longer than the client's patience; the retry meets it in flight, and there is one effect.
    """
    gate, began, gave_up = threads.gate(), threading.Event(), threading.Event()
    charge = threads.Effect("ch_1")

    def slow() -> Any:
        began.set()
        assert gave_up.wait(20)
        return charge()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(gate.call, "charge:1", slow)
        assert began.wait(20)
        with pytest.raises(InFlight):
            gate.run("charge:1", slow, wait=0.05)
        retry = pool.submit(gate.call, "charge:1", slow)
        gave_up.set()
        answers = [first.result(30), retry.result(30)]

    assert charge.count == 1
    assert [(answer.value, answer.replayed) for answer in answers] == [("ch_1", False), ("ch_1", True)]


def test_one_gate_serves_several_event_loops_one_after_the_other(tasks: Any) -> None:
    """
    A gate is made once; every `asyncio.run` brings a new loop.
    """
    gate, charge = AsyncGate(tasks.store(), scope="acme"), tasks.Effect("ch_1")

    answers = [asyncio.run(gate.call("charge:1", charge)).value for _ in range(3)]
    asyncio.run(gate.close())

    assert (charge.count, answers) == (1, ["ch_1"] * 3)


def test_one_gate_serves_several_event_loops_at_once(tasks: Any) -> None:
    """
    Four threads, each with a loop of its own, one gate, one key.
    """
    gate, charge, together = AsyncGate(tasks.store(), scope="acme"), tasks.Effect("ch_1"), threading.Barrier(4)

    async def pay() -> Any:
        await asyncio.sleep(0.01)
        return charge()

    def loop(_: int) -> Any:
        together.wait()
        return asyncio.run(gate.run("charge:1", pay))

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(loop, range(4)))
    asyncio.run(gate.close())

    assert (charge.count, answers) == (1, ["ch_1"] * 4)


def test_a_gate_is_closed_by_its_block(threads: Any) -> None:
    """
    `with Gate(...)` works, and closing twice is fine.
    """
    with Gate(threads.store(), scope="acme") as gate:
        assert gate.run("count:1", lambda: 1) == 1
    gate.close()
