"""Both colours from one text: `call(policy, fn)` blocks or awaits, and the test does not know which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from retry_support import Sleepless

from colours import COLOURS, Colour
from onceward.retry import forget_breakers


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
