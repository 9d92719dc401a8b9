"""
The engine with its processes: one writer, parallel readers, limits that are enforced by force, and an honest end.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeAlias

import pytest

from onceward import ConfigurationError, OncewardError
from onceward.runtime.environment import REAL
from onceward.service.sql import (
    Keyed,
    Limits,
    SqlBatchResult,
    SqlError,
    SqliteEngine,
    SqlResult,
    Step,
    TableInfo,
)
from onceward.service.sql.job_queue import WorkerJob
from onceward.service.sql.lanes import Lanes
from onceward.service.sql.requests import build_request
from onceward.service.sql.worker_channel import IN_COMMIT, WorkerProgress
from onceward.service.sql.worker_sandbox import AUTO, WorkerSandbox
from onceward.service.sql.worker_supervisor import WorkerSupervisor

QUICK = Limits(statement_seconds=0.5, queue_seconds=600.0)
ME = "live:acme"
# One instruction of SQLite's that takes a quarter of a minute, and that no deadline inside of SQLite can stop.
UNSTOPPABLE = "printf('%.*c', 900000000, 'x')"


class Shop:
    """A database with a table."""

    def __init__(self, engine: SqliteEngine, name: str = "shop") -> None:
        self.engine = engine
        self.name = name

    async def open(self) -> Self:
        await self.create()
        await self.query("CREATE TABLE IF NOT EXISTS t (a)")
        return self

    def create(self) -> Awaitable[bool]:
        return self.engine.create("acme", self.name)

    def drop(self) -> Awaitable[bool]:
        return self.engine.drop("acme", self.name)

    def tables(self) -> Awaitable[list[TableInfo]]:
        return self.engine.tables("acme", self.name)

    def query(self, *arguments: Any, **options: Any) -> Awaitable[SqlResult]:
        return self.engine.query("acme", self.name, *arguments, **options)

    def batch(self, *arguments: Any, **options: Any) -> Awaitable[SqlBatchResult]:
        return self.engine.batch("acme", self.name, *arguments, **options)

    def put(self, value: object, key: str | None = None) -> Awaitable[SqlResult]:
        identity = Keyed(ME, key) if key is not None else None
        return self.query("INSERT INTO t VALUES (?)", [value], identity=identity)

    async def count(self) -> Any:
        return (await self.query("SELECT count(*) FROM t")).rows[0][0]


Play: TypeAlias = Callable[[Shop], Awaitable[Any]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Play], Any]]:
    """One engine for many plays, each with a database of its own: starting processes is what takes time."""
    with asyncio.Runner() as runner:
        engine = SqliteEngine(tmp_path_factory.mktemp("databases"), limits=QUICK, writers=1, readers=1)
        numbers = itertools.count()

        async def run(play: Play) -> Any:
            return await play(await Shop(engine, f"shop{next(numbers)}").open())

        yield lambda play: runner.run(run(play))
        runner.run(engine.close())


def running(play: Play, folder: Path, *, limits: Limits) -> Any:
    """Run a play with an engine of its own."""

    async def run() -> Any:
        async with SqliteEngine(folder, limits=limits, writers=1, readers=1) as engine:
            return await play(await Shop(engine).open())

    return asyncio.run(run())


async def came_to(asked: Awaitable[Any]) -> str:
    """`ran`, `replayed`, or the kind or class of the error."""
    try:
        answer = await asked
    except SqlError as error:
        return error.kind.value
    except OncewardError as error:
        return type(error).__name__
    return "replayed" if answer.replayed else "ran"


async def taken(engine: SqliteEngine) -> None:
    """Until the writer has what was asked for."""
    await asyncio.sleep(0)
    while len(engine._lanes.writes[0]) or not engine._supervisors[0].is_busy:
        await asyncio.sleep(0)


@pytest.mark.requirement("A09", "A12")
def test_fifty_at_once_run_once(shared: Callable[[Play], Any]) -> None:
    """
    Fifty requests with one key: one execution, and all learn its answer. Twenty without a key lose no update.
    """

    async def play(shop: Shop) -> Any:
        same = await asyncio.gather(*(shop.put("x", "k") for _ in range(50)))
        await shop.query("CREATE TABLE n (v)")
        await shop.query("INSERT INTO n VALUES (0)")
        add = "UPDATE n SET v = v + 1"
        await asyncio.gather(*(shop.query(add) for _ in range(20)))
        total = await shop.query("SELECT v FROM n")
        return same, await shop.count(), total.rows

    same, rows, total = shared(play)

    assert sum(answer.replayed for answer in same) == 49
    assert len({str(answer.document) for answer in same}) == 1
    assert (rows, total) == (1, [[20]])


def test_the_whole_interface(tmp_path: Path) -> None:
    """
    Create, list, look, query, batch, plan, replay across a restart, drop: and a dropped database's keys go with it.
    """

    async def first(shop: Shop) -> Any:
        again = await shop.create()
        await shop.engine.create("acme", "other")
        await shop.engine.create("zeta", "shop")
        batch = await shop.batch(
            [("INSERT INTO t VALUES (:a)", {"a": 1}), "SELECT a FROM t"], identity=Step(ME, "p", "s")
        )
        return again, batch.results[1].rows, await shop.engine.databases(), await shop.engine.databases("acme")

    async def second(shop: Shop) -> Any:
        read_first = await shop.count()
        replay = await shop.batch(
            [("INSERT INTO t VALUES (:a)", {"a": 1}), "SELECT a FROM t"], identity=Step(ME, "p", "s")
        )
        tables = await shop.tables()
        dropped = await shop.drop(), await shop.drop()
        unknown = [await came_to(shop.count()), await came_to(shop.put(1, "k"))]
        await shop.create()
        await shop.query("CREATE TABLE t (a)")
        anew = await shop.put(2, "k")
        return read_first, replay.replayed, tables, dropped, unknown, anew.replayed, await shop.count()

    made = running(first, tmp_path, limits=QUICK)
    read_first, replayed, tables, dropped, unknown, anew, rows = running(second, tmp_path, limits=QUICK)

    assert made[:2] == (False, [[1]])
    assert made[2] == [("acme", "other"), ("acme", "shop"), ("zeta", "shop")]
    assert made[3] == [("acme", "other"), ("acme", "shop")]
    assert (read_first, replayed) == (1, True)
    assert tables == [("t", "table", [("a", "", True, False)], 1, True)]
    assert (dropped, unknown) == ((True, False), ["DatabaseUnknown"] * 2)
    assert (anew, rows) == (False, 1)


def test_statements_that_only_read_go_to_the_readers(shared: Callable[[Play], Any]) -> None:
    """
    While the writer is busy reads go on; one that only looks like a read finds its way to the writer.
    """

    async def play(shop: Shop) -> Any:
        await shop.put(1)
        await shop.count()
        slow = asyncio.create_task(came_to(shop.query(f"INSERT INTO t VALUES ({UNSTOPPABLE})")))
        reads = [await shop.count() for _ in range(5)]
        busy = not slow.done()
        await shop.query("PRAGMA user_version = 7")
        version = await shop.query("PRAGMA user_version")
        inserted = await shop.query("WITH c AS (SELECT 2) INSERT INTO t SELECT * FROM c RETURNING a")
        return reads, busy, await slow, version.rows, inserted.rows

    reads, busy, slow, version, inserted = shared(play)

    assert (reads, busy, slow) == ([1] * 5, True, "timeout")
    assert (version, inserted) == ([[7]], [[2]])


def test_who_may_only_read_is_refused_everywhere(shared: Callable[[Play], Any]) -> None:
    """
    On a reader without a key, on the writer with one.
    """
    writes = [
        "INSERT INTO t VALUES (1)",
        "PRAGMA user_version = 7",
        "DROP TABLE t",
        "WITH c AS (SELECT 1) DELETE FROM t",
    ]

    async def play(shop: Shop) -> Any:
        words = []
        for sql in writes:
            words += [
                await came_to(shop.query(sql, readonly=True)),
                await came_to(shop.query(sql, readonly=True, identity=Keyed(ME, "k"))),
                await came_to(shop.batch(["SELECT 1", sql], readonly=True)),
            ]
        read = await shop.query("SELECT 1", readonly=True, identity=Keyed(ME, "k2"))
        return words, read.rows, await shop.count()

    assert shared(play) == (["readonly"] * 12, [[1]], 0)


@pytest.mark.slow
def test_what_no_deadline_stops_is_killed_and_nobody_else_is_harmed(shared: Callable[[Play], Any]) -> None:
    """
    Past its deadline the process is killed: one of the slow lane, because the quick ones do not begin with it.
    Neighbours of its group, with and without a key, are run again.
    """

    async def play(shop: Shop) -> Any:
        await shop.count()
        quick, slow = shop.engine._supervisors[:2], shop.engine._supervisors[2:]
        before = sum(one.started for one in quick), sum(one.started for one in slow)
        plain = came_to(shop.query(f"INSERT INTO t VALUES ({UNSTOPPABLE})"))
        keyed = came_to(shop.query(f"INSERT INTO t VALUES ({UNSTOPPABLE})", identity=Keyed(ME, "bomb")))
        reading = came_to(shop.query(f"SELECT {UNSTOPPABLE}"))
        neighbours = [came_to(shop.put(number, f"k{number}" if number % 2 else None)) for number in range(6)]
        words = await asyncio.gather(plain, keyed, reading, *neighbours)
        after = await came_to(shop.put(7, "bomb"))
        started = sum(one.started for one in quick), sum(one.started for one in slow)
        return words, await shop.count(), after, before, started

    words, rows, after, before, started = shared(play)

    assert words == ["timeout"] * 3 + ["ran"] * 6
    assert (rows, after) == (7, "ran")
    assert started[0] == before[0]
    assert started[1] - before[1] >= 3


def test_workers_have_limits_of_their_own(shared: Callable[[Play], Any]) -> None:
    """
    Address space, files, the size of a file, processor time, no core: set before any SQL is run.
    """

    async def play(shop: Shop) -> Any:
        await shop.count()
        return [
            Path(f"/proc/{supervisor.pid}/limits").read_text()
            for supervisor in shop.engine._supervisors
            if supervisor.confined is not None
        ]

    texts = shared(play)

    assert len(texts) >= 2
    for text in texts:
        limits = {queue[:25].strip(): queue[25:].split()[0] for queue in text.splitlines()[1:]}
        assert ("0", str(2 << 30)) == (limits["Max core file size"], limits["Max address space"])
        assert int(limits["Max open files"]) <= 1024
        assert int(limits["Max cpu time"]) <= 60
        assert int(limits["Max file size"]) == 2 * (1 << 30) + (64 << 20)


def test_memory_ends_somewhere(tmp_path: Path) -> None:
    """
    What needs more memory than a worker may have is too large; the worker lives.
    """
    limits = Limits(statement_seconds=5, memory_bytes=24 << 20)
    hundred = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100)"
    hungry = f"{hundred} SELECT DISTINCT randomblob(900000) FROM c"

    async def play(shop: Shop) -> Any:
        return await came_to(shop.query(hungry)), await shop.count(), shop.engine._supervisors[-1].started

    word, rows, _ = running(play, tmp_path, limits=limits)

    assert (word, rows) == ("tooLarge", 0)


def test_a_killed_worker_is_replaced(shared: Callable[[Play], Any]) -> None:
    """
    Killed while idle, both kinds come back with the next request, and nothing is lost.
    """

    async def play(shop: Shop) -> Any:
        await shop.put(1, "k")
        await shop.count()
        for supervisor in shop.engine._supervisors:
            if supervisor.pid is not None:
                os.kill(supervisor.pid, signal.SIGKILL)
        return await came_to(shop.put(1, "k")), await came_to(shop.put(2)), await shop.count()

    assert shared(play) == ("replayed", "ran", 2)


def test_a_stopped_worker_is_replaced(shared: Callable[[Play], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One that does nothing at all is killed like one that does too much.
    """
    monkeypatch.setattr("onceward.service.sql.worker_supervisor.BEGIN_SECONDS", 0.5)

    async def play(shop: Shop) -> Any:
        pid = shop.engine._supervisors[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        return await came_to(shop.put(1, "k")), await shop.count()

    assert shared(play) == ("ran", 1)


def test_without_a_key_an_interrupted_commit_is_an_unknown_outcome() -> None:
    """
    If a worker dies in the middle of a commit, a write with a key is sent again; one without is answered honestly. As
    long as no commit had begun, everybody is sent again.
    """

    async def play(seen: WorkerProgress, *, overdue: bool, quick: bool = True) -> list[str]:
        lanes = Lanes(QUICK, REAL, 1)
        queue, held = lanes.writes[0] if quick else lanes.slow, WorkerSandbox(Path(), AUTO)
        supervisor = WorkerSupervisor(queue, lanes, QUICK, {}, REAL, sandbox=held)
        supervisor._groups = 5
        loop = asyncio.get_running_loop()
        requests = [
            build_request(["INSERT INTO t VALUES (1)"], QUICK),
            build_request(["INSERT INTO t VALUES (1)"], QUICK, identity=Keyed(ME, "k")),
            build_request(["SELECT 1"], QUICK, readonly=True),
        ]
        jobs = [WorkerJob("p", "group", loop.create_future(), 0.0, request) for request in requests]
        supervisor._after_death(jobs, seen, overdue=overdue)
        again, slow = lanes.writes[0].clear(), lanes.slow.clear()
        return [
            "again" if job in again else "slow" if job in slow else type(job.future.exception()).__name__
            for job in jobs
        ]

    told = {
        "before it began": asyncio.run(play(WorkerProgress(4, True, 9, IN_COMMIT), overdue=False)),
        "while it ran": asyncio.run(play(WorkerProgress(5, False, 9, 0), overdue=False)),
        "overdue": asyncio.run(play(WorkerProgress(5, False, 9, 0), overdue=True)),
        "overdue, slow": asyncio.run(play(WorkerProgress(5, False, 9, 0), overdue=True, quick=False)),
        "in its commit": asyncio.run(play(WorkerProgress(5, True, 9, IN_COMMIT), overdue=False)),
    }

    assert told == {
        "before it began": ["again", "again", "again"],
        "while it ran": ["slow", "slow", "slow"],
        "overdue": ["slow", "slow", "slow"],
        "overdue, slow": ["SqlError", "slow", "slow"],
        "in its commit": ["OutcomeUnknown", "again", "again"],
    }


def test_closing_finishes_what_is_under_way(tmp_path: Path) -> None:
    """
    Requests that were taken are answered; later ones are told to go elsewhere, with the same key.
    """

    async def play() -> Any:
        engine = SqliteEngine(tmp_path, limits=QUICK, writers=1)
        shop = await Shop(engine).open()
        tasks = [asyncio.create_task(came_to(shop.put(number, f"k{number}"))) for number in range(30)]
        await asyncio.gather(*(asyncio.create_task(asyncio.sleep(0)) for _ in range(3)))
        pids = [supervisor.pid for supervisor in shop.engine._supervisors if supervisor.pid is not None]
        await engine.close()
        return await asyncio.gather(*tasks), await came_to(shop.count()), pids

    words, late, pids = asyncio.run(play())

    assert (words, late) == (["ran"] * 30, "EngineClosed")
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_closing_without_patience_is_honest(tmp_path: Path) -> None:
    """
    What is not done in time is told so: a key may be sent again, a write without one is unknown.
    """
    slow = Limits(statement_seconds=1.5)

    async def play() -> Any:
        engine = SqliteEngine(tmp_path, limits=slow, writers=1)
        shop = await Shop(engine).open()
        endless = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT x FROM c"
        first = asyncio.create_task(came_to(shop.query(endless)))
        await taken(shop.engine)
        later = asyncio.create_task(came_to(shop.put(1)))
        await asyncio.sleep(0)
        await engine.close(seconds=0.0)
        return await first, await later

    assert asyncio.run(play()) == ("OutcomeUnknown", "EngineClosed")


def test_a_caller_who_goes_away_takes_nobody_along(shared: Callable[[Play], Any]) -> None:
    """
    A cancelled request that had not begun is not run; one that had finishes, and its key replays.
    """

    async def play(shop: Shop) -> Any:
        begun = asyncio.ensure_future(shop.put("begun", "k"))
        await taken(shop.engine)
        waiting = asyncio.ensure_future(shop.put("waiting"))
        await asyncio.sleep(0)
        for gone in (begun, waiting):
            gone.cancel()
        await asyncio.gather(begun, waiting, return_exceptions=True)
        again = await came_to(shop.put("begun", "k"))
        return begun.cancelled(), waiting.cancelled(), again, (await shop.query("SELECT a FROM t")).rows

    assert shared(play) == (True, True, "replayed", [["begun"]])


def test_a_line_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """
    At once, in words that say to come back; nothing was run.
    """

    async def play(shop: Shop) -> Any:
        words = await asyncio.gather(*(came_to(shop.put(number)) for number in range(40)))
        return words, await shop.count()

    words, rows = running(play, tmp_path, limits=Limits(queue_length=10))

    assert set(words) == {"ran", "locked"}
    assert rows == words.count("ran")


def test_a_thousand_requests_of_one_caller_are_not_held_back(shared: Callable[[Play], Any]) -> None:
    """
    Nothing counts requests per caller.
    """

    async def play(shop: Shop) -> Any:
        words = await asyncio.gather(*(came_to(shop.put(number, f"k{number}")) for number in range(1_000)))
        return set(words), await shop.count()

    assert shared(play) == ({"ran"}, 1_000)


def test_bad_input_never_reaches_a_worker(tmp_path: Path) -> None:
    """
    Names, statements and terms that cannot be are refused where they are given.
    """

    async def play() -> Any:
        engine = SqliteEngine(tmp_path)
        shop = Shop(engine)
        words = [
            await came_to(engine.query("..", "shop", "SELECT 1")),
            await came_to(engine.query("acme", "SHOP", "SELECT 1")),
            await came_to(shop.query("BEGIN")),
            await came_to(shop.query(7)),
            await came_to(shop.query("SELECT ?", "text")),
            await came_to(shop.query("SELECT ?", ["x" * 5_000_000])),
        ]
        started = [supervisor.started for supervisor in shop.engine._supervisors]
        await engine.close()
        return words, started

    words, started = asyncio.run(play())

    assert words == ["NameInvalid", "NameInvalid", "denied", "syntax", "wrongParams", "tooLarge"]
    assert started == [0, 0, 0, 0, 0, 0]
    for wrong in ({"retain": -1}, {"after_expiry": "maybe"}, {"lease": 5}):
        with pytest.raises(ConfigurationError):
            SqliteEngine(tmp_path, **wrong)


def test_a_long_request_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    """
    Reading megabytes of SQL takes a while; it is done in a thread.
    """

    async def play() -> Any:
        engine = SqliteEngine(tmp_path)
        statements = ["SELECT " + "'', " * 24_000] * 5
        asked = asyncio.create_task(came_to(engine.batch("acme", "shop", [*statements, "BEGIN"])))
        turns = 0
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1
        await engine.close()
        return asked.result(), turns

    word, turns = asyncio.run(play())

    assert word == "denied"
    assert turns > 3


def test_a_mistake_in_the_engine_leaves_nobody_waiting(
    shared: Callable[[Play], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Planted: handing a group over raises something that nobody expects. Callers are told, and the next request works.
    """

    async def play(shop: Shop) -> Any:
        monkeypatch.setattr("onceward.service.sql.worker_supervisor.packed", lambda text: 1 / 0)
        words = [await came_to(shop.put(1, "k")), await came_to(shop.put(2))]
        monkeypatch.undo()
        return words, await came_to(shop.put(1, "k")), await shop.count()

    assert shared(play) == (["StoreUnavailable", "OutcomeUnknown"], "ran", 1)


STARTER = """
import os, sys, time
folder = sys.argv[1]
number = 0
while True:
    try:
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_EXCL))
        break
    except FileExistsError:
        number += 1
while number == 2 and not os.path.exists(f"{folder}/go"):
    time.sleep(0.01)
os.execv(sys.executable, [sys.executable, "-m", "onceward.service.sql.worker", *sys.argv[2:]])
"""


@pytest.mark.fault("a-request-waits-for-a-worker-to-start")
def test_nobody_waits_for_a_worker_that_is_being_started(tmp_path: Path) -> None:
    """
    The third process hangs while it starts. What it was started for is done by the one that runs already.
    """
    folder, starts = tmp_path / "databases", tmp_path / "starts"
    starts.mkdir()
    (tmp_path / "starter.py").write_text(STARTER)
    command = [sys.executable, str(tmp_path / "starter.py"), str(starts)]

    async def play() -> tuple[list[int], list[str]]:
        async with SqliteEngine(folder, worker_command=command, writers=1, readers=2) as engine:
            shop = await Shop(engine).open()
            counts = [await shop.count()]
            try:
                while not (starts / "2").exists():
                    counts += await asyncio.gather(*(shop.count() for _ in range(10)))
                async with asyncio.timeout(60):
                    counts += await asyncio.gather(*(shop.count() for _ in range(10)))
            finally:
                (starts / "go").touch()
            return counts, sorted(one.name for one in starts.iterdir())

    counts, started = asyncio.run(play())

    assert len(counts) > 20
    assert set(counts) == {0}
    assert started == ["0", "1", "2", "go"]


def test_if_no_worker_can_be_started_a_request_says_so(tmp_path: Path) -> None:
    """
    Nothing hangs: the request was not run, and may be sent again.
    """

    async def play() -> str:
        engine = SqliteEngine(tmp_path, worker_command=["/bin/false"])
        shop = Shop(engine)
        try:
            return await came_to(shop.create())
        finally:
            await engine.close()

    assert asyncio.run(play()) == "StoreUnavailable"


def test_what_comes_in_company_goes_together(tmp_path: Path) -> None:
    """
    Sixteen callers, each with its next request when it has its answer: far fewer groups than requests. Nobody is
    waited for: a caller alone has a group for each of its own.
    """

    async def play() -> tuple[int, int]:
        async with SqliteEngine(tmp_path / "databases", writers=1) as engine:
            await engine.create("test-me", "shop")
            await engine.query("test-me", "shop", "CREATE TABLE t (a)")
            writer = engine._supervisors[0]

            async def caller(times: int) -> None:
                for number in range(times):
                    await engine.query("test-me", "shop", "INSERT INTO t VALUES (?)", [number])

            before = writer._groups
            await asyncio.gather(*(caller(20) for _ in range(16)))
            between = writer._groups
            await caller(20)
            return between - before, writer._groups - between

    together, alone = asyncio.run(play())

    assert together <= 160
    assert alone == 20
