"""
The fixtures of the suite. Each test runs in both colours and does not know which.

    do(store.put(write, None))        the answer, whether the store blocks or awaits
    together(steps(), steps())        several at once: threads, or tasks of one event loop
    clock.pass_(60)                   a minute later

Steps are generators that yield calls of the store (or of a gate) and are sent the answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from onceward.gate import AsyncGate, Gate
from onceward.runtime.environment import REAL
from onceward.testing.store_suite.candidates import NetworkLine
from onceward.testing.store_suite.store_clock import StoreClock, is_still, probe_row
from onceward.testing.store_suite.store_under_test import (
    COLOURS,
    LazyAsyncStore,
    StoreSource,
    StoreUnderTest,
    chosen_sources,
    name_of,
    new_store_under_test,
)

Do: TypeAlias = Callable[[Any], Any]
Steps: TypeAlias = Generator[Any, Any, Any]
Together: TypeAlias = Callable[..., list[Any]]
Tried: TypeAlias = Callable[[Callable[[], Any]], Any]

_TOGETHER_SECONDS_MAX = 60
_PURGES_MAX, _PURGE_LIMIT = 100, 1_000

_still: dict[StoreSource, bool] = {}
"""Source -> whether its clock stands still: asked once per process, because asking costs a few writes."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every store in both colours; what needs an event loop, only where there is one."""
    wants = frozenset(metafunc.fixturenames)
    if "place" not in wants:
        return
    sources = chosen_sources(metafunc.config, metafunc.module)
    colours = COLOURS[1:] if "loop" in wants else COLOURS
    places = [
        pytest.param((source, colour), id=f"{name_of(source)}-{colour}") for source in sources for colour in colours
    ]
    metafunc.parametrize("place", places, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUnderTest:
    """Where this test's store is: nothing stands there yet."""
    source, colour = request.param
    return new_store_under_test(source, colour, tmp_path)


@pytest.fixture
def runner(place: StoreUnderTest) -> Iterator[asyncio.Runner | None]:
    """The event loop of this test, if it awaits."""
    if place.colour == "blocking":
        yield None
        return
    with asyncio.Runner() as running:
        yield running


@pytest.fixture
def loop(runner: asyncio.Runner) -> asyncio.AbstractEventLoop:
    """For tests of what only an awaiting store can get wrong."""
    return runner.get_loop()


@pytest.fixture
def do(runner: asyncio.Runner | None) -> Do:
    """Bring an answer home: at once from a blocking call, through the event loop from an awaiting one."""
    return (lambda answer: answer) if runner is None else (lambda answer: runner.run(_awaited(answer)))


@pytest.fixture
def opened(place: StoreUnderTest, do: Do) -> Iterator[Callable[..., Any]]:
    """Opens handles on this test's store, and closes them afterwards."""
    handles = []

    def opening(where: StoreUnderTest = place) -> Any:
        handles.append(handle := _open(where, do))
        return handle

    yield opening
    for handle in handles:
        do(handle.close())


@pytest.fixture
def store(opened: Callable[..., Any]) -> Any:
    """The store under judgement."""
    return opened()


@pytest.fixture
def another(place: StoreUnderTest, store: Any, opened: Callable[..., Any]) -> Any:
    """A second handle on the same store, as another process would have."""
    return opened(place._replace(source=place.candidate))


@pytest.fixture
def url(place: StoreUnderTest) -> str:
    """The store's URL, for other processes to open."""
    if not place.candidate.kind.processes:
        pytest.skip("the store says that other processes cannot open it")
    return place.url


@pytest.fixture
def line(place: StoreUnderTest) -> Iterator[NetworkLine]:
    """What lies between a test and its store, to be cut and restored."""
    with place.line() as line:
        yield line
        line.restore()


@pytest.fixture
def distant(place: StoreUnderTest, line: NetworkLine, opened: Callable[..., Any]) -> Any:
    """The store under judgement, reached over the line."""
    return opened(place.over(line))


@pytest.fixture
def tried(place: StoreUnderTest) -> Tried:
    """Make a call, and answer what it answers or the exception that it raises."""

    def blocking(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            return error

    async def awaiting(call: Callable[[], Any]) -> Any:
        try:
            return await call()
        except Exception as error:
            return error

    return blocking if place.colour == "blocking" else awaiting


@pytest.fixture
def scope() -> str:
    """A scope nobody else uses, so that rows of other runs do not get in the way."""
    return f"test:{REAL.random(6).hex()}"


@pytest.fixture
def clock(request: pytest.FixtureRequest, place: StoreUnderTest, do: Do, tmp_path: Path) -> StoreClock:
    """The store's clock."""
    source, colour = request.node.callspec.params["place"]
    if source not in _still:
        (aside := tmp_path / "clock").mkdir()
        asked = _open(new_store_under_test(source, colour, aside), do)
        _still[source] = is_still(do(asked.put(probe_row(), None)).record.first_at)
        do(asked.purge(1))
        do(asked.close())
    return StoreClock(place.environment, still=_still[source])


@pytest.fixture
def together(place: StoreUnderTest, do: Do) -> Together:
    """Drive several generators of steps at the same time; their results, in order."""

    def threads(*steps: Steps) -> list[Any]:
        start = threading.Barrier(len(steps))
        with ThreadPoolExecutor(len(steps)) as pool:
            running = [pool.submit(_drive, one, start) for one in steps]
            return [one.result(_TOGETHER_SECONDS_MAX) for one in running]

    async def tasks(*steps: Steps) -> list[Any]:
        async with asyncio.timeout(_TOGETHER_SECONDS_MAX):
            return await asyncio.gather(*map(_awaited_steps, steps))

    return threads if place.colour == "blocking" else lambda *steps: do(tasks(*steps))


@pytest.fixture
def gate(place: StoreUnderTest, store: Any, scope: str, clock: StoreClock, do: Do) -> Iterator[Callable[..., Any]]:
    """Makes gates over the store, of its colour: `gate(lease=60)`. Their time is the store's unless said otherwise."""
    gates: list[Any] = []

    def over(**options: Any) -> Any:
        options = {"scope": scope, "environment": clock.environment if clock.still else REAL, **options}
        made = Gate(store, **options) if place.colour == "blocking" else AsyncGate(store.handle, **options)
        gates.append(made)
        return made

    yield over
    for made in gates:
        do(made.close())


def purge_all(do: Do, store: Any) -> None:
    """Purge until there is nothing left to do. Bounded: a broken store must fail a test, and not hang it."""
    for _ in range(_PURGES_MAX):
        if not any(do(store.purge(_PURGE_LIMIT))):
            return
    pytest.fail(f"{_PURGES_MAX} purges of {_PURGE_LIMIT} rows, and the store still reports more")


def _open(place: StoreUnderTest, do: Do) -> Any:
    if place.colour == "blocking":
        return place.open()

    async def opening() -> LazyAsyncStore:
        return LazyAsyncStore(place.open())  # Inside the loop: a store may want to know which one it is opened in.

    return do(opening())


async def _awaited(answer: Any) -> Any:
    return await answer


def _drive(steps: Steps, start: threading.Barrier) -> Any:
    start.wait(_TOGETHER_SECONDS_MAX)
    answer = None
    while True:
        try:
            answer = steps.send(answer)  # A blocking store has answered by the time its call is yielded.
        except StopIteration as stop:
            return stop.value


async def _awaited_steps(steps: Steps) -> Any:
    answer = None
    while True:
        try:
            call = steps.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = await call
