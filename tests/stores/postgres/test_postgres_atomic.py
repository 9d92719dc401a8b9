"""Atomic mode on the caller's own psycopg connection, in both colours: record and rows commit together, or neither."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from onceward import ConfigurationError, InDoubt, InFlight, KeyReused, StoreUnavailable
from onceward.errors import IllegalMove, RecordedFailure, ResultInvalid, RetryTransaction
from servers.postgres import PostgresServer, needed
from servers.proxy import Proxy
from stores.postgres.atomic_support import COLOURS, Bank, entered, finish, told

pytestmark = pytest.mark.dose(1, of="bank")

needed()

FORMS = ("first", "last")


class Spoiled(Exception):
    """The caller's own work went wrong."""


@pytest.fixture(params=COLOURS)
def bank(request: pytest.FixtureRequest, url: str, admin: psycopg.Connection[Any]) -> Bank:
    admin.execute("DROP TABLE IF EXISTS effects")
    admin.execute("CREATE TABLE effects (name text)")
    return Bank(url, request.param, wait=0)


@pytest.fixture(params=FORMS)
def claim(request: pytest.FixtureRequest) -> str:
    """Both ways to write the key."""
    form: str = request.param
    return form


def _effects(admin: psycopg.Connection[Any]) -> int:
    [(count,)] = admin.execute("SELECT count(*) FROM effects").fetchall()
    return int(count)


@told
async def test_committed_both_stand_and_a_retry_replays(bank: Bank, admin: psycopg.Connection[Any], claim: str) -> None:
    """
    One effect, one record, the same answer; the lock timeout and the caller's rows are as they were.
    """
    caller = await bank.caller()
    await caller.execute("SET lock_timeout = '7s'")
    await caller.commit()
    answers = [await caller.atomic("k", claim=claim) for _ in range(3)]
    [timeout] = await caller.execute("SHOW lock_timeout")

    assert answers == ["one"] * 3
    assert (_effects(admin), (await bank.record("k")).state, timeout) == (1, "settled", ("7s",))


@told
async def test_rolled_back_neither_stands(bank: Bank, admin: psycopg.Connection[Any], claim: str) -> None:
    """
    The function fails after its insert: no row, no record, and the next attempt runs.
    """
    caller = await bank.caller()

    async def fail() -> None:
        await caller.book()
        raise Spoiled

    with pytest.raises(Spoiled):
        await caller.atomic("k", fail, claim=claim)
    undone = (_effects(admin), await bank.record("k"))

    assert undone == (0, None)
    assert await caller.atomic("k", claim=claim) == "one"
    assert _effects(admin) == 1


@told
async def test_inside_the_callers_transaction_the_caller_decides(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    A savepoint is used: what fails is undone alone, and what is kept goes with the caller's commit or rollback.
    """
    caller = await bank.caller()

    async def fail() -> None:
        await caller.book("lost")
        raise Spoiled

    await caller.book("before")
    await caller.atomic("k", claim=claim)
    await caller.rollback()
    rolled_back = (_effects(admin), await bank.record("k"))
    async with caller.transaction():
        with pytest.raises(Spoiled):
            await caller.atomic("other", fail, claim=claim)
        again = [await caller.atomic("k", claim=claim) for _ in range(2)]
        lock_timeout = await caller.execute("SHOW lock_timeout")

    assert rolled_back == (0, None)
    assert (again, _effects(admin), lock_timeout) == (["one", "one"], 1, [("0",)])


@told
async def test_an_autocommit_connection_inside_its_own_transaction_joins(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    What is refused is a record that would commit alone; inside connection.transaction() it does not.
    """
    caller = await bank.caller(autocommit=True)
    async with caller.transaction():
        await caller.atomic("k", claim=claim)
        inside = _effects(admin)

    assert (inside, _effects(admin)) == (0, 1)


@told
async def test_a_racer_waits_for_the_winner_and_replays_it(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    Eight connections, one key: one effect, and everybody has its answer. Claimed last, the losers' rows are undone.
    """
    callers = [await bank.caller() for _ in range(8)]

    def racing(number: int) -> Any:
        caller = callers[number]
        return lambda: caller.atomic("k", lambda: caller.book(f"by {number}"), claim=claim)

    answers = await bank.together(*(racing(number) for number in range(8)))

    assert [answers[0]] * 8 == answers
    assert _effects(admin) == 1


@told
async def test_claimed_last_a_racer_has_worked_and_is_undone(bank: Bank, admin: psycopg.Connection[Any]) -> None:
    """
    Both see nothing and both work; the second's insert conflicts, its row goes, and it is given the winner's answer.
    """
    winner, loser = await bank.caller(), await bank.caller()

    async def lose() -> str:
        await loser.book("loser")
        await winner.atomic("k", lambda: winner.book("winner"), claim="last")
        return "loser"

    alone = await loser.atomic("k", lose, claim="last")
    async with loser.transaction():
        await loser.book("kept")
        joined = await loser.atomic("k2", _winning(loser, winner), claim="last")
    [names] = admin.execute("SELECT array_agg(name ORDER BY name) FROM effects").fetchall()

    assert (alone, joined) == ("winner", "winner")
    assert names == (["kept", "winner", "winner"],)


def _winning(loser: Any, winner: Any) -> Any:
    async def lose() -> str:
        await loser.book("loser")
        await winner.atomic("k2", lambda: winner.book("winner"), claim="last")
        return "loser"

    return lose


@told
async def test_claimed_last_a_block_that_lost_is_shown_the_winner(bank: Bank, admin: psycopg.Connection[Any]) -> None:
    """
    It learns at its end that another's answer stands: its rows are gone, and its operation says so.
    """
    winner, loser = await bank.caller(), await bank.caller()
    async with loser.block("k", claim="last") as operation:
        await loser.book("loser")
        operation.settle("loser")
        await winner.atomic("k", lambda: winner.book("winner"), claim="last")

    assert (operation.replayed, operation.value, _effects(admin)) == (True, "winner", 1)


@told
async def test_claimed_last_there_is_no_fence_yet(bank: Bank) -> None:
    """
    Whoever asks for what only a claim has is told why it is not there.
    """
    caller = await bank.caller()
    async with caller.block("k", claim="last") as operation:
        with pytest.raises(ConfigurationError, match="fence"):
            _ = operation.fence
        with pytest.raises(ConfigurationError, match="no first_at"):
            _ = operation.first_at
        operation.settle(operation.attempt)

    assert (operation.value, (await bank.record("k")).state) == (1, "settled")


@told
async def test_the_same_key_for_another_request_is_refused(bank: Bank, claim: str) -> None:
    """
    Whether it is seen at the first look or only at the constraint.
    """
    caller, other = await bank.caller(), await bank.caller()

    async def late() -> None:
        await other.atomic("late", other.book, request=1, claim=claim)

    await caller.atomic("k", request=1, claim=claim)
    with pytest.raises(KeyReused):
        await caller.atomic("k", request=2, claim=claim)
    with pytest.raises(KeyReused if claim == "last" else RetryTransaction):
        await caller.atomic("late", late, request=2, claim=claim)


@told
async def test_a_key_that_is_in_flight_or_in_doubt_is_not_run(bank: Bank, claim: str) -> None:
    """
    Somebody runs it outside of any transaction, or nobody knows what became of it.
    """
    caller = await bank.caller()
    heard: list[BaseException] = []

    async def outside() -> None:
        try:
            await caller.atomic("k", claim=claim)
        except InFlight as error:
            heard.append(error)
        raise Spoiled

    function = outside if bank.awaits else lambda: finish(outside())
    with pytest.raises(Spoiled):
        await bank.value(bank.gate.run("k", function))
    with pytest.raises(InDoubt):
        await caller.atomic("k", claim=claim)

    assert [InFlight] == [type(error) for error in heard]


@told
async def test_a_remembered_failure_keeps_its_record_and_undoes_its_rows(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    remember="all": the failure is stored and replayed as data, the rows are gone.
    """
    caller = await bank.caller()

    async def fail() -> None:
        await caller.book()
        raise Spoiled("declined")

    with pytest.raises(Spoiled):
        await caller.atomic("k", fail, remember="all", claim=claim)
    with pytest.raises(RecordedFailure, match="declined"):
        await caller.atomic("k", remember="all", claim=claim)
    kept = await caller.atomic("k2", remember="all", claim=claim)

    assert (kept, _effects(admin)) == ("one", 1)


@told
async def test_a_held_key_is_waited_for_only_so_long(bank: Bank, claim: str) -> None:
    """
    After the lock timeout the transaction has to run again; the caller's transaction is usable.
    """
    caller, other = await bank.caller(), await bank.caller()
    async with other.transaction():
        await other.atomic("k", lambda: other.book("theirs"), claim=claim)
        with pytest.raises(RetryTransaction):
            await caller.atomic("k", claim=claim)

    assert await caller.atomic("k", claim=claim) == "theirs"


@told
async def test_above_read_committed_the_transaction_has_to_run_again(bank: Bank, claim: str) -> None:
    """
    Its snapshot is older than the winner's commit: it can neither win nor see who did.
    """
    caller, other = await bank.caller(), await bank.caller()
    await bank.value(
        caller.connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        if bank.awaits
        else setattr(caller.connection, "isolation_level", psycopg.IsolationLevel.REPEATABLE_READ)
    )
    await caller.execute("SELECT 1 FROM effects")
    await other.atomic("k", lambda: other.book("theirs"), claim=claim)
    with pytest.raises(RetryTransaction):
        await caller.atomic("k", claim=claim)
    await caller.rollback()
    level = await caller.atomic("k2", lambda: _level(caller), claim=claim)

    assert (await caller.atomic("k", claim=claim), level) == ("theirs", "repeatable read")


async def _level(caller: Any) -> str:
    [(level,)] = await caller.execute("SHOW transaction_isolation")
    return str(level)


@told
async def test_a_deadlock_of_ours_says_run_it_again(bank: Bank, claim: str) -> None:
    """
    Two transactions, two keys, in opposite order: one of them is told to run again, the other one goes through.
    """
    one, two = await bank.caller(), await bank.caller()

    async def both(caller: Any, first: str, second: str) -> str:
        async with caller.transaction():
            await caller.atomic(first, claim=claim)
            await caller.atomic(second, claim=claim)
        return "through"

    heard = await bank.together(lambda: both(one, "a", "b"), lambda: both(two, "b", "a"))
    through = [said for said in heard if said == "through"]
    told_to_retry = [said for said in heard if isinstance(said, RetryTransaction)]

    assert len(through) + len(told_to_retry) == 2
    assert through


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("then", ["returns", "raises", "goes on", "breaks"])
@told
@pytest.mark.dose(8)
async def test_a_function_that_ends_the_transaction_is_told(
    bank: Bank, admin: psycopg.Connection[Any], claim: str, ending: str, then: str
) -> None:
    """
    Committed by itself, record and rows can no longer commit together: said, and left in doubt, never run again.
    """
    caller = await bank.caller()

    async def meddle() -> None:
        await caller.book()
        await getattr(caller, ending)()
        if then == "raises":
            raise Spoiled
        if then == "goes on":
            await caller.book("second")
        if then == "breaks":
            await caller.execute("SELECT 1 / 0")

    expected = {"raises": Spoiled, "breaks": psycopg.errors.DivisionByZero}.get(then, IllegalMove)
    with pytest.raises(expected):
        await caller.atomic("k", meddle, claim=claim)
    found = await bank.record("k")

    if ending == "rollback":
        assert (found, _effects(admin)) == (None, 0)
    else:
        assert (found.state, _effects(admin)) == ("in_doubt", 1)
        with pytest.raises(InDoubt):
            await caller.atomic("k", claim=claim)


@told
async def test_a_function_that_ends_the_callers_transaction_is_told(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    The savepoint that it was given is gone.
    """
    caller = await bank.caller()
    await caller.book("before")

    async def meddle() -> None:
        await caller.book()
        await caller.commit()
        await caller.book("second")

    with pytest.raises(IllegalMove):
        await caller.atomic("k", meddle, claim=claim)

    assert ((await bank.record("k")).state, _effects(admin)) == ("in_doubt", 2)


@told
@pytest.mark.parametrize("remember", ["success", "all"])
async def test_an_error_that_the_function_swallowed_is_said(bank: Bank, claim: str, remember: str) -> None:
    """
    PostgreSQL will commit nothing more in that transaction, so the gate cannot either; and leaves nothing open.
    """
    caller = await bank.caller()

    async def swallow() -> None:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await caller.execute("SELECT 1 / 0")

    with pytest.raises(IllegalMove, match="had failed"):
        await caller.atomic("k", swallow, claim=claim, remember=remember)
    await caller.atomic("next", claim=claim)
    assert await bank.record("k") is None
    assert await bank.record("next") is not None

    await swallow()
    with pytest.raises(IllegalMove, match="had failed"):
        await caller.atomic("k", claim=claim, remember=remember)
    await caller.rollback()

    assert await caller.atomic("k", claim=claim, remember=remember) == "one"


@told
async def test_a_unique_violation_of_the_callers_own_surfaces_unchanged(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    At the statement, or at the commit if it is deferred: it is the caller's, and nothing stands.
    """
    admin.execute("ALTER TABLE effects ADD UNIQUE (name) DEFERRABLE INITIALLY IMMEDIATE")
    caller = await bank.caller()
    await caller.atomic("first", claim=claim)

    async def defers() -> None:
        await caller.execute("SET CONSTRAINTS ALL DEFERRED")
        await caller.book()

    with pytest.raises(psycopg.errors.UniqueViolation):
        await caller.atomic("k", claim=claim)
    with pytest.raises(psycopg.errors.UniqueViolation):
        await caller.atomic("k", defers, claim=claim)

    assert (await bank.record("k"), _effects(admin)) == (None, 1)


@told
async def test_a_result_that_cannot_be_stored_undoes_everything(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    In the caller's transaction "could not store" can be "did not happen".
    """
    caller = await bank.caller()

    async def unstorable() -> object:
        await caller.book()
        return object()

    with pytest.raises(ResultInvalid, match="so nothing happened"):
        await caller.atomic("k", unstorable, claim=claim)

    assert (await bank.record("k"), _effects(admin)) == (None, 0)


@told
async def test_the_steps_of_a_plan_may_share_the_transaction(
    bank: Bank, admin: psycopg.Connection[Any], claim: str
) -> None:
    """
    A step that settled replays; its plan is touched on the caller's own connection.
    """
    caller = await bank.caller()
    plan = bank.gate.plan("p", claim=claim, guarantee="atomic")
    step = caller.book if bank.awaits else lambda: finish(caller.book())
    for _ in range(2):
        await bank.value(plan.step("a", step, connection=caller.connection))

    assert _effects(admin) == 1


@told
async def test_a_connection_that_would_commit_alone_is_refused(bank: Bank) -> None:
    """
    Autocommit with no transaction open.
    """
    caller = await bank.caller(autocommit=True)
    with pytest.raises(ConfigurationError, match="autocommit"):
        await caller.atomic("k")


@told
async def test_pipeline_mode_is_refused(bank: Bank) -> None:
    """
    There an error arrives after the statement that caused it.
    """
    caller = await bank.caller()
    async with entered(caller.connection.pipeline()):
        with pytest.raises(ConfigurationError, match="pipeline"):
            await caller.atomic("k")


@told
async def test_another_database_is_refused(bank: Bank, server: PostgresServer) -> None:
    """
    The record would be in one and the rows in the other. The connection is as it was.
    """
    caller = await bank.caller(server.url())
    with pytest.raises(ConfigurationError, match="one database"):
        await caller.atomic("k")

    assert caller.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@told
async def test_a_connection_of_the_other_colour_is_refused(bank: Bank, url: str) -> None:
    """
    A blocking connection would stop the event loop while it waits for a racer; the other way round nobody awaits.
    """
    other = Bank(url, "blocking" if bank.awaits else "awaiting")
    stranger = (await other.caller()).connection if bank.awaits else object.__new__(psycopg.AsyncConnection)
    with pytest.raises(ConfigurationError, match=r"use (Async)?Gate"):
        bank.gate.atomic(stranger, "k", lambda: None)
    if bank.awaits:
        await other.close()


@told
async def test_without_pipeline_mode_it_is_slower_and_no_different(
    bank: Bank, admin: psycopg.Connection[Any], claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    libpq before 14: one statement at a time. Replay, rollback, a lost race and the caller's transaction all the same.
    """
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: False)
    caller, other = await bank.caller(), await bank.caller()

    async def fail() -> None:
        await caller.book()
        raise Spoiled

    async def lose() -> str:
        await other.atomic("late", lambda: other.book("theirs"), claim="last")
        return await caller.book("ours")

    answers = [await caller.atomic("k", claim=claim) for _ in range(2)]
    with pytest.raises(Spoiled):
        await caller.atomic("k2", fail, claim=claim)
    lost = await caller.atomic("late", lose, claim="last")
    at_rest = caller.connection.info.transaction_status
    async with caller.transaction():
        answers.append(await caller.atomic("k3", claim=claim))

    assert (answers, lost, _effects(admin)) == (["one"] * 3, "theirs", 3)
    assert at_rest == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("lost", ["request", "answer"])
@told
async def test_a_connection_that_is_cut_at_the_commit_leaves_both_or_neither(
    bank: Bank, admin: psycopg.Connection[Any], server: PostgresServer, claim: str, lost: str
) -> None:
    """
    The commit did not arrive, or its answer did not: the caller cannot know, and the same key finds out.
    """
    with Proxy(server.port) as proxy:
        caller = await bank.caller(f"postgresql://postgres@127.0.0.1:{proxy.port}/onceward")
        await caller.atomic("before", claim=claim)

        async def cut() -> str:
            name = await caller.book("first")
            proxy.lose_requests(1) if lost == "request" else proxy.lose_answers(1)
            return name

        with pytest.raises(StoreUnavailable):
            await caller.atomic("k", cut, claim=claim)
        to_lose = proxy.to_lose
        retry = await bank.caller()
        answer = await retry.atomic("k", lambda: retry.book("second"), claim=claim)

    assert (to_lose, _effects(admin)) == (0, 2)
    assert {"request": "second", "answer": "first"}[lost] == answer


def test_a_cancelled_block_commits_nothing(url: str, admin: psycopg.Connection[Any]) -> None:
    """
    Cancelled while it waits for a racer's key: the statement is finished, nothing stands, and the connection is usable.
    """
    admin.execute("DROP TABLE IF EXISTS effects")
    admin.execute("CREATE TABLE effects (name text)")
    bank = Bank(url, "awaiting")

    async def scenario() -> None:
        holder, caller = await bank.caller(), await bank.caller()

        async def block() -> None:
            async with caller.block("k") as operation:
                operation.settle("never")

        async with holder.transaction():
            await holder.execute("SELECT 1")
            await holder.atomic("k")
            waiting = asyncio.ensure_future(block())
            while not admin.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall():
                await asyncio.sleep(0.005)
            waiting.cancel()
            [said] = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(said, asyncio.CancelledError), "although the wait for the key ended with an error"
        assert await caller.atomic("k") == "one"
        await bank.close()

    asyncio.run(scenario())
