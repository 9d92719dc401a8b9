"""
The whole suite, for a test module of your own to import.

    from onceward.testing.conformance.suite import *

    STORES = ("sqlite://",)         # URLs, or instances of Candidate
"""

from onceward.testing.conformance.fixtures import (
    another,
    clock,
    distant,
    do,
    gate,
    line,
    loop,
    opened,
    place,
    pytest_generate_tests,
    runner,
    scope,
    store,
    together,
    tried,
    url,
)
from onceward.testing.conformance.test_away import TestAServerThatIsAway, TestDamage
from onceward.testing.conformance.test_capabilities import TestWhatAStoreSays
from onceward.testing.conformance.test_disciplines import TestDisciplines, connection
from onceward.testing.conformance.test_extend import TestExtend
from onceward.testing.conformance.test_failures import TestAClosedStore, TestCancellation
from onceward.testing.conformance.test_fences import TestAfterAPurge, TestRising
from onceward.testing.conformance.test_handles import TestTwoHandles
from onceward.testing.conformance.test_joining import TestJoining
from onceward.testing.conformance.test_processes import TestProcesses
from onceward.testing.conformance.test_purge import TestForgetting, TestRacing, TestShrinking
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
from onceward.testing.conformance.test_text import TestBytesAreComparedAsBytes, TestTextIsComparedAsBytes
from onceward.testing.conformance.test_time import TestACallersClock, TestDurations, TestInstants, TestWhoseClockItIs

__all__ = [
    "TestACallersClock",
    "TestAClosedStore",
    "TestAServerThatIsAway",
    "TestAfterAPurge",
    "TestBytesAreComparedAsBytes",
    "TestCancellation",
    "TestDamage",
    "TestDisciplines",
    "TestDurations",
    "TestErasing",
    "TestExpiry",
    "TestExtend",
    "TestForgetting",
    "TestHolders",
    "TestInstants",
    "TestJoining",
    "TestProcesses",
    "TestPuttingBack",
    "TestPuttingWhereAVersionIsExpected",
    "TestPuttingWhereNothingStands",
    "TestRacesForOnePlace",
    "TestRacesSideBySide",
    "TestRacing",
    "TestReplaying",
    "TestRising",
    "TestScan",
    "TestShrinking",
    "TestTextIsComparedAsBytes",
    "TestTheWholeRecord",
    "TestTwoHandles",
    "TestWhatAStoreSays",
    "TestWhoseClockItIs",
    "another",
    "clock",
    "connection",
    "crash_before_settling",
    "distant",
    "do",
    "effects",
    "gate",
    "line",
    "loop",
    "opened",
    "place",
    "pytest_generate_tests",
    "runner",
    "scope",
    "store",
    "together",
    "tried",
    "url",
]
