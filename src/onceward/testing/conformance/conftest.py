"""What `pytest --pyargs onceward.testing.conformance` finds beside the tests: the same that importers of them get."""

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

__all__ = [
    "another",
    "clock",
    "do",
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
