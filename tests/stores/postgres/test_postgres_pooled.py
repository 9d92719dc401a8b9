"""The suite's puts and races as they are sent through a pooler: nothing prepared, nothing set at the start."""

from __future__ import annotations

from onceward.testing.store_suite.suite import (
    TestExtend,
    TestForgetting,
    TestPuttingWhereAVersionIsExpected,
    TestPuttingWhereNothingStands,
    TestRacesForOnePlace,
    TestRacesSideBySide,
    TestShrinking,
    another,
    clock,
    do,
    loop,
    opened,
    place,
    pytest_generate_tests,
    runner,
    scope,
    store,
    together,
    url,
)
from servers.postgres import PRIVATE, needed

__all__ = [
    "TestExtend",
    "TestForgetting",
    "TestPuttingWhereAVersionIsExpected",
    "TestPuttingWhereNothingStands",
    "TestRacesForOnePlace",
    "TestRacesSideBySide",
    "TestShrinking",
    "another",
    "clock",
    "do",
    "loop",
    "opened",
    "place",
    "pytest_generate_tests",
    "runner",
    "scope",
    "store",
    "together",
    "url",
]

needed()

STORES = (f"{PRIVATE}?onceward_bouncer=1",)
