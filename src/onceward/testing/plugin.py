"""
The pytest plugin that comes with the package: fixtures for your tests, the switch for retries, options of the suite.

    def test_charge(assert_once, onceward_gate, onceward_effects): ...

    @pytest.mark.onceward_crash("claim.after", "settle.before")      # once for each of them
    def test_restart(onceward_crash, onceward_gate): ...

    [pytest]
    onceward_retries = no-sleep

    pytest --pyargs onceward.testing.store_suite --store sqlite://
    pytest --pyargs onceward.testing.store_suite --store-factory my_package.testing:CANDIDATE

pytest loads it in every run where Onceward is installed. So it imports nothing of ours until a fixture, setting or
option of it is used, its fixtures have names that nobody else takes, and it adds its options only to a run that names
the suite: your own tests may want `--store`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onceward.gate import AsyncGate, Gate
    from onceward.stores.memory import AsyncMemoryStore, MemoryStore
    from onceward.testing.assert_once import AssertOnce
    from onceward.testing.crash_marker import CrashHere
    from onceward.testing.effects import Effects
    from onceward.testing.sandbox import Sandbox, SandboxClock

CRASH = "onceward_crash"
SUITE = "onceward.testing.store_suite"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one setting that every run may have."""
    parser.addini(
        "onceward_retries",
        "what Onceward's policies do in this run: on (the default), no-sleep (no waits), off (one attempt)",
        default="on",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known. Turn the switch for the whole run, and back at its end."""
    config.addinivalue_line(
        "markers", f"{CRASH}(*names): run once for each failpoint, where `with {CRASH}():` lets the process die"
    )
    chosen = str(config.getini("onceward_retries")).strip()
    if chosen == "on":
        return
    from onceward.testing.retry_switches import no_sleeping, retries_off

    switches = {"no-sleep": no_sleeping, "off": retries_off}
    if chosen not in switches:
        raise pytest.UsageError(f"onceward_retries is {chosen[:40]!r}; set it to on, no-sleep or off")
    exits = ExitStack()
    exits.enter_context(switches[chosen]())
    config.add_cleanup(exits.close)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Add the suite's options, before pytest reads its command line in earnest."""
    if not any(SUITE in argument.replace("/", ".").replace("\\", ".") for argument in args):
        return
    group = parser.getgroup("onceward", "Onceward's conformance suite for stores")
    group.addoption(
        "--store",
        action="append",
        default=[],
        metavar="URL",
        help="a store to judge, by URL (repeat it, or separate by commas). {tmp} becomes a new folder and {fresh} a "
        "new name for every test; sqlite:// alone means sqlite:///{tmp}/store.db",
    )
    group.addoption(
        "--store-factory",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a store to judge, by a Candidate (onceward.testing.store_suite): its kind, what to open, how to cut the "
        "connection to it. A function (colour, environment) -> store also works, but opens a new store at every call, "
        "and fails the tests that need a second handle",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once for each failpoint that its mark names."""
    mark = metafunc.definition.get_closest_marker(CRASH)
    if mark is not None and mark.args and CRASH in metafunc.fixturenames:
        metafunc.parametrize(CRASH, mark.args, indirect=True, ids=[str(name) for name in mark.args])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a mark that would crash nothing: its test would pass, and prove nothing."""
    mark = item.get_closest_marker(CRASH)
    if mark is None:
        return
    if not mark.args:
        pytest.fail(f'name at least one failpoint: @pytest.mark.{CRASH}("call.after")', pytrace=False)
    if CRASH not in getattr(item, "fixturenames", ()):
        pytest.fail(
            f"marked {CRASH}, but the test does not use the fixture {CRASH}, so nothing would crash: take it as a "
            f"parameter, and write `with {CRASH}(): ...` around the code that must die",
            pytrace=False,
        )


@pytest.fixture
def onceward_sandbox() -> Iterator[Sandbox]:
    """A still clock, a store in memory and a recorder of effects, for one test. The other fixtures are parts of it."""
    from onceward.testing.sandbox import Sandbox

    sandbox = Sandbox()
    yield sandbox
    sandbox.close()


@pytest.fixture
def onceward_clock(onceward_sandbox: Sandbox) -> SandboxClock:
    """A clock that stands still until `advance`: `Gate(..., environment=onceward_clock)`."""
    return onceward_sandbox.clock


@pytest.fixture
def onceward_store(onceward_sandbox: Sandbox) -> MemoryStore:
    """A new store in memory, on the still clock."""
    return onceward_sandbox.store


@pytest.fixture(name="onceward_async_store")
def awaiting_store(onceward_sandbox: Sandbox) -> AsyncMemoryStore:
    """The same records, for awaiting callers."""
    return onceward_sandbox.async_store


@pytest.fixture
def onceward_gate(onceward_sandbox: Sandbox) -> Gate:
    """A gate on that store and clock. With options: `onceward_sandbox.gate(lease=5)`."""
    return onceward_sandbox.gate()


@pytest.fixture(name="onceward_async_gate")
def awaiting_gate(onceward_sandbox: Sandbox) -> AsyncGate:
    """An awaiting gate on that store and clock. With options: `onceward_sandbox.awaiting_gate(lease=5)`."""
    return onceward_sandbox.awaiting_gate()


@pytest.fixture
def onceward_effects(onceward_sandbox: Sandbox) -> Effects:
    """Counts effects: `onceward_effects.record("charge")`."""
    return onceward_sandbox.effects


@pytest.fixture
def assert_once(onceward_sandbox: Sandbox) -> AssertOnce:
    """`assert_once(fn, ...)`: tries every crash and every duplicate, and reports the first that doubles."""
    return onceward_sandbox.assert_once


@pytest.fixture
def onceward_crash(request: pytest.FixtureRequest) -> CrashHere:
    """`with onceward_crash("call.after"): ...` dies there; `onceward_crash()`, at the failpoint of the test's mark."""
    from onceward.testing.crash_marker import CrashHere

    return CrashHere(getattr(request, "param", None))
