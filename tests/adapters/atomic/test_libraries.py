"""
Atomic mode on SQLAlchemy and Django: one text, every library, driver, colour and database.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from desks import CREATED, KINDS, MATRIX, Caller, Desk, in_play
from playing import Scenario, play

from onceward import ConfigurationError, Gate, InDoubt, InFlight, KeyReused
from onceward.errors import IllegalMove, RecordedFailure, ResultInvalid, RetryTransaction
from servers.postgres import running

ON_POSTGRES = [kind for kind in KINDS if kind.database == "postgresql"]


class Spoiled(Exception):
    """The caller's own work went wrong."""


@pytest.fixture(params=in_play(MATRIX), ids=str)
def at_all(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Plays a scenario with every driver under every target."""
    return lambda scenario: play(request.param, tmp_path, scenario)


@pytest.fixture(params=in_play(KINDS), ids=str)
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Plays a scenario with every kind."""
    return lambda scenario: play(request.param, tmp_path, scenario)


@pytest.fixture(params=in_play(ON_POSTGRES), ids=str)
def at_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Plays a scenario with every kind that talks to PostgreSQL."""
    return lambda scenario: play(request.param, tmp_path, scenario)


def failing(caller: Caller, error: BaseException) -> Callable[[], Any]:
    """An operation that fails after its row."""

    async def fail() -> None:
        await caller.charge()
        raise error

    return fail


@pytest.mark.requirement("E06", "E15", "E16")
def test_rows_and_record_commit_together_and_replay_or_neither_is_there(at_all: Callable[[Scenario], None]) -> None:
    """
    With no transaction open, one is opened and committed. A failure undoes both, and the same key runs again.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            with pytest.raises(Spoiled):
                await caller.atomic("charge:1", failing(caller, Spoiled()), request=1)
            undone = (desk.place.rows(), desk.place.states(), caller.in_transaction())
            answers = [await caller.atomic("charge:1", request=1) for _ in range(3)]
            kept = (desk.place.rows(), desk.place.states(), caller.in_transaction())
            with pytest.raises(KeyReused):
                await caller.atomic("charge:1", request=2)

            assert undone == (0, {}, False)
            assert answers == [CREATED] * 3
            assert kept == (1, {"charge:1": "settled"}, False)

    at_all(scenario)


@pytest.mark.requirement("E18", "E21")
def test_a_violated_constraint_of_the_callers_own_table_surfaces_unchanged(at_all: Callable[[Scenario], None]) -> None:
    """
    A primary key and a unique index: on every driver the library's own IntegrityError, and nothing of it is kept.
    """

    async def scenario(desk: Desk) -> None:
        desk.place.ask("INSERT INTO invoices VALUES ('R-1')")
        desk.place.ask("INSERT INTO charges VALUES (7, '1.00')")
        desk.place.ask("CREATE UNIQUE INDEX one_each ON charges (customer)")
        async with desk.caller() as caller:
            for sql in ("INSERT INTO invoices VALUES ('R-1')", "INSERT INTO charges VALUES (7, '2.00')"):

                async def insert(sql: str = sql) -> None:
                    await caller.charge()
                    await caller.execute(sql)

                with pytest.raises(desk.violation):
                    await caller.atomic("charge:1", insert)

                assert (desk.place.rows(), desk.place.states(), caller.in_transaction()) == (1, {}, False)

    at_all(scenario)


def test_inside_the_callers_transaction_the_caller_decides(at: Callable[[Scenario], None]) -> None:
    """
    Joined, nothing is committed before the caller commits; undone, the caller's rollback takes rows and record.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            with pytest.raises(Spoiled):
                async with caller.transaction():
                    await caller.atomic("charge:1")
                    raise Spoiled
            rolled_back = (desk.place.rows(), desk.place.states())
            async with caller.transaction():
                await caller.execute("INSERT INTO invoices VALUES ('R-2')")
                await caller.atomic("charge:1")
                open_still = (caller.in_transaction(), desk.place.rows())
            await caller.atomic("charge:1")

            assert rolled_back == (0, {})
            assert open_still == (True, 0)
            assert (
                desk.place.rows(),
                desk.place.rows("invoices"),
                desk.place.states(),
            ) == (1, 1, {"charge:1": "settled"})

    at(scenario)


def test_a_failure_inside_the_callers_transaction_undoes_only_itself(at: Callable[[Scenario], None]) -> None:
    """
    Whether the function raised or the database did, the savepoint is undone and the transaction stays usable.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:

            async def violate() -> None:
                await caller.charge()
                await caller.execute("INSERT INTO invoices VALUES ('R-3')")

            async with caller.transaction():
                await caller.execute("INSERT INTO invoices VALUES ('R-3')")
                with pytest.raises(Spoiled):
                    await caller.atomic("charge:1", failing(caller, Spoiled()))
                with pytest.raises(desk.violation):
                    await caller.atomic("charge:2", violate)
                await caller.atomic("charge:3")

            assert (
                desk.place.rows(),
                desk.place.rows("invoices"),
                desk.place.states(),
            ) == (1, 1, {"charge:3": "settled"})

    at(scenario)


def test_operations_and_savepoints_nest(at: Callable[[Scenario], None]) -> None:
    """
    Inside an operation: another one, one that fails, a savepoint of the caller's own that is kept and one that is not.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:

            async def outer() -> str:
                await caller.atomic("inner:1")
                with pytest.raises(Spoiled):
                    await caller.atomic("inner:2", failing(caller, Spoiled()))
                async with caller.transaction(nested=True):
                    await caller.charge()
                with pytest.raises(Spoiled):
                    async with caller.transaction(nested=True):
                        await caller.charge()
                        raise Spoiled
                return "done"

            assert await caller.atomic("outer:1", outer) == "done"
            assert desk.place.rows() == 2
            assert desk.place.states() == {"inner:1": "settled", "outer:1": "settled"}

    at(scenario)


def test_the_block_form_settles_replays_and_undoes(at: Callable[[Scenario], None]) -> None:
    """
    The block says what is stored, and a later one is shown it; a block that raises leaves nothing.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            with pytest.raises(Spoiled):
                async with caller.block("charge:1"):
                    await caller.charge()
                    raise Spoiled
            async with caller.block("charge:1") as operation:
                operation.settle(await caller.charge())
            async with caller.block("charge:1") as operation:
                assert (operation.replayed, operation.value) == (True, CREATED)

            assert desk.place.rows() == 1

    at(scenario)


@pytest.mark.requirement("E19", "E20", "E25")
@pytest.mark.parametrize("claim", ["first", "last"])
def test_racers_wait_for_the_winner_and_replay_it(at_all: Callable[[Scenario], None], claim: str) -> None:
    """
    Callers that start together: one counts, everybody has its answer, one row stands. Claimed first, one runs.
    """

    async def scenario(desk: Desk) -> None:
        async def race(number: int) -> Any:
            async with desk.caller() as caller:

                async def charge() -> str:
                    await caller.charge()
                    return f"by {number}"

                return await caller.atomic("charge:1", charge, claim=claim)

        answers = await desk.race(5, race)

        assert (len(answers), len(set(answers)), desk.place.rows()) == (5, 1, 1)

    at_all(scenario)


def test_a_remembered_failure_keeps_its_record_and_undoes_its_rows(at: Callable[[Scenario], None]) -> None:
    """
    remember="all": the failure is replayed as data, the rows are gone, the caller's transaction goes on.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            async with caller.transaction():
                with pytest.raises(ValueError):
                    await caller.atomic("all:1", failing(caller, ValueError("card declined")), remember="all")
            with pytest.raises(RecordedFailure, match="card declined"):
                await caller.atomic("all:1", remember="all")
            await caller.atomic("all:2", remember="all")

            assert desk.place.rows() == 1

    at(scenario)


def test_a_result_that_cannot_be_stored_undoes_everything(at: Callable[[Scenario], None]) -> None:
    """
    In the caller's transaction "could not store" can be "did not happen": it is undone, and said.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:

            async def unstorable() -> object:
                await caller.charge()
                return object()

            with pytest.raises(ResultInvalid, match="so nothing happened"):
                await caller.atomic("charge:1", unstorable)

            assert (desk.place.rows(), desk.place.states()) == (0, {})

    at(scenario)


def test_the_steps_of_a_plan_share_the_transaction(at: Callable[[Scenario], None]) -> None:
    """
    What settled replays and lengthens the life of the plan, on the caller's own connection.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            async with caller.transaction():
                await caller.step("migrate", "one", caller.charge)
                await caller.step("migrate", "two", caller.charge)
            again = await caller.step("migrate", "one", caller.charge)

            assert (again, desk.place.rows()) == (CREATED, 2)

    at(scenario)


@pytest.mark.parametrize("ending", ["rollback", "commit"])
@pytest.mark.parametrize("raises", [False, True])
def test_a_function_that_ends_the_transaction_itself_is_told(
    at: Callable[[Scenario], None], ending: str, raises: bool
) -> None:
    """
    Record and rows were parted: the gate says so, and what was committed is in doubt and never runs again.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:

            async def meddling() -> None:
                await caller.charge()
                await caller.end(ending)
                if raises:
                    raise Spoiled

            with pytest.raises(Spoiled if raises else IllegalMove):
                await caller.atomic("charge:1", meddling)

            if ending == "rollback":
                assert (desk.place.rows(), desk.place.states()) == (0, {})
                assert await caller.atomic("charge:1") == CREATED
            else:
                assert (desk.place.rows(), desk.place.states()) == (1, {"charge:1": "in_doubt"})
                with pytest.raises(InDoubt):
                    await caller.atomic("charge:1")

    at(scenario)


def test_a_claim_held_outside_the_transaction_is_in_flight(at: Callable[[Scenario], None]) -> None:
    """
    Waiting inside a transaction would keep that holder from settling, so the caller is told.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:

            async def outside() -> str:
                with pytest.raises(InFlight):
                    await caller.atomic("charge:1")
                return "done"

            assert await caller.run("charge:1", outside) == "done"
            assert (desk.place.rows(), desk.place.states()) == (0, {"charge:1": "settled"})

    at(scenario)


@pytest.mark.requirement("E22")
@pytest.mark.dose(2)
def test_a_key_that_another_transaction_holds_is_waited_for_only_so_long(
    at_postgres: Callable[[Scenario], None],
) -> None:
    """
    Then the transaction has to run again. The caller's lock timeout is as it was, after success and after failure.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as holder, desk.caller() as caller:
            async with caller.transaction():
                await caller.execute("SET LOCAL lock_timeout = '7s'")
                async with holder.transaction():
                    await holder.atomic("charge:1")
                    with pytest.raises(RetryTransaction):
                        await caller.atomic("charge:1")
                after_failure = await caller.execute("SHOW lock_timeout")
                replayed = await caller.atomic("charge:1")
                after_success = await caller.execute("SHOW lock_timeout")

            assert [("7s",)] == after_failure == after_success
            assert (replayed, desk.place.rows()) == (CREATED, 1)

    at_postgres(scenario)


def test_above_read_committed_the_transaction_has_to_run_again(at_postgres: Callable[[Scenario], None]) -> None:
    """
    Its snapshot is older than the winner's commit: it can neither win nor see who did.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:
            with pytest.raises(RetryTransaction):
                async with caller.transaction():
                    await caller.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    await caller.execute("SELECT count(*) FROM charges")
                    with (
                        Gate(desk.place.gate_url(), scope="live:acme") as other,
                        psycopg.connect(desk.place.url) as winner,
                    ):
                        other.atomic(winner, "charge:1", lambda: "theirs")
                    await caller.atomic("charge:1")

            assert await caller.atomic("charge:1") == "theirs"

    at_postgres(scenario)


def test_a_transaction_that_has_failed_is_told_to_let_the_error_through(
    at_postgres: Callable[[Scenario], None],
) -> None:
    """
    A swallowed error leaves a transaction that can only be rolled back; so does one swallowed inside the function.
    """

    async def scenario(desk: Desk) -> None:
        async with desk.caller() as caller:

            async def swallow() -> None:
                with pytest.raises(Exception, match="nowhere"):
                    await caller.execute("SELECT * FROM nowhere")

            for remember in ("success", "all"):
                with pytest.raises(IllegalMove, match="do not catch that error"):
                    await caller.atomic("charge:1", swallow, remember=remember)
                assert not caller.in_transaction()
            with pytest.raises(IllegalMove, match="do not catch that error"):
                async with caller.transaction():
                    await swallow()
                    await caller.atomic("charge:1")

            assert await caller.atomic("charge:1") == CREATED
            assert (desk.place.rows(), desk.place.states()) == (1, {"charge:1": "settled"})

    at_postgres(scenario)


def test_another_database_or_another_kind_of_store_is_refused(at: Callable[[Scenario], None], tmp_path: Path) -> None:
    """
    Record and rows could not commit together, so nothing is begun.
    """

    async def scenario(desk: Desk) -> None:
        gate = type(desk.gate)
        elsewhere = f"sqlite:///{tmp_path}/other.db"
        others = [gate(elsewhere, scope="live:acme"), gate("memory://", scope="live:acme")]
        if desk.kind.database == "postgresql":
            others.append(gate(running().url("postgres"), scope="live:acme"))
        ours = desk.gate
        async with desk.caller() as caller:
            for other in others:
                desk.gate = other
                with pytest.raises(ConfigurationError, match=r"one database|share your transaction"):
                    await caller.atomic("charge:1")
                assert (desk.place.rows(), caller.in_transaction()) == (0, False)
        for other in others:
            await caller.did(other.close())
        desk.gate = ours

    at(scenario)
