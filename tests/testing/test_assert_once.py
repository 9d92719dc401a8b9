"""`assert_once`: what is safe passes, what doubles is told as a story, and what cannot be checked does not pass."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onceward import NOT_FOUND, Found, Gate, InFlight, Operation, OutcomeUnknown, mint
from onceward.errors import ConfigurationError
from onceward.runtime import failpoints
from onceward.stores import open_store
from onceward.stores.memory import MemoryStore
from onceward.testing.once_scenes import Arrival
from onceward.testing.once_story import DoubledEffect, LostEffect, NothingChecked
from onceward.testing.sandbox import Sandbox

POINTS = (
    "claim.before",
    "claim.after",
    "call.before",
    "effect.before",
    "effect.after",
    "call.after",
    "settle.before",
    "settle.after",
)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A world of its own, and nothing is left armed after it."""
    sandbox = Sandbox()
    yield sandbox
    sandbox.close()
    assert not failpoints.armed()


def charging(sandbox: Sandbox, **options: Any) -> Callable[[], str]:
    """A function behind a gate, with one effect that knows no keys."""
    gate = sandbox.gate(**options)

    def charged() -> str:
        sandbox.effects.record("charge")
        return "charged"

    def charge() -> str:
        answer: str = gate.run("charge", charged)
        return answer

    return charge


class TestWhatIsSafe:
    """It passes, and the report says what was tried."""

    @pytest.mark.fault("once-no-crashes")
    def test_every_failpoint_of_a_run_is_a_crash(self, sandbox: Sandbox) -> None:
        """
        Each that an undisturbed run passes; and at each of them a duplicate comes, to a first that is alive or stalls.
        """
        report = sandbox.assert_once(charging(sandbox))

        assert report.points == POINTS
        assert report.crashes == len(POINTS)
        assert report.scenes == 2 + 3 * len(POINTS)
        assert (report.answered > 0, report.refused > 0) == (True, True)
        assert "charge: one effect in 26 scenarios, with 8 crashes" in str(report)

    def test_an_async_function_needs_no_event_loop_of_the_test(self, sandbox: Sandbox) -> None:
        """
        The same points, the same courses.
        """
        gate = sandbox.awaiting_gate()

        @gate.once(key="charge:{order}")
        async def charge(order: str) -> str:
            sandbox.effects.record("charge")
            await asyncio.sleep(0)
            return order

        assert sandbox.assert_once(charge, "o-17").points == POINTS
        assert sandbox.assert_once(lambda: charge("o-17")).points == POINTS

    def test_an_async_function_is_checked_in_the_tests_own_loop(self, sandbox: Sandbox) -> None:
        """
        It is awaited where the test is, apart from the duplicates beside it.
        """
        gate = sandbox.awaiting_gate()
        loops: list[asyncio.AbstractEventLoop] = []

        async def charge() -> str:
            loops.append(asyncio.get_running_loop())
            sandbox.effects.record("charge")
            return "charged"

        async def check() -> bool:
            report = await sandbox.assert_once.in_loop(
                lambda: gate.run("charge", charge), in_flight=False, stalls=False
            )
            return report.points == POINTS and set(loops) == {asyncio.get_running_loop()}

        assert asyncio.run(check())

    def test_a_receiver_that_honours_keys_is_asked_again_and_acts_once(self, sandbox: Sandbox) -> None:
        """
        guarantee="keyed" runs again after a crash, under the same key.
        """
        gate = sandbox.gate()

        @gate.once(key="charge:{order}", guarantee="keyed")
        def charge(operation: Operation, order: str) -> str:
            sandbox.effects.record("charge", key=operation.downstream_key("stripe"))
            return order

        assert sandbox.assert_once(charge, "o-17").crashes == len(POINTS)

    def test_rows_in_the_callers_own_transaction_are_counted_in_their_table(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        """
        A real SQLite file, a count of rows, and a reset: no recorder is needed.
        """
        file = tmp_path / "shop.db"
        store = open_store(f"sqlite:///{file}", environment=sandbox.clock)
        gate = Gate(store, scope="test:shop", environment=sandbox.clock)

        def query(text: str) -> int:
            with closing(sqlite3.connect(file)) as connection, connection:
                found = connection.execute(text).fetchone()
                return found[0] if found else 0

        def insert() -> str:
            with closing(sqlite3.connect(file)) as connection:
                run = lambda: connection.execute("INSERT INTO charges VALUES (1)") and "inserted"  # noqa: E731
                return gate.atomic(connection, "charge", run)

        def reset() -> None:
            query("DELETE FROM charges")
            query("DELETE FROM onceward_records")

        query("CREATE TABLE charges (amount INTEGER)")
        report = sandbox.assert_once(
            insert, count=lambda: query("SELECT count(*) FROM charges"), reset=reset, in_flight=False, stalls=False
        )
        gate.close()
        assert {"begin.after", "claim.after", "call.after", "commit.before"} <= set(report.points)

    def test_the_world_is_put_back(self, sandbox: Sandbox) -> None:
        """
        A second check in the same test begins where the first did; a record that stood there stands there still.
        """
        gate = sandbox.gate()
        gate.run("other", lambda: "kept")
        charge = charging(sandbox)
        first, second = sandbox.assert_once(charge), sandbox.assert_once(charge)

        assert first == second
        assert sandbox.effects.count() == 0
        assert gate.records.get("other") is not None

    def test_a_retry_finds_a_lease_of_any_length_over(self, sandbox: Sandbox) -> None:
        """
        A duplicate that waits longer than a short lease is patient on its own time: the first is alive, and renews.
        """
        assert sandbox.assert_once(charging(sandbox, lease=5.0, wait=30.0)).crashes == len(POINTS)


class TestWhatDoubles:
    """The first course of events that doubles is told, with the point."""

    @pytest.mark.fault("once-judges-nothing")
    def test_the_story_names_the_point_and_each_call(self, sandbox: Sandbox) -> None:
        """
        Where it died, what each retry was told, how many effects there were by then, and what to look for.
        """
        with pytest.raises(DoubledEffect) as told:
            sandbox.assert_once(charging(sandbox, guarantee="repeatable"))

        lines = str(told.value).splitlines()
        assert lines[0].endswith("charge doubled: 2 x charge, where one run makes 1")
        assert lines[1] == "Scenario 7: a crash at effect.after (just after an effect that a test records)"
        assert lines[2] == "  1. the first call: the process dies at effect.after  [1 x charge]"
        assert lines[3].startswith("  2. retried at once: raised InFlight: ")
        assert lines[4] == (
            "  3. retried a minute later, when a default lease has run out: returned 'charged'  [2 x charge]"
        )
        assert lines[5].startswith("Common causes: an effect outside the gate")

    def test_a_function_without_a_gate_doubles_at_the_first_duplicate(self, sandbox: Sandbox) -> None:
        """
        Nothing need crash for that.
        """
        with pytest.raises(DoubledEffect, match=r"2. a duplicate at once: returned 1"):
            sandbox.assert_once(lambda: sandbox.effects.record("mail") and 1)

    def test_a_key_that_changes_from_call_to_call_doubles(self, sandbox: Sandbox) -> None:
        """
        The gate is there, and does not help.
        """
        gate = sandbox.gate()

        with pytest.raises(DoubledEffect, match="a key that differs from call to call"):
            sandbox.assert_once(lambda: gate.run(mint(), lambda: sandbox.effects.record("mail")))

    @pytest.mark.fault("once-no-late-duplicates")
    def test_a_duplicate_after_expiry_doubles_where_the_gate_runs_again(self, sandbox: Sandbox) -> None:
        """
        after_expiry="run" says so; who wants that says late=, and it passes.
        """
        charge = charging(sandbox, after_expiry="run")

        with pytest.raises(DoubledEffect, match="a duplicate 25 h after the first"):
            sandbox.assert_once(charge)
        assert sandbox.assert_once(charge, late=[timedelta(hours=1)]).crashes == len(POINTS)

    @pytest.mark.fault("once-no-duplicate-beside")
    def test_who_looks_before_writing_doubles_while_the_first_is_running(self, sandbox: Sandbox) -> None:
        """
        Every crash is survived, and a duplicate between the look and the mark is not.
        """
        gate, seen = sandbox.gate(), set[str]()

        def charge() -> None:
            if "charge" not in seen:
                gate.run("note", lambda: "noted")
                seen.add("charge")
                sandbox.effects.record("charge")

        with pytest.raises(DoubledEffect, match=r"a duplicate while the first is still running, at claim.before"):
            sandbox.assert_once(charge, reset=seen.clear)
        assert sandbox.assert_once(charge, reset=seen.clear, in_flight=False, stalls=False).crashes > 0

    def test_a_first_that_stalls_past_its_lease_doubles_what_a_probe_did_not_find(self, sandbox: Sandbox) -> None:
        """
        The duplicate found nothing, and did it; then the first woke up.
        """
        gate = sandbox.gate()

        def probe(_: Operation) -> Any:
            return Found("charged") if sandbox.effects.count() else NOT_FOUND

        def charge() -> str:
            return gate.run("charge", lambda: sandbox.effects.record("charge"), guarantee="probed", probe=probe)

        with pytest.raises(DoubledEffect, match=r"a duplicate while the first stalls past its lease, at claim.after"):
            sandbox.assert_once(charge)
        assert sandbox.assert_once(charge, stalls=False).crashes > len(POINTS)  # In the probe, too.

    def test_each_effect_is_counted_by_its_name(self, sandbox: Sandbox) -> None:
        """
        Two mails in one run are two; the charge beside them, outside of the gate, is what doubles.
        """
        gate = sandbox.gate()

        def order() -> int:
            sandbox.effects.record("charge")
            return gate.run("mails", lambda: sandbox.effects.record("mail") + sandbox.effects.record("mail"))

        with pytest.raises(DoubledEffect, match="2 x charge, where one run makes 1"):
            sandbox.assert_once(order)

    def test_an_answer_without_its_effect_is_reported_too(self, sandbox: Sandbox) -> None:
        """
        Who marks it as done first never doubles, and loses it in a crash.
        """
        gate, seen = sandbox.gate(), set[str]()

        def charge() -> str:
            if "charge" not in seen:
                seen.add("charge")
                gate.run("charge", lambda: sandbox.effects.record("charge"))
            return "charged"

        with pytest.raises(LostEffect, match="returned its usual result, but its effect is missing: charge"):
            sandbox.assert_once(charge, reset=seen.clear)

    def test_a_schedule_is_played_as_it_says(self, sandbox: Sandbox) -> None:
        """
        Such as Hypothesis draws. One that comes to no crash is played all the same.
        """
        schedule = [Arrival(0, "effect.after"), Arrival(61, "probe.before"), Arrival(1)]
        report = sandbox.assert_once.under(schedule, charging(sandbox))

        assert (report.scenes, report.refused) == (2, 2)
        with pytest.raises(DoubledEffect, match=r"2. 61 s later, a call: returned 'charged'"):
            sandbox.assert_once.under(schedule, charging(sandbox, guarantee="repeatable"))


class TestWhatCannotBeChecked:
    """A check that cannot fail must not pass: each is told apart, with what to do."""

    @pytest.mark.fault("once-passes-without-an-effect")
    def test_a_function_that_has_no_effect(self, sandbox: Sandbox) -> None:
        """
        Neither recorded nor counted.
        """
        gate = sandbox.gate()
        call = lambda: gate.run("charge", lambda: "charged")  # noqa: E731

        with pytest.raises(
            NothingChecked, match=r"returned without an effect: onceward_effects.record\(...\) was not called"
        ):
            sandbox.assert_once(call)
        with pytest.raises(NothingChecked, match=r"returned without an effect: count\(\) has not changed"):
            sandbox.assert_once(call, count=lambda: 7)
        with pytest.raises(NothingChecked, match="must return how many effects there are, a number; it returned None"):
            sandbox.assert_once(call, count=lambda: None)  # type: ignore[arg-type,return-value]

    @pytest.mark.fault("once-passes-without-a-gate")
    def test_a_function_that_never_goes_through_a_gate(self, sandbox: Sandbox) -> None:
        """
        It remembers by itself, so it does not double here; and no crash between two effects can be tried.
        """
        seen: set[str] = set()

        def charge() -> None:
            if "charge" not in seen:
                seen.add("charge")
                sandbox.effects.record("charge")

        with pytest.raises(NothingChecked, match="passed no failpoint of Onceward, so"):
            sandbox.assert_once(charge, reset=seen.clear)

    @pytest.mark.fault("once-passes-on-another-clock")
    def test_a_gate_on_another_clock(self, sandbox: Sandbox) -> None:
        """
        Its leases would end when nobody waits for them any more.
        """
        gate = Gate(sandbox.store, scope="test:other", wait=0)
        with pytest.raises(NothingChecked, match="a gate that has another clock"):
            sandbox.assert_once(lambda: gate.run("charge", sandbox.effects.record))

    def test_a_store_on_another_clock(self, sandbox: Sandbox) -> None:
        """
        The gate's clock is moved, and the store's lease stands still.
        """
        store = MemoryStore()
        gate = Gate(store, scope="test:other", environment=sandbox.clock)

        def reset() -> None:
            store._rows.rows.clear()

        with pytest.raises(NothingChecked, match="still in flight two hours after the crash"):
            sandbox.assert_once(lambda: gate.run("charge", sandbox.effects.record), reset=reset)

    def test_a_world_that_is_not_put_back(self, sandbox: Sandbox) -> None:
        """
        The second course of events would replay the first.
        """
        gate = Gate(MemoryStore(environment=sandbox.clock), scope="test:other", environment=sandbox.clock)

        with pytest.raises(NothingChecked, match=r"took another path .* Put back what it left behind \(reset=\)"):
            sandbox.assert_once(lambda: gate.run("charge", sandbox.effects.record) and None)

    def test_a_function_that_raises_by_itself(self, sandbox: Sandbox) -> None:
        """
        With its own error as the cause.
        """

        def broken() -> None:
            raise KeyError("no such order")

        with pytest.raises(
            NothingChecked, match=r"raised KeyError in its first, undisturbed run\. .* 'no such order'"
        ) as told:
            sandbox.assert_once(broken)
        assert type(told.value.__cause__) is KeyError

    def test_an_error_that_only_duplicates_raise_is_a_refusal_if_it_is_named(self, sandbox: Sandbox) -> None:
        """
        Code that turns our refusals into errors of its own says which.
        """

        class NotAgain(Exception):
            pass

        charge = charging(sandbox)

        def theirs() -> str:
            try:
                return charge()
            except (InFlight, OutcomeUnknown, RuntimeError) as error:
                raise NotAgain from error

        with pytest.raises(NothingChecked, match=r"raised NotAgain, .* list it: refusals=\(...,\)"):
            sandbox.assert_once(theirs)
        assert sandbox.assert_once(theirs, refusals=(NotAgain,)).crashes == len(POINTS)

    @pytest.mark.fault("once-a-swallowed-crash-is-survived")
    def test_a_function_that_swallows_its_own_death(self, sandbox: Sandbox) -> None:
        """
        No process can do that.
        """
        charge = charging(sandbox)

        def immortal() -> str:
            try:
                return charge()
            except BaseException:
                return "all is well"

        with pytest.raises(
            NothingChecked, match=r"continued after its process had died at claim.before: .* bare `except:`"
        ):
            sandbox.assert_once(immortal)

    def test_a_function_that_hangs(self, sandbox: Sandbox) -> None:
        """
        It is told where.
        """
        gate, never = sandbox.gate(), threading.Event()

        def hangs() -> None:
            gate.run("charge", never.wait)

        with pytest.raises(NothingChecked, match=r"has not returned after 0.05 s .*test_assert_once.py:\d+, in hangs"):
            sandbox.assert_once(hangs, seconds=0.05)
        never.set()

    def test_a_function_that_tries_for_ever(self, sandbox: Sandbox) -> None:
        """
        With a still clock, waiting takes no time: the steps are counted.
        """
        gate = sandbox.gate()

        def stubborn() -> None:
            while True:
                gate.run("charge", sandbox.effects.record)

        with pytest.raises(NothingChecked, match="passed 100 failpoints in one call and did not end"):
            sandbox.assert_once(stubborn, steps=100)

    @pytest.mark.parametrize(
        ("fn", "args", "words"),
        [
            ((lambda: (yield)), (), "is a generator: calling it runs nothing"),
            ((lambda order: order), (), "cannot be called with these arguments .*'order'"),
            ((lambda: 1), ("o-17",), "cannot be called with these arguments .*too many"),
            ("charge", (), "takes a function to call often, not str"),
        ],
    )
    def test_what_cannot_be_called(self, sandbox: Sandbox, fn: Any, args: tuple[Any, ...], words: str) -> None:
        """
        It is refused before anything is run.
        """
        with pytest.raises(ConfigurationError, match=words):
            sandbox.assert_once(fn, *args)

    def test_a_function_that_gives_back_a_generator(self, sandbox: Sandbox) -> None:
        """
        Nothing of it would run.
        """
        with pytest.raises(NothingChecked, match="returns a generator: nothing runs until it is read"):
            sandbox.assert_once(lambda: (number for number in range(3)))

    def test_limits_that_limit_nothing(self, sandbox: Sandbox) -> None:
        """
        And options that are none.
        """
        with pytest.raises(ConfigurationError, match="more than 0"):
            sandbox.assert_once(print, seconds=0)
        with pytest.raises(TypeError, match="unexpected keyword argument 'second'"):
            sandbox.assert_once(print, second=1)  # type: ignore[call-arg]
