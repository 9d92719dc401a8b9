"""
The whole suite, for a test module of your own to import.

    from onceward.testing.store_suite.suite import *

    STORES = ("sqlite://",)         # URLs, or instances of Candidate
"""

from onceward.testing.store_suite.fixtures import (
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
from onceward.testing.store_suite.test_away import TestAServerThatIsAway, TestDamage
from onceward.testing.store_suite.test_capabilities import TestWhatAStoreSays
from onceward.testing.store_suite.test_disciplines import TestDisciplines, connection
from onceward.testing.store_suite.test_extend import TestExtend
from onceward.testing.store_suite.test_failures import TestAClosedStore, TestCancellation
from onceward.testing.store_suite.test_fences import TestAfterAPurge, TestRising
from onceward.testing.store_suite.test_handles import TestTwoHandles
from onceward.testing.store_suite.test_joining import TestJoining
from onceward.testing.store_suite.test_processes import TestProcesses
from onceward.testing.store_suite.test_purge import TestForgetting, TestRacing, TestShrinking
from onceward.testing.store_suite.test_put import (
    TestPuttingWhereAVersionIsExpected,
    TestPuttingWhereNothingStands,
    TestTheWholeRecord,
)
from onceward.testing.store_suite.test_put_back import TestErasing, TestPuttingBack
from onceward.testing.store_suite.test_races import TestRacesForOnePlace, TestRacesSideBySide
from onceward.testing.store_suite.test_rules import (
    TestExpiry,
    TestHolders,
    TestReplaying,
    crash_before_settling,
    effects,
)
from onceward.testing.store_suite.test_scan import TestScan
from onceward.testing.store_suite.test_text import TestBytesAreComparedAsBytes, TestTextIsComparedAsBytes
from onceward.testing.store_suite.test_time import (
    TestACallersClock,
    TestDurations,
    TestInstants,
    TestWhoseClockItIs,
)

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
