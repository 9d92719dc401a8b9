"""
The engine with its processes: one writer, parallel readers, limits that are enforced by force, and an honest end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, OncewardError
from onceward.environment import REAL
from onceward.service.sql import Engine, Keyed, Limits, SqlEngine, SqlError, Step
from onceward.service.sql.desk import Desk
from onceward.service.sql.frames import IN_COMMIT, Seen
from onceward.service.sql.lines import Job, Line
from onceward.service.sql.requests import checked

QUICK = Limits(statement_seconds=0.4)
ME = "live:acme"
# One instruction of SQLite's that takes a quarter of a minute, and that no deadline inside of SQLite can stop.
UNSTOPPABLE = "printf('%.*c', 900000000, 'x')"


def running(play: Callable[[Engine], Awaitable[Any]], folder: Path, *, limits: Limits = QUICK, **settings: Any) -> Any:
    """Run a play with an engine that has a database and a table."""

    async def run() -> Any:
        async with Engine(folder, limits=limits, writers=1, readers=1, **settings) as engine:
            await engine.create("acme", "shop")
            await engine.query("acme", "shop", "CREATE TABLE IF NOT EXISTS t (a)")
            return await play(engine)

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


async def count(engine: SqlEngine) -> Any:
    return (await engine.query("acme", "shop", "SELECT count(*) FROM t")).rows[0][0]


def put(engine: SqlEngine, value: object, key: str | None = None) -> Awaitable[Any]:
    identity = Keyed(ME, key) if key is not None else None
    return engine.query("acme", "shop", "INSERT INTO t VALUES (?)", [value], identity=identity)


@pytest.mark.requirement("A09", "A12")
def test_fifty_at_once_run_once(tmp_path: Path) -> None:
    """
    Fifty requests with one key: one execution, and all learn its answer. Twenty without a key lose no update.
    """

    async def play(engine: Engine) -> Any:
        same = await asyncio.gather(*(put(engine, "x", "k") for _ in range(50)))
        await engine.query("acme", "shop", "CREATE TABLE n (v)")
        await engine.query("acme", "shop", "INSERT INTO n VALUES (0)")
        add = "UPDATE n SET v = v + 1"
        await asyncio.gather(*(engine.query("acme", "shop", add) for _ in range(20)))
        total = await engine.query("acme", "shop", "SELECT v FROM n")
        return same, await count(engine), total.rows

    same, rows, total = running(play, tmp_path)

    assert 49 == sum(answer.replayed for answer in same)
    assert 1 == len({str(answer.document) for answer in same})
    assert (1, [[20]]) == (rows, total)


def test_the_whole_interface(tmp_path: Path) -> None:
    """
    Create, list, look, query, batch, plan, replay across a restart, drop: and a dropped database's keys go with it.
    """

    async def first(engine: Engine) -> Any:
        again = await engine.create("acme", "shop")
        await engine.create("acme", "other")
        await engine.create("zeta", "shop")
        batch = await engine.batch(
            "acme", "shop", [("INSERT INTO t VALUES (:a)", {"a": 1}), "SELECT a FROM t"], identity=Step(ME, "p", "s")
        )
        return again, batch.answers[1].rows, await engine.databases(), await engine.databases("acme")

    async def second(engine: Engine) -> Any:
        read_first = await count(engine)
        replay = await engine.batch(
            "acme", "shop", [("INSERT INTO t VALUES (:a)", {"a": 1}), "SELECT a FROM t"], identity=Step(ME, "p", "s")
        )
        tables = await engine.tables("acme", "shop")
        dropped = await engine.drop("acme", "shop"), await engine.drop("acme", "shop")
        unknown = [await came_to(count(engine)), await came_to(put(engine, 1, "k"))]
        await engine.create("acme", "shop")
        await engine.query("acme", "shop", "CREATE TABLE t (a)")
        anew = await put(engine, 2, "k")
        return read_first, replay.replayed, tables, dropped, unknown, anew.replayed, await count(engine)

    made = running(first, tmp_path)
    read_first, replayed, tables, dropped, unknown, anew, rows = running(second, tmp_path)

    assert (False, [[1]]) == made[:2]
    assert [("acme", "other"), ("acme", "shop"), ("zeta", "shop")] == made[2]
    assert [("acme", "other"), ("acme", "shop")] == made[3]
    assert (1, True) == (read_first, replayed)
    assert [("t", "table", [("a", "", True, False)], 1, True)] == tables
    assert ((True, False), ["DatabaseUnknown"] * 2) == (dropped, unknown)
    assert (False, 1) == (anew, rows)


def test_statements_that_only_read_go_to_the_readers(tmp_path: Path) -> None:
    """
    While the writer is busy reads go on; one that only looks like a read finds its way to the writer.
    """

    async def play(engine: Engine) -> Any:
        await put(engine, 1)
        await count(engine)
        slow = asyncio.create_task(
            came_to(
                engine.query(
                    "acme",
                    "shop",
                    "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT x FROM c",
                )
            )
        )
        reads = [await count(engine) for _ in range(5)]
        busy = not slow.done()
        await engine.query("acme", "shop", "PRAGMA user_version = 7")
        version = await engine.query("acme", "shop", "PRAGMA user_version")
        inserted = await engine.query("acme", "shop", "WITH c AS (SELECT 2) INSERT INTO t SELECT * FROM c RETURNING a")
        return reads, busy, await slow, version.rows, inserted.rows

    reads, busy, slow, version, inserted = running(play, tmp_path, limits=Limits(statement_seconds=1.5))

    assert ([1] * 5, True, "timeout") == (reads, busy, slow)
    assert ([[7]], [[2]]) == (version, inserted)


def test_who_may_only_read_is_refused_everywhere(tmp_path: Path) -> None:
    """
    On a reader without a key, on the writer with one.
    """
    writes = [
        "INSERT INTO t VALUES (1)",
        "PRAGMA user_version = 7",
        "DROP TABLE t",
        "WITH c AS (SELECT 1) DELETE FROM t",
    ]

    async def play(engine: Engine) -> Any:
        words = []
        for sql in writes:
            words += [
                await came_to(engine.query("acme", "shop", sql, readonly=True)),
                await came_to(engine.query("acme", "shop", sql, readonly=True, identity=Keyed(ME, "k"))),
                await came_to(engine.batch("acme", "shop", ["SELECT 1", sql], readonly=True)),
            ]
        read = await engine.query("acme", "shop", "SELECT 1", readonly=True, identity=Keyed(ME, "k2"))
        return words, read.rows, await count(engine)

    assert (["readonly"] * 12, [[1]], 0) == running(play, tmp_path)


@pytest.mark.slow
def test_what_no_deadline_stops_is_killed_and_nobody_else_is_harmed(tmp_path: Path) -> None:
    """
    At twice the deadline the process is killed. Neighbours of its group, with and without a key, are run again.
    """

    async def play(engine: Engine) -> Any:
        writer, reader = engine._desks[0], engine._desks[-1]
        plain = came_to(engine.query("acme", "shop", f"INSERT INTO t VALUES ({UNSTOPPABLE})"))
        keyed = came_to(
            engine.query("acme", "shop", f"INSERT INTO t VALUES ({UNSTOPPABLE})", identity=Keyed(ME, "bomb"))
        )
        reading = came_to(engine.query("acme", "shop", f"SELECT {UNSTOPPABLE}"))
        neighbours = [came_to(put(engine, number, f"k{number}" if number % 2 else None)) for number in range(6)]
        words = await asyncio.gather(plain, keyed, reading, *neighbours)
        return words, await count(engine), writer.started, reader.started, await came_to(put(engine, 7, "bomb"))

    words, rows, writers, _, after = running(play, tmp_path)

    assert ["timeout"] * 3 + ["ran"] * 6 == words
    assert (6, 3) == (rows, writers)
    assert "ran" == after


def test_workers_have_limits_of_their_own(tmp_path: Path) -> None:
    """
    Address space, files, the size of a file, processor time, no core: set before any SQL is run.
    """

    async def play(engine: Engine) -> Any:
        await count(engine)
        return [Path(f"/proc/{desk.pid}/limits").read_text() for desk in engine._desks if desk.pid is not None]

    texts = running(play, tmp_path)

    assert len(texts) >= 2
    for text in texts:
        limits = {line[:25].strip(): line[25:].split()[0] for line in text.splitlines()[1:]}
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

    async def play(engine: Engine) -> Any:
        return await came_to(engine.query("acme", "shop", hungry)), await count(engine), engine._desks[-1].started

    word, rows, _ = running(play, tmp_path, limits=limits)

    assert ("tooLarge", 0) == (word, rows)


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    """
    Killed while idle, both kinds come back with the next request, and nothing is lost.
    """

    async def play(engine: Engine) -> Any:
        await put(engine, 1, "k")
        await count(engine)
        for desk in engine._desks:
            if desk.pid is not None:
                os.kill(desk.pid, signal.SIGKILL)
        return await came_to(put(engine, 1, "k")), await came_to(put(engine, 2)), await count(engine)

    assert ("replayed", "ran", 2) == running(play, tmp_path)


def test_a_stopped_worker_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One that does nothing at all is killed like one that does too much.
    """
    monkeypatch.setattr("onceward.service.sql.desk.BEGIN_SECONDS", 0.5)

    async def play(engine: Engine) -> Any:
        pid = engine._desks[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        return await came_to(put(engine, 1, "k")), await count(engine)

    assert ("ran", 1) == running(play, tmp_path)


def test_without_a_key_an_interrupted_commit_is_an_unknown_outcome() -> None:
    """
    If a worker dies in the middle of a commit, a write with a key is sent again; one without is answered honestly. As
    long as no commit had begun, everybody is sent again.
    """

    async def play(seen: Seen, *, overdue: bool) -> list[str]:
        line = Line(QUICK)
        desk = Desk(line, QUICK, {}, REAL, together=64)
        desk._groups = 5
        loop = asyncio.get_running_loop()
        requests = [
            checked(["INSERT INTO t VALUES (1)"], QUICK),
            checked(["INSERT INTO t VALUES (1)"], QUICK, identity=Keyed(ME, "k")),
            checked(["SELECT 1"], QUICK, readonly=True),
        ]
        jobs = [Job("p", "group", loop.create_future(), 0.0, request) for request in requests]
        desk._after_death(jobs, seen, overdue=overdue)
        again = line.clear()
        return ["again" if job in again else type(job.future.exception()).__name__ for job in jobs]

    told = {
        "before it began": asyncio.run(play(Seen(4, True, 9, IN_COMMIT), overdue=False)),
        "while it ran": asyncio.run(play(Seen(5, False, 9, 0), overdue=False)),
        "overdue": asyncio.run(play(Seen(5, False, 9, 0), overdue=True)),
        "in its commit": asyncio.run(play(Seen(5, True, 9, IN_COMMIT), overdue=False)),
    }

    assert {
        "before it began": ["again", "again", "again"],
        "while it ran": ["again", "again", "again"],
        "overdue": ["SqlError", "again", "again"],
        "in its commit": ["OutcomeUnknown", "again", "again"],
    } == told


def test_closing_finishes_what_is_under_way(tmp_path: Path) -> None:
    """
    Requests that were taken are answered; later ones are told to go elsewhere, with the same key.
    """

    async def play() -> Any:
        engine = Engine(tmp_path, limits=QUICK, writers=1)
        await engine.create("acme", "shop")
        await engine.query("acme", "shop", "CREATE TABLE t (a)")
        tasks = [asyncio.create_task(came_to(put(engine, number, f"k{number}"))) for number in range(30)]
        await asyncio.gather(*(asyncio.create_task(asyncio.sleep(0)) for _ in range(3)))
        pids = [desk.pid for desk in engine._desks if desk.pid is not None]
        await engine.close()
        return await asyncio.gather(*tasks), await came_to(count(engine)), pids

    words, late, pids = asyncio.run(play())

    assert (["ran"] * 30, "EngineClosed") == (words, late)
    assert [] == [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_closing_without_patience_is_honest(tmp_path: Path) -> None:
    """
    What is not done in time is told so: a key may be sent again, a write without one is unknown.
    """
    slow = Limits(statement_seconds=1.5)

    async def play() -> Any:
        engine = Engine(tmp_path, limits=slow, writers=1)
        await engine.create("acme", "shop")
        await engine.query("acme", "shop", "CREATE TABLE t (a)")
        endless = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT x FROM c"
        first = asyncio.create_task(came_to(engine.query("acme", "shop", endless)))
        while not engine._desks[0].is_busy:
            await asyncio.sleep(0)
        later = asyncio.create_task(came_to(put(engine, 1)))
        await asyncio.sleep(0)
        await engine.close(seconds=0.0)
        return await first, await later

    assert ("OutcomeUnknown", "EngineClosed") == asyncio.run(play())


def test_a_caller_who_goes_away_takes_nobody_along(tmp_path: Path) -> None:
    """
    A cancelled request that had not begun is not run; one that had finishes, and its key replays.
    """

    async def play(engine: Engine) -> Any:
        gone = asyncio.ensure_future(put(engine, 1))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        return await came_to(put(engine, 2, "k")), await count(engine)

    word, rows = running(play, tmp_path)

    assert "ran" == word
    assert rows in (1, 2)


def test_a_line_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """
    At once, in words that say to come back; nothing was run.
    """

    async def play(engine: Engine) -> Any:
        words = await asyncio.gather(*(came_to(put(engine, number)) for number in range(40)))
        return words, await count(engine)

    words, rows = running(play, tmp_path, limits=Limits(queue_length=10))

    assert {"ran", "locked"} == set(words)
    assert rows == words.count("ran")


@pytest.mark.requirement("A33")
def test_a_thousand_requests_of_one_caller_are_not_held_back(tmp_path: Path) -> None:
    """
    Nothing counts requests per caller.
    """

    async def play(engine: Engine) -> Any:
        words = await asyncio.gather(*(came_to(put(engine, number, f"k{number}")) for number in range(1_000)))
        return set(words), await count(engine)

    assert ({"ran"}, 1_000) == running(play, tmp_path, limits=Limits())


def test_bad_input_never_reaches_a_worker(tmp_path: Path) -> None:
    """
    Names, statements and terms that cannot be are refused where they are given.
    """

    async def play() -> Any:
        engine = Engine(tmp_path)
        words = [
            await came_to(engine.query("..", "shop", "SELECT 1")),
            await came_to(engine.query("acme", "SHOP", "SELECT 1")),
            await came_to(engine.query("acme", "shop", "BEGIN")),
            await came_to(engine.query("acme", "shop", 7)),  # type: ignore[arg-type]
            await came_to(engine.query("acme", "shop", "SELECT ?", "text")),  # type: ignore[arg-type]
            await came_to(engine.query("acme", "shop", "SELECT ?", ["x" * 5_000_000])),
        ]
        started = [desk.started for desk in engine._desks]
        await engine.close()
        return words, started

    words, started = asyncio.run(play())

    assert ["NameInvalid", "NameInvalid", "denied", "syntax", "wrongParams", "tooLarge"] == words
    assert [0, 0, 0, 0] == started
    for wrong in ({"retain": -1}, {"after_expiry": "maybe"}, {"lease": 5}):
        with pytest.raises(ConfigurationError):
            Engine(tmp_path, **wrong)


def test_if_no_worker_can_be_started_a_request_says_so(tmp_path: Path) -> None:
    """
    Nothing hangs: the request was not run, and may be sent again.
    """

    async def play() -> str:
        engine = Engine(tmp_path, worker_command=["/bin/false"])
        try:
            return await came_to(engine.create("acme", "shop"))
        finally:
            await engine.close()

    assert "StoreUnavailable" == asyncio.run(play())
