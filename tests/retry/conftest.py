"""Both colours from one text: `call(policy, fn)` blocks or awaits, and the test does not know which."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from retry_support import Sleepless
from sharing_support import Counting, Way

from colours import COLOURS, Colour
from onceward.retry import forget_breakers
from servers import postgres, redis

_numbers = count()


@pytest.fixture
def still() -> Sleepless:
    return Sleepless()


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """One of the two: see `colours`."""
    made = Colour(request.param)
    yield made
    made.close()


@pytest.fixture(params=COLOURS)
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Call a function through something that has `call` and `acall`."""

    def blocking(through: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return through.call(fn, *args, **kwargs)

    def awaiting(through: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def afn(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return asyncio.run(through.acall(afn, *args, **kwargs))

    return blocking if request.param == "blocking" else awaiting


@pytest.fixture(autouse=True)
def _no_breakers_left() -> Iterator[None]:
    yield
    forget_breakers()


@pytest.fixture(params=["blocking", "awaiting", "awaiting a blocking store"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    asks = Colour(request.param.split()[0])
    yield Way(asks, Colour("awaiting" if request.param == "awaiting" else "blocking"))
    asks.close()


@pytest.fixture
def store(way: Way, still: Sleepless) -> Counting:
    return way.memory(still)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return f"memory://shared-{next(_numbers)}"
        case "sqlite":
            return f"sqlite:///{tmp_path}/shared.db"
        case "postgres":
            return postgres.running().url("onceward")
        case _:
            return redis.running().url()


@pytest.fixture
def name() -> Iterator[str]:
    yield f"dependency-{next(_numbers)}-{threading.get_ident()}"
