"""
The whole suite, for a test module of your own to import.

    from onceward.testing.conformance.suite import *

    STORES = ("sqlite://",)         # URLs, or functions (colour, environment) -> store
"""

from onceward.testing.conformance.fixtures import (
    another,
    clock,
    do,
    gate,
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
from onceward.testing.conformance.test_disciplines import TestDisciplines, connection
from onceward.testing.conformance.test_extend import TestExtend
from onceward.testing.conformance.test_failures import TestAClosedStore, TestCancellation
from onceward.testing.conformance.test_fences import TestAfterAPurge, TestRising
from onceward.testing.conformance.test_processes import TestProcesses
from onceward.testing.conformance.test_purge import TestForgetting, TestShrinking
from onceward.testing.conformance.test_put import (
    TestPuttingWhereAVersionIsExpected,
    TestPuttingWhereNothingStands,
    TestTheWholeRecord,
)
from onceward.testing.conformance.test_put_back import TestErasing, TestPuttingBack
from onceward.testing.conformance.test_races import TestRacesForOnePlace, TestRacesSideBySide
from onceward.testing.conformance.test_rules import (
    TestExpiry,
    TestHolders,
    TestReplaying,
    crash_before_settling,
    effects,
)
from onceward.testing.conformance.test_scan import TestScan
from onceward.testing.conformance.test_time import TestACallersClock, TestDurations, TestInstants

__all__ = [
    "TestACallersClock",
    "TestAClosedStore",
    "TestAfterAPurge",
    "TestCancellation",
    "TestDisciplines",
    "TestDurations",
    "TestErasing",
    "TestExpiry",
    "TestExtend",
    "TestForgetting",
    "TestHolders",
    "TestInstants",
    "TestProcesses",
    "TestPuttingBack",
    "TestPuttingWhereAVersionIsExpected",
    "TestPuttingWhereNothingStands",
    "TestRacesForOnePlace",
    "TestRacesSideBySide",
    "TestReplaying",
    "TestRising",
    "TestScan",
    "TestShrinking",
    "TestTheWholeRecord",
    "another",
    "clock",
    "connection",
    "crash_before_settling",
    "do",
    "effects",
    "gate",
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
