"""What `pytest --pyargs onceward.testing.conformance` finds beside the tests: the same that importers of them get."""

from onceward.testing.conformance.fixtures import (  # noqa: F401 - pytest finds these by their names
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
)
