"""A process that dies at a failpoint: dead is dead, nothing swallows it, and a block that does not die is red."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from onceward import Gate, InDoubt, InFlight
from onceward.errors import ConfigurationError
from onceward.runtime import failpoints
from onceward.testing.crash_marker import CrashHere
from onceward.testing.sandbox import Sandbox
from onceward.testing.simulated_process import ProcessDied, crash_at


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A world of its own, and nothing is left armed after it."""
    sandbox = Sandbox()
    yield sandbox
    sandbox.close()
    assert not failpoints.armed()


def state(gate: Gate, key: str = "k") -> str:
    """What the store says of the key."""
    record = gate.records.get(key)
    return "absent" if record is None else record.state


class TestDeath:
    """What the store knew at that instant is what it knows afterwards."""

    @pytest.mark.fault("crash-cleans-up")
    @pytest.mark.parametrize(
        ("point", "left"),
        [
            ("claim.before", "absent"),
            ("claim.after", "claimed"),
            ("call.before", "claimed"),
            ("call.after", "claimed"),
            ("settle.before", "claimed"),
            ("settle.after", "settled"),
        ],
    )
    def test_a_dead_process_writes_nothing_more(self, sandbox: Sandbox, point: str, left: str) -> None:
        """
        An interrupt would release the claim or put doubt; a dead process does neither.
        """
        gate = sandbox.gate()
        with crash_at(point) as process:
            gate.run("k", lambda: 1)

        assert str(process.dead_at) == point
        assert state(gate) == left

    def test_the_next_process_finds_a_live_lease_and_then_doubt(self, sandbox: Sandbox) -> None:
        """
        As after a real crash.
        """
        gate = sandbox.gate()
        with crash_at("settle.before"):
            gate.run("k", lambda: 1)

        with pytest.raises(InFlight):
            gate.run("k", lambda: 2, wait=0)
        sandbox.clock.advance(61)
        with pytest.raises(InDoubt):
            gate.run("k", lambda: 2)

    def test_the_dead_have_no_effects(self, sandbox: Sandbox) -> None:
        """
        What a `finally` would still do is not recorded.
        """
        gate = sandbox.gate()
        with crash_at("call.before"):
            try:
                gate.run("k", lambda: 1)
            finally:
                sandbox.effects.record("compensation")

        assert sandbox.effects.count() == 0

    def test_no_handler_of_errors_catches_it(self, sandbox: Sandbox) -> None:
        """
        `except Exception` lets it through, in their code and in ours.
        """
        gate, after = sandbox.gate(), list[str]()

        def careful() -> None:
            try:
                sandbox.effects.record()
            except Exception:
                after.append("caught")
            after.append("went on")

        with crash_at("effect.after"):
            gate.run("k", careful)

        assert after == []

    def test_it_passes_through_tasks_and_groups(self, sandbox: Sandbox) -> None:
        """
        An exception group that has it is the same death.
        """
        gate = sandbox.awaiting_gate()

        async def process() -> None:
            with crash_at("call.after"):
                async with asyncio.TaskGroup() as group:
                    group.create_task(gate.run("k", lambda: 1))

        asyncio.run(process())
        assert state(sandbox.gate()) == "claimed"

    def test_it_dies_at_the_time_that_is_meant(self, sandbox: Sandbox) -> None:
        """
        skip=1: the first key passes, the second is caught.
        """
        gate = sandbox.gate()
        with crash_at("settle.before", skip=1):
            gate.run("a", lambda: 1)
            gate.run("b", lambda: 1)

        assert (state(gate, "a"), state(gate, "b")) == ("settled", "claimed")


class TestMistakes:
    """A crash that did not happen proves nothing."""

    @pytest.mark.fault("crash-never-came")
    def test_a_failpoint_that_is_not_reached_is_red(self, sandbox: Sandbox) -> None:
        """
        With what was passed instead.
        """
        gate = sandbox.gate()
        missed = r"did not die: probe.before was not reached. Passed: claim.before, "
        with pytest.raises(AssertionError, match=missed), crash_at("probe.before"):
            gate.run("k", lambda: 1)
        with pytest.raises(AssertionError, match="none at all: was a gate called in"), crash_at("call.before"):
            pass

    def test_a_block_that_swallows_it_is_red(self, sandbox: Sandbox) -> None:
        """
        And says what does so.
        """
        gate = sandbox.gate()
        swallowed = r"the block continued after its process had died at call.before"
        with pytest.raises(AssertionError, match=swallowed), crash_at("call.before"), suppress(BaseException):
            gate.run("k", lambda: 1)

    def test_an_error_of_the_block_is_not_taken_for_its_death(self, sandbox: Sandbox) -> None:
        """
        It is raised as it is.
        """
        with pytest.raises(ZeroDivisionError), crash_at("call.before"):
            1 / 0  # noqa: B018

    def test_names_that_are_none_are_refused(self) -> None:
        """
        With the nearest that are; a store's are found although its module was not imported.
        """
        with pytest.raises(ConfigurationError, match=r"called 'settle.befor'. Did you mean settle.before"):
            crash_at("settle.befor").__enter__()
        with pytest.raises(ConfigurationError, match="0 or more"):
            crash_at("settle.before", skip=-1).__enter__()
        with pytest.raises(ConfigurationError, match="name the failpoint where the process dies"):
            CrashHere()()
        assert CrashHere("sqlite.commit.before").name == "sqlite.commit.before"

    def test_one_process_dies_at_a_time(self) -> None:
        """
        Failpoints belong to the whole of Python's process.
        """
        with pytest.raises(ConfigurationError, match="armed already"), crash_at("call.before"):
            crash_at("call.after").__enter__()


class TestSandbox:
    """One world: its URL names its store, on its clock."""

    def test_its_url_opens_the_same_store_on_the_same_clock(self, sandbox: Sandbox) -> None:
        """
        For code that takes a URL.
        """
        gate = Gate(sandbox.url, scope="test:sandbox", environment=sandbox.clock)
        assert gate.run("k", lambda: 1) == 1
        assert sandbox.gate().run("k", lambda: 2) == 1
        sandbox.close()
        with pytest.raises(ConfigurationError, match="this sandbox is closed"):
            Gate(sandbox.url, scope="test:sandbox")

    def test_it_refuses_a_live_scope(self, sandbox: Sandbox) -> None:
        """
        A test is no customer.
        """
        with pytest.raises(ConfigurationError, match="not a live: scope"):
            sandbox.gate(scope="live:acme")

    def test_death_is_no_exception_that_people_catch(self) -> None:
        """
        Neither `Exception` nor one that frameworks treat as their own.
        """
        assert ProcessDied.__mro__ == (ProcessDied, BaseException, object)
