"""
Atomic mode in rough hands, on the caller's own psycopg connection, in both colours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from atomic_support import COLOURS, Bank, entered, told
from psycopg.pq import TransactionStatus

from onceward import InDoubt, StoreUnavailable
from onceward.errors import IllegalMove, RetryTransaction
from servers.postgres import needed, running

needed()
CLAIMS = pytest.mark.parametrize("claim", ["first", "last"])


@pytest.fixture(params=COLOURS)
def bank(request: pytest.FixtureRequest, admin: psycopg.Connection[Any]) -> Bank:
    """A gate of each colour."""
    return Bank(running().url("onceward"), request.param, wait=0)


@pytest.fixture
def admin() -> Iterator[psycopg.Connection[Any]]:
    """Somebody who sees only what is committed."""
    with psycopg.connect(running().url("onceward"), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS effects, onceward_records, onceward_meta")
        connection.execute("CREATE TABLE effects (name text)")
        yield connection
        connection.execute("DROP SCHEMA IF EXISTS tenant CASCADE")


def committed(admin: psycopg.Connection[Any]) -> tuple[Any, list[Any]]:
    """How many effects, and the states of all records."""
    [(count,)] = admin.execute("SELECT count(*) FROM effects").fetchall()
    return count, [state for (state,) in admin.execute("SELECT state FROM onceward_records").fetchall()]


@CLAIMS
@pytest.mark.parametrize("raises", [False, True])
@told
async def test_with_connection_commits_and_closes_so_it_is_left_in_doubt(
    bank: Bank, admin: psycopg.Connection[Any], claim: str, raises: bool
) -> None:
    """
    What psycopg's own block has committed must not run again, although the connection cannot be asked any more.
    """
    caller = await bank.caller()

    async def leaving() -> str:
        async with entered(caller.connection):
            await caller.book()
        if raises:
            raise ValueError("mine")
        return "done"

    with pytest.raises(ValueError if raises else IllegalMove):
        await caller.atomic("charge:1", leaving, claim=claim)
    with pytest.raises(InDoubt):
        await (await bank.caller()).atomic("charge:1", claim=claim)

    assert committed(admin) == (1, ["in_doubt"])


@CLAIMS
@told
async def test_the_record_goes_where_the_gate_looks_whatever_the_search_path(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    A search path that changes in the function, or on the connection later, leads to nobody else's records.
    """
    caller = await bank.caller()
    await caller.atomic("charge:1", claim=claim)
    admin.execute("CREATE SCHEMA tenant")
    for table in ("onceward_records", "onceward_meta"):
        admin.execute(f"CREATE TABLE tenant.{table} (LIKE public.{table} INCLUDING ALL)".encode())

    async def wandering() -> str:
        await caller.execute("INSERT INTO public.effects VALUES ('two')")
        await caller.execute("SET search_path = tenant")
        return "done"

    for key in ("charge:2", "charge:2", "charge:3"):
        assert await caller.atomic(key, wandering, claim=claim) == "done"

    assert committed(admin) == (3, ["settled"] * 3)
    assert admin.execute("SELECT count(*) FROM tenant.onceward_records").fetchall() == [(0,)]


@CLAIMS
@told
async def test_a_block_in_a_generator_that_is_closed_is_undone(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    Python raises GeneratorExit in the block: the transaction does not stay open.
    """
    caller = await bank.caller()

    async def booking() -> AsyncIterator[int]:
        async with caller.block("charge:1", claim=claim) as operation:
            await caller.book()
            yield 1
            operation.settle("never")

    steps = booking()
    await anext(steps)
    await steps.aclose()  # type: ignore[attr-defined] # It is a generator.

    assert caller.connection.info.transaction_status == TransactionStatus.IDLE
    assert committed(admin) == (0, [])


@told
async def test_claimed_last_a_key_inside_of_itself_runs_once_and_is_refused(
    bank: Bank, admin: psycopg.Connection[Any]
) -> None:
    """
    Neither can be kept; trying again would end the same way.
    """
    caller, runs = await bank.caller(), []

    async def outer() -> Any:
        runs.append(1)
        return await caller.atomic("charge:1", claim="last")

    with pytest.raises(IllegalMove, match="used the same key again"):
        await caller.atomic("charge:1", outer, claim="last")
    async with caller.transaction():
        twice = [await caller.atomic("charge:2", claim="last") for _ in range(2)]

    assert (runs, twice) == ([1], ["one", "one"])
    assert committed(admin) == (1, ["settled"])


@CLAIMS
@told
async def test_a_trigger_that_raises_at_the_commit_is_heard_as_it_is(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    Whatever it raises, be it what our own statements stop by: it is the caller's, and everything is undone.
    """
    admin.execute(
        "CREATE OR REPLACE FUNCTION divide() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 / 0; END $$"
    )
    admin.execute(
        "CREATE CONSTRAINT TRIGGER divide AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION divide()"
    )
    caller = await bank.caller()
    with pytest.raises(psycopg.errors.DivisionByZero):
        await caller.atomic("charge:1", claim=claim)

    assert caller.connection.info.transaction_status == TransactionStatus.IDLE
    assert committed(admin) == (0, [])


@told
async def test_a_step_waits_for_the_other_steps_only_so_long(bank: Bank, admin: psycopg.Connection[Any]) -> None:
    """
    Every step lengthens the life of the others: whoever holds those is waited for as for the key itself.
    """
    holder, caller = await bank.caller(), await bank.caller()
    plan = bank.gate.plan("migrate")
    await bank.value(plan.step("one", lambda: 1, connection=caller.connection))
    async with holder.transaction():
        await bank.value(plan.step("two", lambda: 2, connection=holder.connection))
        await caller.execute("SET statement_timeout = '5s'")
        with pytest.raises(RetryTransaction):
            await bank.value(plan.step("three", lambda: 3, connection=caller.connection))


@told
async def test_a_connection_in_the_middle_of_something_is_refused(bank: Bank, admin: psycopg.Connection[Any]) -> None:
    """
    In a COPY psycopg would wait for itself. A read-only transaction is named as what it is.
    """
    caller = await bank.caller()
    with pytest.raises(IllegalMove, match="COPY"):
        async with entered(caller.connection.cursor().copy("COPY effects FROM STDIN")):
            await caller.atomic("charge:1")
    await caller.rollback()
    await caller.execute("SET TRANSACTION READ ONLY")
    with pytest.raises(StoreUnavailable, match=r"your transaction .* is read-only"):
        await caller.atomic("charge:1")


@CLAIMS
@pytest.mark.parametrize("raises", [False, True])
@told
async def test_over_a_forgotten_record_a_function_that_commits_is_found_out_all_the_same(
    bank: Bank, admin: psycopg.Connection[Any], claim: str, raises: bool
) -> None:
    """
    A settled record past its time makes room, though nobody has purged it: what runs over it is watched like the rest.
    """
    caller = await bank.caller()
    await caller.atomic("charge:1", claim=claim)
    admin.execute("UPDATE onceward_records SET replay_until = 1, forget_at = 1")

    async def leaving() -> str:
        await caller.book()
        await caller.commit()
        await caller.execute("SELECT 1")
        if raises:
            raise ValueError("mine")
        return "done"

    with pytest.raises(ValueError if raises else IllegalMove):
        await caller.atomic("charge:1", leaving, claim=claim)
    with pytest.raises(InDoubt):
        await (await bank.caller()).atomic("charge:1", claim=claim)

    assert committed(admin) == (2, ["in_doubt"])
