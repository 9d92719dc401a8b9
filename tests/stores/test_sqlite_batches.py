"""Group commit: what holds for every batch, and for everybody who was in one."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlite_support import HOUR, claimed, in_thread, key, lead_held, put_settled, settled, statements_of

from onceward._core.errors import StoreFull, StoreUnavailable
from onceward._core.record import PutResult
from onceward.runtime import failpoints
from onceward.stores import _group_commit
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "store.db")
    yield store
    failpoints.disarm()
    store.close()


def test_callers_that_wait_together_share_one_transaction(store: SqliteStore) -> None:
    """
    Writes that queue up while another is under way are committed at once, with one sync.
    """
    with statements_of(store) as seen:
        with lead_held(store) as queued:
            callers = [in_thread(lambda n=n: store.put(claimed(key(n)), None)) for n in range(8)]
            queued(8)
        answers = [caller() for caller in callers]

    assert [answer.landed for answer in answers] == [True] * 8
    assert seen.count("COMMIT") == 1
    assert sum(statement.startswith("INSERT") for statement in seen) == 8


def test_a_lone_caller_needs_no_transaction_of_its_own(store: SqliteStore) -> None:
    """
    One caller alone pays for one statement and nothing else.
    """
    with statements_of(store) as seen:
        store.put(claimed(key(1)), None)

    assert len(seen) == 1
    assert seen[0].startswith("INSERT")


def test_an_id_is_in_a_batch_once(store: SqliteStore) -> None:
    """
    Two writes to one id are never in the same transaction: the second waits for the next batch, and sees the first.
    """
    with statements_of(store) as seen:
        with lead_held(store) as queued:
            callers = []
            for turn in range(3):
                callers.append(in_thread(lambda: store._database.commits.run(entry(claimed(key(1))))))
                queued(turn + 1)
        answers = [caller() for caller in callers]

    assert [answer.landed for answer in answers] == [True, False, False]
    assert len({answer.record.version for answer in answers}) == 1
    assert seen.count("COMMIT") == 0
    assert sum(statement.startswith("INSERT") for statement in seen) == 3


def entry(write: Any, expect: bytes | None = None) -> Any:
    return _group_commit.QueueEntry(write, expect)


def test_a_batch_is_sorted_by_id(store: SqliteStore) -> None:
    """
    Whoever came first, pages are touched in the order of the ids, as in every other process.
    """
    numbers = [5, 3, 9, 1, 7]
    order: list[bytes] = []
    real = store._database._perform

    def noting(batch: list[Any]) -> None:
        order.extend(one.write.id for one in batch if one.write is not None)
        real(batch)

    store._database.commits._perform = noting
    with lead_held(store) as queued:
        callers = []
        for count, number in enumerate(numbers, start=1):
            callers.append(in_thread(lambda n=number: store.put(claimed(key(n)), None)))
            queued(count)
    for caller in callers:
        caller()

    assert [key(number) for number in sorted(numbers)] == order


def test_a_batch_has_a_greatest_size(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    However many wait, a transaction holds no more than its limit; the rest follows in the next.
    """
    monkeypatch.setattr(_group_commit, "BATCH_MAX", 3)
    sizes: list[int] = []
    real = store._database._perform

    def noting(batch: list[Any]) -> None:
        sizes.append(len(batch))
        real(batch)

    store._database.commits._perform = noting
    with lead_held(store) as queued:
        callers = [in_thread(lambda n=n: store.put(claimed(key(n)), None)) for n in range(8)]
        queued(8)

    assert all(caller().landed for caller in callers)
    assert sizes == [3, 3, 2]


def test_nobody_leads_for_ever(store: SqliteStore) -> None:
    """
    A leader performs one batch and hands the lead to the next in the queue, so that its own caller is not kept.
    """
    leaders: list[int] = []
    real = store._database._perform

    def noting(batch: list[Any]) -> None:
        leaders.append(threading.get_ident())
        real(batch)

    store._database.commits._perform = noting
    with lead_held(store) as queued:
        callers = []
        for count in range(1, 4):
            callers.append(in_thread(lambda: store._database.commits.run(entry(claimed(key(1))))))
            queued(count)
    for caller in callers:
        caller()

    assert len(set(leaders)) == 3


@pytest.mark.parametrize(
    "bad",
    [
        {"attempt": 2**70},
        {"key": "lone surrogate \ud800"},
        {"doubt": "not a number"},
        {"fingerprint": None},
        {"operation": object()},
    ],
    ids=["overflow", "surrogate", "wrong type", "missing", "foreign object"],
)
def test_one_bad_row_does_not_fail_the_others(store: SqliteStore, bad: dict[str, Any]) -> None:
    """
    A write that the table refuses fails alone; its companions in the batch land.
    """
    with lead_held(store) as queued:
        callers = [in_thread(lambda n=n: store.put(claimed(key(n), **(bad if n == 2 else {})), None)) for n in range(5)]
        queued(5)

    with pytest.raises(StoreUnavailable):
        callers[2]()
    assert [callers[n]().landed for n in (0, 1, 3, 4)] == [True] * 4
    assert [store.load(key(n)) is not None for n in range(5)] == [True, True, False, True, True]


def test_if_the_commit_fails_nobody_is_told_that_it_landed(store: SqliteStore) -> None:
    """
    All or nothing: when COMMIT raises, every caller hears an error, and nothing of the batch is stored.
    """
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    failpoints.arm("sqlite.commit.before", raising(error))
    with lead_held(store) as queued:
        callers = [in_thread(lambda n=n: store.put(claimed(key(n)), None)) for n in range(4)]
        queued(4)
    for caller in callers:
        with pytest.raises(StoreUnavailable):
            caller()
    failpoints.disarm()

    assert [store.load(key(n)) for n in range(4)] == [None] * 4
    assert store.put(claimed(key(0)), None).landed


@pytest.mark.fault("a-batch-is-answered-before-its-commit")
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_whoever_hears_that_it_landed_can_be_believed_by_another_process(tmp_path: Path, colour: str) -> None:
    """
    While the leader stands before its commit, nobody has an answer; and each answer is true for whoever reads the file.
    """
    heard, there = threading.Event(), []
    asked: Any = (SqliteStore if colour == "blocking" else AsyncSqliteStore)(tmp_path / "store.db")
    with closing(SqliteStore(tmp_path / "store.db")) as other:

        def noted(number: int, landed: bool) -> None:
            there.append((landed, other.load(key(number)) is not None))
            heard.set()

        def ask(number: int) -> None:
            noted(number, asked.put(claimed(key(number)), None).landed)

        async def crowd() -> None:
            async def one(number: int) -> None:
                noted(number, (await asked.put(claimed(key(number)), None)).landed)

            await asyncio.gather(*map(one, range(4)))

        # For as long as somebody who was told too early needs to look; if nobody was, nobody comes.
        failpoints.arm("sqlite.commit.before", lambda: heard.wait(0.3))
        with lead_held(asked) as queued:
            if colour == "blocking":
                callers = [in_thread(lambda number=number: ask(number)) for number in range(4)]
            else:
                callers = [in_thread(lambda: asyncio.run(crowd()))]
            queued(4)
        for caller in callers:
            caller()
        failpoints.disarm()
        asked.close() if colour == "blocking" else asyncio.run(asked.close())

    assert there == [(True, True)] * 4


def raising(error: BaseException) -> Any:
    def act() -> None:
        raise error

    return act


def test_a_transaction_that_ended_itself_is_not_continued(store: SqliteStore) -> None:
    """
    A full disk rolls a transaction back by itself; what follows in the batch must not be committed one by one unseen.
    """
    connection = store._database.connections.writer.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    with lead_held(store) as queued:
        callers = [
            in_thread(lambda n=n: store.put(claimed(key(n), result=b"x" * (100_000 if n == 3 else 10)), None))
            for n in range(6)
        ]
        queued(6)
    answers = [answer_or_error(caller) for caller in callers]

    assert isinstance(answers[3], StoreFull)
    assert [answer.landed for n, answer in enumerate(answers) if n != 3] == [True] * 5
    assert [n != 3 for n in range(6)] == [store.load(key(n)) is not None for n in range(6)]


def answer_or_error(caller: Any) -> Any:
    try:
        return caller()
    except StoreUnavailable as error:
        return error


def test_a_write_that_is_done_again_recognises_itself(store: SqliteStore) -> None:
    """
    A leader that is interrupted between its commit and its answers leaves companions whose writes did land; done
    again, they are told so.
    """
    failpoints.arm("sqlite.commit.after", once(KeyboardInterrupt()))
    with lead_held(store) as queued:
        callers = []
        for n in range(3):
            callers.append(in_thread(lambda n=n: store.put(claimed(key(n)), None)))
            queued(n + 1)
    with pytest.raises(KeyboardInterrupt):
        callers[0]()

    assert [callers[n]().landed for n in (1, 2)] == [True, True]
    assert [store.load(key(n)) is not None for n in range(3)] == [True] * 3


def once(error: BaseException) -> Any:
    errors = [error]

    def act() -> None:
        if errors:
            raise errors.pop()

    return act


@pytest.mark.fault("a-batch-is-done-before-its-commit")
@pytest.mark.parametrize(
    "point", ["sqlite.write.before", "sqlite.commit.before", "sqlite.commit.after", "batch.before_answer"]
)
def test_an_interrupted_leader_takes_nobody_along(store: SqliteStore, point: str) -> None:
    """
    Wherever a leader is interrupted, its companions land, for everybody to see, and the store goes on.
    """
    failpoints.arm(point, once(KeyboardInterrupt()))
    with lead_held(store) as queued:
        callers = []
        for n in range(4):
            callers.append(in_thread(lambda n=n: store.put(claimed(key(n)), None)))
            queued(n + 1)
    with pytest.raises(KeyboardInterrupt):
        callers[0]()

    assert [callers[n]().landed for n in (1, 2, 3)] == [True] * 3
    assert store.put(claimed(key(9)), None).landed
    assert None not in [store.load(key(n)) for n in (1, 2, 3, 9)]


def test_an_interrupted_waiter_withdraws(store: SqliteStore) -> None:
    """
    Ctrl-C while waiting in the queue: the write is not made, and the others are not disturbed.
    """
    with lead_held(store) as queued:
        other = in_thread(lambda: store.put(claimed(key(2)), None))
        queued(1)
        threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            store.put(claimed(key(1)), None)

    assert other().landed
    assert store.load(key(1)) is None


def test_an_interrupted_waiter_whose_write_is_under_way_waits_for_its_answer(store: SqliteStore) -> None:
    """
    Ctrl-C when the write is already in a batch: whether it lands is being decided, so the caller hears it first.
    """
    here = threading.get_ident()
    committing = threading.Event()
    go_on = threading.Event()

    def stop() -> None:
        committing.set()
        go_on.wait(30)

    def interrupt() -> None:
        committing.wait(30)
        signal.pthread_kill(here, signal.SIGINT)
        threading.Event().wait(0.05)
        go_on.set()

    failpoints.arm("sqlite.commit.before", stop)
    helper = in_thread(interrupt)
    threads: list[Any] = []

    def gather() -> None:
        with lead_held(store) as queued:
            threads.append(in_thread(lambda: store.put(claimed(key(2)), None)))
            queued(1)
            ready.set()
            queued(2)

    ready = threading.Event()
    holder = in_thread(gather)
    ready.wait(30)
    with pytest.raises(KeyboardInterrupt):
        store.put(claimed(key(1)), None)
    stands = store.load(key(1))
    holder()
    helper()

    assert stands is not None
    assert threads[0]().landed


class Interrupted(KeyboardInterrupt):
    """Told from a real Ctrl-C."""


# One may strike while a weak set forgets what has gone: Python can raise nothing there, and says so.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <function WeakSet:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_interrupts_at_any_moment_leave_a_store_that_works(store: SqliteStore) -> None:
    """
    Hundreds of interrupts while eight callers write: nobody is left waiting, and nobody is told what is not so.
    """
    told: dict[int, bool] = {}
    stop = threading.Event()

    def write(first: int) -> int:
        done = 0
        while not stop.is_set():
            number = first + done
            told[number] = store.put(claimed(key(number)), None).landed
            done += 1
        return done

    def interrupt(*_: object) -> None:
        raise Interrupted

    callers = [in_thread(lambda first=first: write(first)) for first in range(1_000_000, 8_000_000, 1_000_000)]
    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = number = 0
    try:
        while interrupted < 400:
            number += 1
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + (number % 97) * 0.00002)
                try:
                    told[number] = store.put(claimed(key(number)), None).landed
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stop.set()
    written = [caller() for caller in callers]

    assert all(written)
    assert set(told.values()) == {True}
    assert [number for number in told if store.load(key(number)) is None] == []
    assert store.put(claimed(key(0)), None).landed


def test_a_relaxed_settle_skips_the_sync_and_a_mixed_batch_does_not(tmp_path: Path) -> None:
    """
    Only a batch in which every write may be lost to a power cut is committed without waiting for the disk.
    """
    store = SqliteStore(tmp_path / "store.db", settle="relaxed")
    first, second = (store.put(claimed(key(n)), None).record for n in (1, 2))
    assert first is not None
    assert second is not None

    def level() -> int:
        (synchronous,) = store._database.connections.writer.connection.execute("PRAGMA synchronous").fetchone()
        return int(synchronous)

    after_claim = level()
    store.put(settled(first, relaxed=True), first.version)
    after_settle = level()
    with lead_held(store) as queued:
        callers = [
            in_thread(lambda: store.put(settled(second, relaxed=True), second.version)),
            in_thread(lambda: store.put(claimed(key(3)), None)),
        ]
        queued(2)
    mixed: list[PutResult] = [caller() for caller in callers]
    after_mixed = level()
    store.close()

    assert [after_claim, after_settle, after_mixed] == [2, 1, 2]
    assert all(answer.landed for answer in mixed)


def test_a_relaxed_write_is_durable_unless_the_store_offers_otherwise(store: SqliteStore) -> None:
    """
    Asking for a relaxed settle changes nothing on a store that was not opened with settle=relaxed.
    """
    put_settled(store, key(1), relaxed=True)

    assert store._database.connections.writer.connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_purging_and_writing_take_turns(store: SqliteStore) -> None:
    """
    A purge in the queue goes alone, between two batches, and everybody is answered.
    """
    with lead_held(store) as queued:
        callers = [in_thread(lambda: store.put(claimed(key(1)), None)), None, None]
        queued(1)
        callers[1] = in_thread(lambda: store.purge(10))
        queued(2)
        callers[2] = in_thread(lambda: store.extend(b"f" * 32, HOUR, HOUR))
        queued(3)

    assert callers[0]().landed
    assert callers[1]() == (0, 0)
    assert callers[2]() == 0
