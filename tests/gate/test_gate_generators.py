"""Nothing is recorded that did not run: generators, coroutines and other work that was only promised."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncGate, ConfigurationError, Gate, Operation
from onceward.errors import NothingHappened
from onceward.gate import Raised, Returned
from servers import postgres, redis

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def generator() -> Iterator[str]:
    ran.append("generator")
    yield "done"


async def async_generator() -> AsyncIterator[str]:
    ran.append("async generator")
    yield "done"


async def coroutine() -> str:
    ran.append("coroutine")
    return "done"


class Lazy:
    """Begins when it is awaited, as several libraries' requests do."""

    def __await__(self) -> Iterator[Any]:
        ran.append("awaited")
        return iter(())


class Generates:
    """An object whose call is a generator."""

    def __call__(self) -> Iterator[str]:
        return (yield from generator())

    def method(self, operation: Operation) -> Iterator[str]:
        ran.append(operation.key)
        yield "done"


FUNCTIONS = {
    "generator": generator,
    "async-generator": async_generator,
    "partial": functools.partial(generator),
    "object": Generates(),
    "method": Generates().method,
}


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.fault("a-generator-function-is-taken-for-a-function")
def test_a_generator_function_is_refused_wherever_it_is_given(world: Any, fn: Callable[..., Any]) -> None:
    """
    Calling it runs nothing. It is refused before anything is claimed, with what to do instead.
    """
    gate = world.gate().gate
    ways: dict[str, Callable[[], Any]] = {
        "run": lambda: gate.run("k", fn),
        "call": lambda: gate.call("k", fn),
        "step": lambda: gate.plan("p").step("s", fn),
        "sequence": lambda: gate.sequence("s").run(1, fn),
        "window": lambda: gate.window("w").run({"q": 1}, fn),
        "probe": lambda: gate.run("k", lambda: 1, guarantee="probed", probe=fn),
        "once": lambda: gate.once(key="k")(fn),
        "letters": lambda: gate.dead_letters().handle("charge", fn),
    }
    for name, way in ways.items():
        with pytest.raises(ConfigurationError, match="is a generator function") as refused:
            world.do(way())
        assert "plain function" in str(refused.value), name

    assert (world.gate().rows(), ran) == ([], [])


def test_an_inbox_handler_cannot_be_a_generator() -> None:
    """
    It would be answered for and never run.
    """
    from onceward.messaging.inbox.handlers import handler, inspect_handler

    with pytest.raises(ConfigurationError, match="generator function"):
        inspect_handler(handler()(generator))


def test_what_only_looks_like_a_generator_runs(world: Any) -> None:
    """
    A wrapper that goes through the generator is a plain function.
    """

    @functools.wraps(generator)
    def whole() -> list[str]:
        return list(generator())

    assert world.do(world.gate().gate.run("k", whole)) == ["done"]
    assert ran == ["generator"]


PROMISED = {
    "generator": lambda: generator(),
    "async-generator": lambda: async_generator(),
    "expression": lambda: (ran.append(str(number)) for number in range(3)),
}


def unawaited(world: Any) -> dict[str, Callable[[], Any]]:
    """Functions of this colour that give back work which was never started."""
    if not world.awaits:
        return {**PROMISED, "coroutine": lambda: coroutine(), "lazy": Lazy}

    def later(made: Callable[[], Any]) -> Callable[[], Any]:
        async def fn() -> Any:
            return made()

        return fn

    return {name: later(made) for name, made in {**PROMISED, "coroutine": coroutine, "lazy": Lazy}.items()}


@pytest.mark.parametrize("guarantee", ["blind", "keyed", "repeatable"])
@pytest.mark.fault("work-that-was-not-begun-is-a-result")
def test_work_that_was_not_begun_is_no_result(world: Any, guarantee: str) -> None:
    """
    The caller is told, the key is free again, and the next attempt runs.
    """
    gate = world.gate(guarantee=guarantee)
    for name, fn in unawaited(world).items():
        with pytest.raises(ConfigurationError, match="was never started") as told:
            world.do(gate.gate.run(name, fn))
        assert isinstance(told.value, NothingHappened)
        assert gate.get(name).state == "released", name
        assert gate.run(name, lambda: "ran") == "ran"

    assert ran == []


@pytest.mark.parametrize("remember", ["success", "all"])
def test_not_even_where_failures_are_remembered(world: Any, remember: str) -> None:
    """
    There is no failure to remember: it did not run.
    """
    gate = world.gate(remember=remember)
    with pytest.raises(ConfigurationError, match="was never started"):
        world.do(gate.gate.run("k", unawaited(world)["expression"]))

    assert gate.run("k", lambda: "ran") == "ran"


def test_work_that_was_begun_and_not_ended_leaves_doubt(world: Any) -> None:
    """
    It did something, and nobody knows how much: neither a result nor nothing.
    """
    gate = world.gate()

    def half() -> Any:
        work = (ran.append(str(number)) for number in range(3))
        next(work)
        return work

    with pytest.raises(ConfigurationError, match="started but not finished"):
        gate.run("k", half)

    assert (gate.get("k").state, ran) == ("in_doubt", ["0"])


def test_after_a_marked_effect_unfinished_work_leaves_doubt(world: Any) -> None:
    """
    The mark says that the effect took place, whatever was returned after it.
    """
    gate = world.gate()

    def charge(operation: Operation) -> Any:
        with operation.effect():
            ran.append("charged")
        return (number for number in range(3))

    with pytest.raises(ConfigurationError, match="was never started"):
        gate.run("k", charge)

    assert gate.get("k").state == "in_doubt"


def test_a_task_that_is_under_way_leaves_doubt(tmp_path: Path) -> None:
    """
    It may do its work after the function has returned.
    """

    async def main() -> tuple[str, str]:
        async with AsyncGate(f"sqlite:///{tmp_path}/gate.db", scope="acme") as gate:
            tasks: list[asyncio.Task[str]] = []

            async def start() -> asyncio.Task[str]:
                tasks.append(asyncio.ensure_future(coroutine()))
                return tasks[0]

            with pytest.raises(ConfigurationError, match="started but not finished") as told:
                await gate.run("k", start)
            await tasks[0]
            found = await gate.records.get("k")
            assert found is not None
            return found.state, str(told.value)

    state, _ = asyncio.run(main())

    assert state == "in_doubt"


def test_what_is_ended_by_hand_is_judged_alike(tmp_path: Path) -> None:
    """
    `hold` and `end(Returned(generator))`: released, too.
    """
    with Gate(f"sqlite:///{tmp_path}/gate.db", scope="acme") as gate:
        holding = gate.hold("k")
        with pytest.raises(ConfigurationError, match="was never started"):
            holding.end(Returned(generator()))  # type: ignore[union-attr]
        again = gate.hold("k")
        with pytest.raises(KeyError):
            again.end(Raised(KeyError()))  # type: ignore[union-attr]

    assert ran == []


@contextmanager
def business(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.parametrize("remember", ["success", "all"])
@pytest.mark.parametrize("claim", ["first", "last"])
def test_in_your_own_transaction_it_is_undone(tmp_path: Path, remember: Any, claim: Any) -> None:
    """
    Nothing is recorded, and nothing is committed.
    """
    path = tmp_path / "gate.db"
    with Gate(f"sqlite:///{path}", scope="acme") as gate, business(path) as mine:
        mine.execute("CREATE TABLE orders (id)")
        mine.commit()

        def order() -> Any:
            mine.execute("INSERT INTO orders VALUES (1)")
            return generator()

        with pytest.raises(ConfigurationError, match="was never started"):
            gate.atomic(mine, "k", order, remember=remember, claim=claim)
        with pytest.raises(ConfigurationError, match="generator function"):
            gate.atomic(mine, "k", generator)
        with pytest.raises(ConfigurationError, match="generator function"):
            gate.once(key="k", guarantee="atomic", connection="mine")(_with_connection)

        assert mine.execute("SELECT count(*) FROM orders").fetchone() == (0,)
        assert gate.atomic(mine, "k", lambda: "ran", remember=remember, claim=claim) == "ran"


def _with_connection(mine: Any) -> Iterator[str]:
    yield "done"


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
@pytest.mark.parametrize("server", [postgres, redis], ids=["postgres", "redis"])
def test_on_the_servers_too(server: Any, colour: str) -> None:
    """
    Refused, and free again, on PostgreSQL and on Redis.
    """
    if not server.wanted():
        pytest.skip("STORES leaves this server out")
    url = server.running().url()
    if colour == "blocking":
        with Gate(url, scope=f"generators-{colour}") as gate:
            with pytest.raises(ConfigurationError, match="was never started"):
                gate.run("k", lambda: generator())
            assert gate.run("k", lambda: "ran") == "ran"
        return

    async def main() -> str:
        async with AsyncGate(url, scope=f"generators-{colour}") as gate:

            async def promise() -> Any:
                return generator()

            with pytest.raises(ConfigurationError, match="was never started"):
                await gate.run("k", promise)
            return await gate.run("k", coroutine)

    assert asyncio.run(main()) == "done"
