"""A clock that stands still, and listeners that are gone when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from onceward.observe import listen
from onceward.testing.clock import StillEnvironment


@pytest.fixture
def still() -> StillEnvironment:
    return StillEnvironment()


@pytest.fixture
def heard() -> Iterator[Callable[[Any], Any]]:
    """Let something listen to the whole process, until the test ends; returns it."""
    with ExitStack() as stack:

        def start(listener: Any) -> Any:
            stack.callback(listen(listener))
            return listener

        yield start
