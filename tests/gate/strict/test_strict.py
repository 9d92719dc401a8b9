"""Strict mode: what has side effects refuses to run without a key."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncGate, ConfigurationError, Gate, KeyMissing, current_operation, needs_key
from onceward.errors import KeyInvalid
from onceward.runtime.environment import REAL
from servers import postgres, redis

KINDS = [
    "memory",
    "sqlite",
    *(["postgres"] if postgres.wanted() else []),
    *(["redis"] if redis.wanted() else []),
]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind; on PostgreSQL, one that others use with other scopes."""
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/agent.db"
        case "postgres":
            return postgres.running().url("onceward")
    return redis.running().url()


@pytest.fixture
def scope() -> str:
    """Nobody else's."""
    return f"test:{REAL.random(6).hex()}"


@pytest.fixture
def gate(url: str, scope: str) -> Iterator[Gate]:
    """A gate on that store."""
    with Gate(url, scope=scope) as gate:
        yield gate


class Provider:
    """A payment provider that counts; its functions are the tools."""

    def __init__(self) -> None:
        self.charges: list[str] = []

    @needs_key
    def charge(self, order: str) -> str:
        """Charge."""
        self.charges.append(order)
        return f"ch_{len(self.charges)}"

    @needs_key
    async def charge_async(self, order: str) -> str:
        """Charge."""
        self.charges.append(order)
        return f"ch_{len(self.charges)}"


@pytest.fixture
def provider() -> Provider:
    """One that was not asked for anything yet."""
    return Provider()


@pytest.mark.requirement("B04")
def test_a_tool_with_side_effects_refuses_to_run_without_a_key(gate: Gate, provider: Provider) -> None:
    """
    Called directly it raises, and nothing of it has run; under a key it runs, once, and then replays.
    """
    with pytest.raises(KeyMissing, match="charge has side effects and was called without a key") as refusal:
        provider.charge("o-17")
    before = list(provider.charges)
    answers = [gate.run("charge:o-17", lambda: provider.charge("o-17")) for _ in range(2)]

    assert (before, provider.charges) == ([], ["o-17"])
    assert answers == ["ch_1", "ch_1"]
    assert (refusal.value.code, refusal.value.retry) == ("key_missing", "never")
    with pytest.raises(KeyMissing):
        provider.charge("o-17")
    assert provider.charges == ["o-17"]


@pytest.mark.requirement("B04")
@pytest.mark.parametrize("key", [None, ""])
def test_a_gate_refuses_a_call_without_a_key(gate: Gate, provider: Provider, key: Any) -> None:
    """
    None and an empty text are no keys: refused before the function runs and before anything is stored.
    """
    once = gate.once(key=lambda order: key)(lambda order: provider.charge(order))
    calls = [
        lambda: gate.call(key, lambda: provider.charge("o-17")),
        lambda: gate.run(key, lambda: provider.charge("o-17")),
        lambda: once("o-17"),
    ]

    for call in calls:
        with pytest.raises(KeyMissing):
            call()

    assert provider.charges == []
    assert list(gate.records.list()) == []
    assert issubclass(KeyMissing, KeyInvalid)


@pytest.mark.requirement("B04")
def test_the_awaiting_gate_is_as_strict(url: str, scope: str, provider: Provider) -> None:
    """
    An async tool refuses when it is awaited without a key, and blocking and awaiting tools run under one.
    """

    async def worker() -> tuple[Any, ...]:
        with pytest.raises(KeyMissing):
            await provider.charge_async("o-17")
        refused = list(provider.charges)
        gate = AsyncGate(url, scope=scope)

        async def both() -> list[str]:
            inner = asyncio.create_task(provider.charge_async("o-18"))
            return [provider.charge("o-17"), await inner, await asyncio.to_thread(provider.charge, "o-19")]

        answers = [await gate.run("charge:all", both) for _ in range(2)]
        with pytest.raises(KeyMissing):
            await provider.charge_async("o-20")
        await gate.close()
        return refused, answers

    refused, answers = asyncio.run(worker())

    assert refused == []
    assert answers == [["ch_1", "ch_2", "ch_3"]] * 2
    assert provider.charges == ["o-17", "o-18", "o-19"]


def test_every_shape_of_a_gate_is_a_key(gate: Gate, provider: Provider) -> None:
    """
    Declared functions, plans, sequences and windows run tools as well.
    """
    declared = gate.once(key="charge:{order}")(lambda order: provider.charge(order))
    declared("a")
    gate.plan("p").step("charge", lambda: provider.charge("b"))
    gate.sequence("s").run(1, lambda: provider.charge("c"))
    gate.window("w", 60).run({"order": "d"}, lambda: provider.charge("d"))

    assert provider.charges == ["a", "b", "c", "d"]


def test_an_inner_operation_ends_and_the_outer_goes_on(gate: Gate, provider: Provider) -> None:
    """
    Also when the inner one raised: the key of the outer one is there again.
    """

    def outer() -> str:
        gate.run("inner:1", lambda: provider.charge("a"))
        with pytest.raises(ZeroDivisionError):
            gate.run("inner:2", lambda: 1 // 0)
        return provider.charge("b")

    gate.run("outer", outer)

    assert provider.charges == ["a", "b"]
    with pytest.raises(KeyMissing):
        provider.charge("c")


class TestWhatAnOperationLeavesBehind:
    """A key is there while the operation runs, and no longer."""

    def test_a_task_that_outlives_its_operation_is_refused(self, provider: Provider) -> None:
        """
        It remembers the operation, which has ended: what it would do now, nobody would record.
        """

        async def worker() -> None:
            gate = AsyncGate("memory://", scope="test:strict")
            ended = asyncio.Event()

            async def late() -> None:
                await ended.wait()
                await provider.charge_async("o-17")

            left = await gate.call("spawn", lambda: [asyncio.create_task(late())], remember=lambda _: False)
            ended.set()
            with pytest.raises(KeyMissing):
                await left.value[0]

        asyncio.run(worker())

        assert provider.charges == []

    def test_a_thread_is_refused_unless_it_is_given_the_key(self, provider: Provider) -> None:
        """
        A pool's thread knows of no operation; a copy of the context hands it over, until the operation has ended.
        """
        gate = Gate("memory://", scope="test:strict")
        refusals: list[BaseException | None] = []
        contexts: list[contextvars.Context] = []

        def work() -> None:
            contexts.append(contextvars.copy_context())
            with ThreadPoolExecutor(1) as pool:
                refusals.append(pool.submit(provider.charge, "a").exception())
                refusals.append(pool.submit(contextvars.copy_context().run, provider.charge, "b").exception())

        gate.run("fan-out", work)
        late = threading.Thread(target=lambda: refusals.append(_refusal(contexts[0], provider)))
        late.start()
        late.join()

        assert [KeyMissing, type(None), KeyMissing] == [type(one) for one in refusals]
        assert provider.charges == ["b"]


@pytest.mark.parametrize("kind", ["sqlite", *(["postgres"] if postgres.wanted() else [])])
def test_a_block_in_your_transaction_is_a_key_unless_it_is_a_replay(
    kind: str, tmp_path: Path, scope: str, provider: Provider
) -> None:
    """
    The first block may act; the one that is shown the first answer may not.
    """
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/agent.db"
        connection: Any = sqlite3.connect(tmp_path / "agent.db")
    else:
        import psycopg

        url = postgres.running().url("onceward")
        connection = psycopg.connect(url)
    with Gate(url, scope=scope) as gate:
        with gate.atomic(connection, "charge:o-17") as operation:
            operation.settle(provider.charge("o-17"))
        with gate.atomic(connection, "charge:o-17") as operation:
            with pytest.raises(KeyMissing):
                provider.charge("o-17")
            shown = operation.value
        with pytest.raises(KeyMissing):
            provider.charge("o-17")
    connection.close()

    assert (shown, provider.charges) == ("ch_1", ["o-17"])


class TestDeclaring:
    """What cannot be guarded is refused where it is declared, and the rest is left as it is."""

    def test_a_generator_is_refused(self) -> None:
        """
        It runs whenever somebody asks for its next value, which may be after the operation.
        """

        def drip() -> Iterator[int]:
            yield 1

        async def drip_async() -> Any:
            yield 1

        for fn in (drip, drip_async):
            with pytest.raises(ConfigurationError, match="is a generator"):
                needs_key(fn)

    def test_what_cannot_be_called_is_refused(self) -> None:
        """
        With a sentence, and not with a traceback at the first call.
        """
        with pytest.raises(ConfigurationError, match="cannot be called"):
            needs_key(17)  # type: ignore[arg-type]

    def test_a_tool_keeps_its_name_and_its_words(self) -> None:
        """
        Agent frameworks make their schema of a tool from these.
        """
        assert (Provider.charge.__name__, Provider.charge.__doc__) == ("charge", "Charge.")

    def test_without_strict_mode_a_direct_call_would_have_run(self) -> None:
        """
        The check itself: the same function without `needs_key` has its effect, and no key.
        """
        sent: list[str] = []

        def send() -> None:
            sent.append("mail")

        send()
        with pytest.raises(KeyMissing):
            needs_key(send)()

        assert sent == ["mail"]


def _refusal(context: contextvars.Context, provider: Provider) -> BaseException | None:
    try:
        context.run(provider.charge, "late")
    except KeyMissing as refusal:
        return refusal
    return None


@pytest.mark.fault("no-operation-is-none")
def test_who_asks_for_the_operation_where_none_runs_is_refused(scope: str) -> None:
    """
    Inside it is the operation, in both colours; outside it raises, or is the default that was given.
    """

    async def ask() -> str:
        return current_operation().key

    async def main() -> str:
        async with AsyncGate("memory://", scope=scope) as gate:
            key: str = await gate.run("charge:o-17", ask)
            return key

    with Gate("memory://", scope=scope) as gate:
        inside = gate.run("charge:o-17", lambda: current_operation().key)

    assert (inside, current_operation(None), current_operation("none")) == (asyncio.run(main()), None, "none")
    with pytest.raises(KeyMissing, match="no gate is running an operation here") as refusal:
        current_operation()
    assert refusal.value.code == "key_missing"
