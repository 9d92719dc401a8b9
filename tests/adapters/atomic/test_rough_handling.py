"""
Atomic mode in rough hands: what people do to their connections, on every library and database.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from desks import CREATED, KINDS, Desk, Kind, in_play
from playing import Scenario, play

from onceward import InFlight
from onceward.errors import IllegalMove, RetryTransaction

pytestmark = pytest.mark.dose(2, of="at_postgres")

ON_POSTGRES = [kind for kind in KINDS if kind.database == "postgresql"]


@pytest.fixture(params=in_play(KINDS), ids=str)
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Play a scenario at a desk of each kind."""
    return lambda scenario: play(request.param, tmp_path, scenario)


@pytest.fixture(params=in_play(ON_POSTGRES), ids=str)
def at_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Play a scenario at a desk of each kind on PostgreSQL."""
    return lambda scenario: play(request.param, tmp_path, scenario)


@pytest.mark.parametrize("claim", ["first", "last"])
def test_a_block_in_a_generator_that_is_closed_is_undone(at: Callable[[Scenario], None], claim: str) -> None:
    """
    Whoever iterates may stop half way: Python then raises GeneratorExit in the block, and nothing is left open.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:

            async def charging() -> AsyncIterator[int]:
                async with caller.block("charge:1", claim=claim) as operation:
                    await caller.charge()
                    yield 1
                    operation.settle("never")

            steps = charging()
            await anext(steps)
            await steps.aclose()  # type: ignore[attr-defined] # It is a generator.

            assert (desk.place.rows(), desk.place.states(), caller.in_transaction()) == (0, {}, False)

    at(scenario)


@pytest.mark.parametrize("claim", ["first", "last"])
def test_a_key_inside_of_itself_is_refused_and_nothing_is_kept(at: Callable[[Scenario], None], claim: str) -> None:
    """
    Nobody is given an answer whose record was undone, and the function does not run again and again.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            runs = []

            async def outer() -> Any:
                runs.append(1)
                await caller.charge()
                return await caller.atomic("charge:1", claim=claim)

            with pytest.raises(InFlight if claim == "first" else IllegalMove):
                await caller.atomic("charge:1", outer, claim=claim)
            assert (runs, desk.place.rows(), desk.place.states()) == ([1], 0, {})
            with pytest.raises(InFlight if claim == "first" else IllegalMove):
                async with caller.transaction():
                    await caller.atomic("charge:1", outer, claim=claim)

            assert (runs, desk.place.rows(), desk.place.states()) == ([1, 1], 0, {})

    at(scenario)


def test_claimed_last_a_duplicate_in_one_transaction_replays(at: Callable[[Scenario], None]) -> None:
    """
    The record is not committed yet, and is seen all the same: the function runs once.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            async with caller.transaction():
                answers = [await caller.atomic("charge:1", claim="last") for _ in range(2)]

            assert (answers, desk.place.rows()) == ([CREATED] * 2, 1)

    at(scenario)


@pytest.mark.parametrize("claim", ["first", "last"])
def test_a_trigger_that_raises_at_the_commit_is_heard_as_it_is(
    at_postgres: Callable[[Scenario], None], claim: str
) -> None:
    """
    It is the caller's own rule and the library's own error, not a store that does not answer.
    """

    async def scenario(desk: Desk) -> None:
        desk.place.ask(
            "CREATE OR REPLACE FUNCTION too_many() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'one charge too many'; END $$"
        )
        desk.place.ask(
            "CREATE CONSTRAINT TRIGGER too_many AFTER INSERT ON charges DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION too_many()"
        )
        async with desk.caller() as caller:
            with pytest.raises(Exception, match="one charge too many") as raised:
                await caller.atomic("charge:1", claim=claim)

            assert not type(raised.value).__module__.startswith("onceward")
            assert (desk.place.rows(), desk.place.states(), caller.in_transaction()) == (0, {}, False)

    at_postgres(scenario)


def test_a_step_waits_for_the_other_steps_only_so_long(at_postgres: Callable[[Scenario], None]) -> None:
    """
    Every step lengthens the life of its plan's other steps: whoever holds those is waited for as for the key itself.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as holder, desk.caller() as caller:
            await caller.step("migrate", "one", caller.charge)
            async with holder.transaction():
                await holder.step("migrate", "two", holder.charge)
                async with caller.transaction():
                    await caller.execute("SET LOCAL statement_timeout = '5s'")
                    await caller.execute("SET LOCAL lock_timeout = '7s'")
                    with pytest.raises(RetryTransaction):
                        await caller.step("migrate", "three", caller.charge)
                    after_failure = await caller.execute("SHOW lock_timeout")
            async with caller.transaction():
                await caller.execute("SET LOCAL lock_timeout = '7s'")
                await caller.step("migrate", "three", caller.charge)
                after_success = await caller.execute("SHOW lock_timeout")

            assert [("7s",)] == after_failure == after_success
            assert desk.place.rows() == 3

    at_postgres(scenario)


@pytest.mark.parametrize("kind", in_play([kind for kind in ON_POSTGRES if "pg8000" not in kind.driver]), ids=str)
def test_a_failure_that_cannot_be_remembered_is_raised_as_it_is(kind: Kind, tmp_path: Path) -> None:
    """
    The connection is lost: what the function raised about that is the news. Nothing was kept, the same key runs again.

    Not with pg8000, whose lost connections SQLAlchemy does not recognise: there it is StoreUnavailable.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:

            async def cut_off() -> None:
                await caller.charge()
                [(pid,)] = await caller.execute("SELECT pg_backend_pid()")
                desk.place.ask(f"SELECT pg_terminate_backend({pid})")
                await caller.charge()

            with pytest.raises(Exception) as raised:
                await caller.atomic("charge:1", cut_off, remember="all")

            assert not type(raised.value).__module__.startswith("onceward")
            assert "could not be remembered" in raised.value.__notes__[0]
            assert (desk.place.rows(), desk.place.states()) == (0, {})
            assert await caller.atomic("charge:1", remember="all") == CREATED

    play(kind, tmp_path, scenario)
