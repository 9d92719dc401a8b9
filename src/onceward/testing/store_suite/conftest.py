"""What `pytest --pyargs onceward.testing.store_suite` finds beside the tests: the same that importers of them get."""

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

__all__ = [
    "another",
    "clock",
    "distant",
    "do",
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
