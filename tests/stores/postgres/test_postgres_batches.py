"""Batches: callers who come at the same moment share a statement, and nobody pays for anybody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, Handle, handle, session
from psycopg.types.numeric import Int8BinaryDumper

from onceward import StoreUnavailable
from onceward.errors import RecordRefused
from onceward.stores import _postgres_flow as flows
from onceward.stores import _postgres_rows as rows
from onceward.stores import _postgres_wire as wire
from onceward.stores import open_async_store, open_store
from onceward.stores._group_commit import BATCH_MAX
from onceward.stores._postgres_pool import PostgresPool
from onceward.stores._postgres_pool_async import AsyncPostgresPool
from onceward.testing.store_suite.rows import random_token, reclaimed, row, settled, without_durations
from servers.postgres import needed

needed()

POOLS = (PostgresPool, AsyncPostgresPool)


@pytest.fixture(params=COLOURS)
def store(request: pytest.FixtureRequest, url: str) -> Iterator[Handle]:
    with handle(url, request.param) as one:
        one.call("load", bytes(32))
        yield one


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The ids of every batch that is sent, in the order in which they are written."""
    sent: list[list[bytes]] = []
    put_many = flows.put_many

    def noted(target: Any, puts: Any) -> Any:
        sent.append([write.id for write, _ in puts])
        return put_many(target, puts)

    def lone(put: Any) -> Any:
        def noted_one(pool: Any, entry: Any) -> Any:
            sent.append([entry.write.id])
            return put(pool, entry)

        return noted_one

    monkeypatch.setattr(flows, "put_many", noted)
    for pool in POOLS:
        monkeypatch.setattr(pool, "_put_one", lone(pool._put_one))
    return sent


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the next batch take a while, so that the rest of a crowd is queued when it is over."""
    put_many, due = flows.put_many, threading.Event()

    def slowly(target: Any, puts: Any) -> Any:
        if due.is_set():
            due.clear()
            yield flows.QueryEffect(b"SELECT pg_sleep(0.3)")
        return (yield from put_many(target, puts))

    def lone(put: Any) -> Any:
        def slowly_one(pool: Any, entry: Any) -> Any:
            if not due.is_set():
                return put(pool, entry)
            return pool.run(flows.peek_or_put_many(pool.target, [(entry.write, entry.expect)], pool.seen))

        return slowly_one

    monkeypatch.setattr(flows, "put_many", slowly)
    for pool in POOLS:
        monkeypatch.setattr(pool, "_put_one", lone(pool._put_one))
    return due.set


class TestABatch:
    """What travels together."""

    def test_a_crowd_shares_statements_and_each_gets_its_own_answer(
        self, store: Handle, batches: list[list[bytes]], slow: Callable[[], None]
    ) -> None:
        """
        Claims that land, claims that are refused and settles, in one statement; a few statements for all of them.
        """
        held = [store.put(row("test:batch", f"held{n}")).record for n in range(20)]
        batches.clear()
        puts: list[Any] = [(row("test:batch", f"new{n}"), None) for n in range(20)]
        puts += [(settled(one), one.version) for one in held[:10]]
        puts += [(row("test:batch", one.key), None) for one in held[10:]]

        slow()
        answers = store.together(puts)

        assert [answer.landed for answer in answers] == [True] * 30 + [False] * 10
        assert [write.id for write, _ in puts] == [answer.record.id for answer in answers]
        assert [one.version for one in held[10:]] == [answer.record.version for answer in answers[30:]]
        assert len(batches) < 20

    @pytest.mark.fault("a-batch-of-settles-sends-what-the-claims-fixed", "a-batch-of-settles-sees-nothing")
    def test_a_batch_of_settles_sends_only_what_a_settle_changes(self, url: str) -> None:
        """
        What the claims have fixed is not sent again, and stays. Whoever lost is shown who won, or that nobody is there.
        """
        store = open_store(url)
        held = [store.put(row("test:batch", f"k{n}", holder=b"me"), None).record for n in range(4)]
        taken = store.put(reclaimed(held[2]), held[2].version).record
        store.erase([held[3].id])
        puts = [(settled(one, result=b"%d" % number), one.version) for number, one in enumerate(held)]

        sent = next(flows.put_many(store.target, puts)).sql
        answers = store._pool.run(flows.put_many(store.target, puts))
        found = [store.load(one.id) for one in held]
        store.close()

        assert sent is wire.ENDS
        assert [answer.landed for answer in answers] == [True, True, False, False]
        assert [answer.record and answer.record.version for answer in answers[2:]] == [taken.version, None]
        assert [without_durations(one.record) for one in answers[:3]] == [without_durations(one) for one in found[:3]]
        assert [(one.result, one.fence, one.first_at) for one in found[:2]] == [
            (b"%d" % number, one.fence, one.first_at) for number, one in enumerate(held[:2])
        ]

    def test_each_id_is_in_it_once_and_ids_are_sorted(
        self, store: Handle, batches: list[list[bytes]], slow: Callable[[], None]
    ) -> None:
        """
        Two writes of one id in one statement would be undefined; unsorted ids would deadlock with other processes.
        """
        writes = [row("test:batch", f"k{n % 10}") for n in range(40)]

        slow()
        answers = store.together([(write, None) for write in writes])

        assert sum(answer.landed for answer in answers) == 10
        assert [sorted(set(ids)) for ids in batches] == batches
        assert max(map(len, batches)) > 1

    def test_claims_of_one_key_that_wait_together_are_asked_once(self, url: str, batches: list[list[bytes]]) -> None:
        """
        One lands, and the others are shown it, as if they had come right after it; a change goes its own way.
        """
        held = []
        with handle(url, "awaiting") as store:
            held.append(store.put(row("test:batch", "held")).record)
            batches.clear()
            claims = [row("test:batch", "hot") for _ in range(50)]
            puts = [(claim, None) for claim in claims] + [(settled(held[0]), held[0].version)] * 2
            answers = store.together(puts)

        assert [answer.landed for answer in answers] == [True] + [False] * 49 + [True, False]
        assert {claims[0].version} == {answer.record.version for answer in answers[:50]}
        assert len(batches) == 2

    def test_followers_of_a_bad_claim_ask_for_themselves(self, url: str) -> None:
        """
        The first of a crowd for one key cannot be stored: the next one can.
        """
        with handle(url, "awaiting") as store:
            bad, *good = [row("test:batch", "hot", operation="\x00" if n == 0 else "charge") for n in range(5)]
            answers = store.together([(write, None) for write in (bad, *good)])

        assert RecordRefused is type(answers[0])
        assert sum(answer.landed for answer in answers[1:]) == 1

    def test_it_has_a_greatest_size(self, url: str, batches: list[list[bytes]]) -> None:
        """
        However many come at once, a statement carries no more than so many.
        """
        with handle(url, "awaiting") as store:
            answers = store.together([(row("test:batch", f"k{n}"), None) for n in range(BATCH_MAX + 50)])

        assert sum(answer.landed for answer in answers) == BATCH_MAX + 50
        assert list(map(len, batches)) == [BATCH_MAX, 50]

    def test_a_lone_caller_is_a_batch_of_one(self, store: Handle, batches: list[list[bytes]]) -> None:
        """
        Nobody waits for company.
        """
        writes = [row("test:batch", f"k{n}") for n in range(3)]
        for write in writes:
            store.put(write)

        assert [[write.id] for write in writes] == batches

    def test_opposite_orders_do_not_deadlock(self, url: str) -> None:
        """
        Two processes' crowds over the same rows, again and again: every round has its winners, every call its answer.
        """
        with handle(url, "awaiting") as one, handle(url, "awaiting") as two:
            held = [one.put(row("test:batch", f"k{n}")).record for n in range(30)]
            for _ in range(10):
                puts = [(reclaimed(one), one.version) for one in held]
                others = [(reclaimed(one), one.version) for one in reversed(held)]
                with ThreadPoolExecutor(2) as pool:
                    ours, theirs = pool.submit(one.together, puts), pool.submit(two.together, others)
                pairs = list(zip(ours.result(), reversed(theirs.result()), strict=True))
                assert [first.landed + second.landed for first, second in pairs] == [1] * 30
                held = [first.record for first, _ in pairs]

    @pytest.mark.parametrize("kind", ["changes", "claims", "settles"])
    def test_the_statement_itself_locks_in_one_order(self, url: str, kind: str) -> None:
        """
        Writes to the same keys in opposite orders, sent at the same moment: neither ever meets a deadlock.
        """
        with handle(url, "blocking") as store:
            held = [store.put(row("test:order", f"k{n}")).record for n in range(40)]
            endings = [settled(record) for record in held]
            with ThreadPoolExecutor(2) as pool, psycopg.connect(url) as one, psycopg.connect(url) as two:
                for turn in range(15):
                    puts: list[Any] = [(reclaimed(record), record.version) for record in held]
                    if kind == "claims":
                        puts = [(row("test:order", f"new{turn}-{n}"), None) for n in range(40)]
                    if kind == "settles":
                        puts = [(ending, record.version) for ending, record in zip(endings, held, strict=True)]
                    sent = pool.submit(_send, one, puts), pool.submit(_send, two, puts[::-1])
                    assert [answer.exception() for answer in sent] == [None, None]
                    held = [store.call("load", record.id) for record in held]


def _send(connection: psycopg.Connection[Any], puts: list[Any]) -> None:
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    renewed = [(write._replace(version=random_token()), expect) for write, expect in puts]
    sql = rows.BATCH if any(write.rise for write, _ in puts) else rows.ENDS
    connection.execute(sql, rows.batch_parameters(renewed, "5s", False))
    connection.commit()


class TestTrouble:
    """What befalls one of a batch."""

    def test_one_bad_row_is_its_callers_alone(self, store: Handle, slow: Callable[[], None]) -> None:
        """
        Text that PostgreSQL does not take is refused in our words; everybody else's write lands.
        """
        writes = [row("test:batch", f"k{n}", operation="a\x00b" if n == 7 else "charge") for n in range(15)]

        slow()
        answers = store.together([(write, None) for write in writes])

        assert [n for n, answer in enumerate(answers) if isinstance(answer, StoreUnavailable)] == [7]
        assert "NUL" in str(answers[7])
        assert sum(answer.landed for answer in answers if not isinstance(answer, Exception)) == 14

    @pytest.mark.parametrize("colour", COLOURS)
    def test_a_held_row_does_not_stall_the_rest(self, url: str, colour: str, slow: Callable[[], None]) -> None:
        """
        After a moment's wait each is put by itself: all but the one whose row is held are answered.
        """
        with handle(f"{url}?onceward_lock_timeout=60", colour) as store, session(url) as put:
            held = store.put(row("test:batch", "held")).record
            put(settled(held), held.version)
            slow()
            stuck = store.start("put", settled(held), held.version)
            answers = store.together([(row("test:batch", f"k{n}"), None) for n in range(15)])
            waits = not stuck.done()
            put.connection.rollback()

            assert [answer.landed for answer in answers] == [True] * 15
            assert True is waits
            assert True is stuck.result(10).landed

    def test_a_cancelled_caller_takes_nobody_along(self, url: str) -> None:
        """
        Of a crowd that travels together the first is cancelled while the statement runs: all of them stand.
        """
        writes = [row("test:batch", f"k{n}") for n in range(10)]

        async def crowd() -> list[Any]:
            store = open_async_store(url)
            await store.load(bytes(32))
            tasks = [asyncio.ensure_future(store.put(write, None)) for write in writes]
            await asyncio.sleep(0)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            found = [await store.load(write.id) for write in writes]
            await store.close()
            return found

        found = asyncio.run(crowd())

        assert [write.version for write in writes] == [one.version for one in found]
