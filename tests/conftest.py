"""
For every test: which numbered requirements it proves, whether it looks at a clock, and what is left when a run ends.

A test says what it proves with `@pytest.mark.requirement("A01", ...)`. Here each number is checked against the list in
`docs/reference/requirements.md` and written on the test's reports, where `tools/spec.py` reads it, also when
the tests ran in another process.
"""

from __future__ import annotations

import gc
import logging
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import dose
from failed_tests import pytest_sessionfinish as pytest_sessionfinish
from onceward.gate import running_operation
from onceward.gate.running_operation import current_operation
from servers import ending
from timing import is_timed

LIST = Path(__file__).resolve().parent.parent / "docs" / "reference" / "requirements.md"
KNOWN = frozenset(re.findall(r"^- ([A-E]\d\d): ", LIST.read_text(encoding="utf-8"), re.MULTILINE))


# How long an example takes is the machine's business.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Any:
    """Refuse an unknown number while collecting; write the known ones on the test."""
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Item):
            numbers = [number for mark in item.iter_markers("requirement") for number in mark.args]
            if unknown := [number for number in numbers if number not in KNOWN]:
                raise collector.CollectError(f"{item.nodeid}: no such requirement: {', '.join(map(str, unknown))}")
            item.user_properties.extend(("requirement", number) for number in numbers)
    return made


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Any:
    """Nothing that is collected here goes before the end: the garbage collector need not look for it, nor at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Mark the tests that look at a clock, wait, or have threads, before `-m` chooses; draw, if a dose is asked for.

    Workers must collect the same names: one with an address in it (the repr of an object) differs from process to
    process, now and then.
    """
    for item in items:
        if " object at 0x" in item.nodeid:
            raise pytest.UsageError(f"give this case an id of its own, without an address: {item.nodeid}")
        if item.get_closest_marker("timing") is None and is_timed(item):
            item.add_marker(pytest.mark.timing)
    if dose.is_wanted():
        seed = config.getoption("randomly_seed", 0)
        config.hook.pytest_deselected(items=dose.draw(items, seed if isinstance(seed, int) else 0))


def pytest_runtest_teardown() -> None:
    """Undo what `onceward serve` did to logging, if a test ran it in this process: its stderr is gone with the test."""
    for name in ("onceward", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        if any(type(handler).__name__ == "BoundedLogHandler" for handler in logger.handlers):
            logger.handlers, logger.propagate = [], True
            logger.setLevel(logging.NOTSET)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """
    What is there when a file's tests are over (imported packages, above all) need not be looked at by the collector.

    Late in a long run each full collection would take more than a second, and some tests ask for many of them.
    """
    ran = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return ran


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for all that was left out, and why."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    told = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    if told:
        terminalreporter.write_line(f"left out {reasons.total()}: {told}")


def _reason(report: Any) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(reason.removeprefix("Skipped: ").split())


def pytest_configure(config: pytest.Config) -> None:
    """
    Let Ctrl-C be heard, and let what a run starts end with it.

    A process that a shell starts in the background ignores Ctrl-C, and some tests are about what an interrupt leaves.
    """
    ending.begin()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_operation_is_left_running() -> Iterator[None]:
    """Whoever begins an operation ends it: what is left in the context would run the next test under its key."""
    yield
    left = current_operation(None)
    if left is not None:
        running_operation._running.set(None)
        pytest.fail(f"the operation {left.digest} is still running in this context: end what was held")
