"""Every client from one text, and a clock that moves instead of waiting."""

from __future__ import annotations

import pytest
from client_support import WAYS, Web

from onceward import Retry
from onceward.testing.clock import StillEnvironment


class Sleepless(StillEnvironment):
    """A still clock that remembers for how long it was asked to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().asleep(seconds)


@pytest.fixture(params=WAYS)
def web(request: pytest.FixtureRequest) -> Web:
    return Web(request.param)


@pytest.fixture
def still() -> Sleepless:
    return Sleepless()


@pytest.fixture
def policy(still: Sleepless) -> Retry:
    return Retry(attempts=3, environment=still)
