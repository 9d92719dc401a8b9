"""What atomic mode prepares on the caller's psycopg connection, and how it speaks there, whatever the caller does."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from onceward.adapters import _psycopg_pipeline
from onceward.adapters._psycopg_pipeline import BoundStatement, SendStatements, exchange, preparable
from onceward.errors import RecordRefused, RetryTransaction
from servers.postgres import needed
from stores.postgres.atomic_support import COLOURS, Bank, Caller, told

needed()

UNSEEN = "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$"
"""Drops what is prepared in a way that psycopg does not see."""
OURS = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'onceward_atomic%'"


@pytest.fixture(params=COLOURS)
def bank(request: pytest.FixtureRequest, url: str, admin: psycopg.Connection[Any]) -> Bank:
    admin.execute("DROP TABLE IF EXISTS effects")
    admin.execute("CREATE TABLE effects (name text)")
    return Bank(url, request.param, wait=0)


@pytest.fixture(params=("first", "last"))
def claim(request: pytest.FixtureRequest) -> str:
    """Both ways to write the key."""
    form: str = request.param
    return form


async def _warmed(bank: Bank, claim: str) -> Caller:
    """A connection on which everything is prepared, the caller's own statement as well."""
    caller = await bank.caller()
    for number in range(7):
        await caller.atomic(f"warm:{number}", claim=claim)
    return caller


async def _prepared(caller: Caller) -> int:
    [(count,)] = await caller.execute(OURS)
    await caller.rollback()
    return int(count)


@told
async def test_a_rollback_that_drops_what_is_prepared_goes_unnoticed(bank: Bank, claim: str) -> None:
    """
    psycopg deallocates everything after a rollback, also after one to a savepoint, in the middle of the function.
    """
    caller = await _warmed(bank, claim)
    before = await caller.execute(OURS)
    await caller.rollback()
    after = await caller.execute(OURS)
    await caller.commit()

    async def survives() -> str:
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with caller.transaction():
                await caller.execute("SELECT 1 / 0")
        return await caller.book("kept")

    assert await caller.atomic("k", survives, claim=claim) == "kept"
    assert await caller.atomic("k", claim=claim) == "kept"
    assert [(0,)] == after < before


async def _drop(caller: Caller, sql: str) -> None:
    await caller.bank.value(caller.connection.set_autocommit(True))
    await caller.execute(sql)
    await caller.bank.value(caller.connection.set_autocommit(False))


@pytest.mark.parametrize("sql", ["DEALLOCATE ALL", "DISCARD ALL", UNSEEN])
@told
async def test_statements_dropped_between_two_calls_are_prepared_again(bank: Bank, claim: str, sql: str) -> None:
    """
    Whoever drops them, and whether the transaction is the gate's or the caller's: nobody is told.
    """
    caller = await _warmed(bank, claim)
    await _drop(caller, sql)
    alone = await caller.atomic("alone", claim=claim)
    await _drop(caller, sql)
    await caller.book("before")
    joined = await caller.atomic("joined", claim=claim)
    await caller.commit()
    [(effects,)] = await caller.execute("SELECT count(*) FROM effects")

    assert (alone, joined, effects) == ("one", "one", 7 + 3)


@told
async def test_statements_dropped_unseen_by_the_function_ask_for_another_run(bank: Bank, claim: str) -> None:
    """
    The caller's work is in that transaction, so only the caller can run it again; nothing of it stands.
    """
    caller = await _warmed(bank, claim)

    async def drop() -> None:
        await caller.book()
        await caller.execute(UNSEEN)

    with pytest.raises(RetryTransaction, match="prepare_threshold=None"):
        await caller.atomic("k", drop, claim=claim)
    found = await bank.record("k")
    [(effects,)] = await caller.execute("SELECT count(*) FROM effects")
    await caller.rollback()

    assert (found, effects, await caller.atomic("k", claim=claim)) == (None, 7, "one")


@told
async def test_a_failure_is_undone_whatever_was_dropped_before(bank: Bank, claim: str) -> None:
    """
    A rollback is never prepared itself: often repeated, psycopg would, and then it can be dropped like the rest.
    """
    caller = await _warmed(bank, claim)

    async def drop() -> None:
        await caller.book()
        await caller.execute(UNSEEN)
        raise ZeroDivisionError

    for _ in range(9):
        with pytest.raises(ZeroDivisionError):
            await caller.atomic("k", drop, claim=claim)
        assert caller.connection.info.transaction_status == TransactionStatus.IDLE

    assert await caller.atomic("k", claim=claim) == "one"


@told
async def test_after_a_failure_psycopg_knows_nothing_of_tables_that_are_gone(bank: Bank, claim: str) -> None:
    """
    Made in the function and rolled back with it, made anew with another type: each time, and not only the first.
    """
    caller = await _warmed(bank, claim)

    async def make(type_name: str) -> None:
        await caller.execute(f"CREATE TABLE passing AS SELECT 1::{type_name} AS number")
        for _ in range(7):
            await caller.execute("SELECT number FROM passing")
        raise ZeroDivisionError

    for type_name in ("int", "text", "int", "text"):
        with pytest.raises(ZeroDivisionError):
            await caller.atomic("k", partial(make, type_name), claim=claim)


@told
async def test_where_psycopg_keeps_few_statements_ours_make_room(bank: Bank, claim: str) -> None:
    """
    prepared_max is the caller's limit: what is over it is deallocated, and prepared again when it is needed.
    """
    caller = await bank.caller()
    caller.connection.prepared_max = 1
    answers = [await caller.atomic(f"k:{number}", claim=claim) for number in range(9)]
    for number in range(30):
        await caller.execute(f"SELECT {number}")
    kept = await _prepared(caller)

    assert answers == ["one"] * 9
    assert kept <= 1
    assert await caller.atomic("next", claim=claim) == "one"


@told
async def test_a_psycopg_that_keeps_its_statements_elsewhere_costs_only_speed(
    bank: Bank, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Then nothing of ours is prepared.
    """
    monkeypatch.setattr(_psycopg_pipeline, "_KEPT_IN", "_somewhere_else")
    caller = await _warmed(bank, claim)

    assert (await caller.atomic("warm:0", claim=claim), await _prepared(caller)) == ("one", 0)


@told
async def test_words_are_kept_whatever_encoding_the_connection_has(bank: Bank, claim: str) -> None:
    """
    Written on a connection in Latin 1 and read on one in UTF-8, and the other way round; what it cannot spell is said.
    """
    latin, other = await bank.caller(client_encoding="latin1"), await bank.caller()
    for key, writer, reader in (("a", latin, other), ("b", other, latin)):
        answers = [await caller.atomic(key, name="grün", claim=claim) for caller in (writer, reader, writer)]
        assert (answers, (await bank.record(key)).operation) == (["one"] * 3, "grün")
    with pytest.raises(RecordRefused):
        await latin.atomic("c", name="日本", claim=claim)

    assert await latin.atomic("next", claim=claim) == "one"


@told
async def test_what_the_caller_made_of_its_types_does_not_touch_ours(bank: Bank, claim: str) -> None:
    """
    A caller may read bytes, numbers and text as anything on its own connection.
    """

    class Nonsense(psycopg.adapt.Loader):
        format = psycopg.pq.Format.BINARY

        def load(self, data: Any) -> str:
            return "nonsense"

    caller = await bank.caller()
    for type_name in ("bytea", "int8", "text"):
        caller.connection.adapters.register_loader(type_name, Nonsense)

    assert [await caller.atomic("k", claim=claim) for _ in range(2)] == ["one"] * 2


def test_a_connection_is_not_kept_alive(url: str, admin: psycopg.Connection[Any]) -> None:
    """
    What is remembered of a connection goes with it.
    """
    admin.execute("DROP TABLE IF EXISTS effects")
    admin.execute("CREATE TABLE effects (name text)")
    bank = Bank(url, "blocking")
    with psycopg.connect(url) as connection:
        bank.gate.atomic(connection, "k", lambda: 1)
    gone = weakref.ref(connection)
    del connection
    gc.collect()
    bank.gate.close()

    assert gone() is None


def test_a_talk_that_nobody_finishes_closes_the_connection(url: str) -> None:
    """
    Answers still on their way would be taken for the next statement's. One that failed leaves it in order.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.wait(exchange(connection, _sent(b"SELECT 1", b"SELECT 1 / 0", b"SELECT 2"), answers := []))
        in_order = (answers, connection.pgconn.pipeline_status, connection.execute("SELECT 3").fetchone())
        left = exchange(connection, _sent(b"SELECT 1", b"SELECT pg_sleep(10)"), [])
        next(left)
        left.close()
        closed = connection.closed

    assert in_order == ([[(1,)]], PipelineStatus.OFF, (3,))
    assert closed


def _sent(*statements: bytes) -> SendStatements:
    return SendStatements([BoundStatement(preparable(sql)) for sql in statements])
