"""
Cost belongs to whoever causes it: real workers, real bombs, and neighbours who do not notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from onceward import OncewardError, RateLimitError
from onceward.runtime.environment import REAL
from onceward.service.access import Account, Accounts, Allowance, Resource
from onceward.service.sql import Keyed, Limits, SqlCost, SqlError, SqliteEngine, cost_of
from onceward.service.sql.tenant_loads import HEAVY
from onceward.service.sql.worker_supervisor import WorkerSupervisor

ENDLESS = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
READ_BOMB = f"{ENDLESS} SELECT count(*) FROM c"
WRITE_BOMB = f"{ENDLESS} INSERT INTO t SELECT x FROM c"
ONE_INSTRUCTION = "SELECT printf('%.*c', 900000000, 'x')"
HALF_A_SECOND = f"{ENDLESS} INSERT INTO t SELECT count(*) FROM (SELECT x FROM c LIMIT 2000000)"
"""About that; in any case more than a slice and less than a deadline."""
PATIENT = Limits(statement_seconds=60.0, queue_seconds=600.0)
SHORT = Limits(statement_seconds=0.3, queue_seconds=600.0)
SHORT_WITH_ROOM = Limits(statement_seconds=0.3, queue_seconds=600.0, memory_bytes=1 << 30)


class Bench:
    """An engine with one worker of each quick kind, two tenants, and their accounts."""

    def __init__(self, engine: SqliteEngine, allowance: Allowance | None = None) -> None:
        self.engine = engine
        self.accounts = Accounts(REAL.monotonic, allowance)

    def account(self, tenant: str) -> Account:
        return self.accounts.of_tenant(tenant)

    def used(self, tenant: str) -> float:
        return self.account(tenant).usage().cpu_seconds

    async def open(self, *tenants: str) -> None:
        for tenant in tenants:
            await self.engine.create(tenant, "shop")
            await self.engine.query(tenant, "shop", "CREATE TABLE t (a)")

    def ask(self, tenant: str, sql: str, key: str | None = None, **options: Any) -> Awaitable[Any]:
        identity = Keyed(f"live:{tenant}", key) if key is not None else None
        return self.engine.query(tenant, "shop", sql, identity=identity, account=self.account(tenant), **options)

    @property
    def quick(self) -> list[WorkerSupervisor]:
        return self.engine._supervisors[:2]

    @property
    def slow(self) -> list[WorkerSupervisor]:
        return self.engine._supervisors[2:]

    async def until_slow(self, bombs: list[asyncio.Future[Any]]) -> None:
        """Until a slow worker has each of them; or until they are over, which is for the test to notice."""
        while sum(one.is_busy and one.pid is not None for one in self.slow) < len(bombs):
            if all(bomb.done() for bomb in bombs):
                return
            await asyncio.sleep(0.01)


def playing(
    play: Callable[[Bench], Awaitable[Any]],
    folder: Path,
    limits: Limits,
    *,
    tenants: Iterable[str] = ("acme", "zeta"),
    allowance: Allowance | None = None,
) -> Any:
    async def run() -> Any:
        engine = SqliteEngine(folder, limits=limits, writers=1, readers=1)
        try:
            bench = Bench(engine, allowance)
            await bench.open(*tenants)
            return await play(bench)
        finally:
            await engine.close(seconds=0.0)

    return asyncio.run(run())


async def came_to(asked: Awaitable[Any]) -> tuple[str, SqlCost]:
    """What came of it, and what it has cost."""
    try:
        result = await asked
    except SqlError as error:
        return error.kind.value, cost_of(error)
    except OncewardError as error:
        return type(error).__name__, cost_of(error)
    return "replayed" if result.replayed else "ran", result.cost


@pytest.mark.slow
@pytest.mark.fault("sql-one-lane")
def test_while_bombs_run_everybody_else_is_served(tmp_path: Path) -> None:
    """
    One tenant's endless read and another's endless write, and a third tenant reads and writes beside them, through the
    same reader and the same writer. The bombs are still running when it is done.
    """

    async def play(bench: Bench) -> Any:
        bombs = [
            asyncio.ensure_future(came_to(bench.ask("acme", READ_BOMB))),
            asyncio.ensure_future(came_to(bench.ask("evil", WRITE_BOMB))),
        ]
        await bench.until_slow(bombs)
        words = []
        for number in range(20):
            words.append(await came_to(bench.ask("zeta", f"INSERT INTO t VALUES ({number})", f"k{number}")))
            words.append(await came_to(bench.ask("zeta", "SELECT count(*) FROM t")))
        running = [not bomb.done() for bomb in bombs]
        for bomb in bombs:
            bomb.cancel()
        return {word for word, _ in words}, running, [one.started for one in bench.quick]

    words, running, started = playing(
        play, tmp_path, Limits(statement_seconds=20.0, queue_seconds=600.0), tenants=("acme", "evil", "zeta")
    )

    assert (words, running, started) == ({"ran"}, [True, True], [1, 1])


@pytest.mark.slow
@pytest.mark.fault("sql-a-time-out-is-free")
def test_a_time_out_costs_what_it_used(tmp_path: Path) -> None:
    """
    Interrupted or killed, it is on the account of whoever sent it, and on nobody else's.
    """

    async def play(bench: Bench) -> Any:
        interrupted = await came_to(bench.ask("acme", READ_BOMB))
        after = bench.used("acme")
        killed = await came_to(bench.ask("acme", ONE_INSTRUCTION))
        return interrupted, after, killed, bench.used("acme"), bench.used("zeta")

    interrupted, after, killed, in_all, other = playing(play, tmp_path, SHORT)

    assert (interrupted[0], killed[0]) == ("timeout", "timeout")
    assert interrupted[1].cpu_seconds >= SHORT.statement_seconds
    assert killed[1].cpu_seconds >= SHORT.statement_seconds
    assert after == pytest.approx(interrupted[1].cpu_seconds)
    assert in_all == pytest.approx(interrupted[1].cpu_seconds + killed[1].cpu_seconds)
    assert other == 0.0


def test_everything_has_its_price(tmp_path: Path) -> None:
    """
    A result, a replay, a refusal of SQLite's, a key that was used for something else: each costs what it took, and the
    sum is on the account. What was never run costs nothing.
    """

    async def play(bench: Bench) -> Any:
        asked = [
            bench.ask("acme", "INSERT INTO t VALUES (1)", "k"),
            bench.ask("acme", "INSERT INTO t VALUES (1)", "k"),
            bench.ask("acme", "INSERT INTO t VALUES (2)", "k"),
            bench.ask("acme", "SELECT * FROM nowhere"),
            bench.ask("acme", "PRAGMA user_version = 7"),
            bench.ask("acme", "BEGIN"),
        ]
        found = [await came_to(one) for one in asked]
        await bench.engine.tables("acme", "shop", account=bench.account("acme"))
        return found, bench.used("acme")

    found, used = playing(play, tmp_path, PATIENT)
    costs = [cost.cpu_seconds for _, cost in found]

    assert [word for word, _ in found] == ["ran", "replayed", "KeyReused", "unknownTable", "ran", "denied"]
    assert [cost > 0 for cost in costs] == [True] * 5 + [False]
    assert used > sum(costs)


@pytest.mark.slow
@pytest.mark.fault("sql-a-slice-is-a-deadline")
def test_a_slow_write_happens_once(tmp_path: Path) -> None:
    """
    Begun in the quick lane, undone, and done in the slow one, with its key; its neighbours, too. The wasted try counts.
    """

    async def play(bench: Bench) -> Any:
        slow = came_to(bench.ask("acme", HALF_A_SECOND, "slow"))
        others = [came_to(bench.ask("acme", f"INSERT INTO t VALUES ({number})", f"k{number}")) for number in range(5)]
        words = await asyncio.gather(slow, *others)
        again = await came_to(bench.ask("acme", HALF_A_SECOND, "slow"))
        rows = await bench.ask("acme", "SELECT a FROM t ORDER BY a")
        return words, again[0], [row[0] for row in rows.rows], [one.started for one in bench.slow]

    words, again, rows, started = playing(play, tmp_path, PATIENT, tenants=["acme"])

    assert [word for word, _ in words] == ["ran"] * 6
    assert (again, rows) == ("replayed", [0, 1, 2, 3, 4, 2_000_000])
    assert sum(started) >= 1
    assert words[0][1].cpu_seconds > PATIENT.slice_seconds


@pytest.mark.slow
def test_a_heavy_tenants_short_statements_make_way_too(tmp_path: Path) -> None:
    """
    Beside a modest tenant: everything of its goes to the slow lane, and works there.
    """

    async def play(bench: Bench) -> Any:
        await bench.ask("zeta", "SELECT 1")
        bench.engine._lanes.loads.add(bench.account("acme").owner, 100.0)
        words = [
            await came_to(bench.ask("acme", f"INSERT INTO t VALUES ({number})", f"k{number}")) for number in (1, 2)
        ]
        words.append(await came_to(bench.ask("acme", "SELECT count(*) FROM t")))
        return [word for word, _ in words], sum(one.started for one in bench.slow)

    words, started = playing(play, tmp_path, PATIENT)

    assert words == ["ran"] * 3
    assert started >= 1


@pytest.mark.slow
@pytest.mark.fault("sql-a-line-without-end")
def test_waiting_has_an_end_for_each_tenant(tmp_path: Path) -> None:
    """
    Past what a tenant may have waiting it is told so at once; the others have their places.
    """

    async def play(bench: Bench) -> Any:
        words = await asyncio.gather(*(came_to(bench.ask("acme", "INSERT INTO t VALUES (1)")) for _ in range(8)))
        other = [came_to(bench.ask("zeta", "INSERT INTO t VALUES (1)")) for _ in range(3)]
        count = (await bench.ask("acme", "SELECT count(*) FROM t")).rows[0][0]
        usage = bench.account("acme").usage()
        return [word for word, _ in words], await asyncio.gather(*other), count, usage

    words, other, count, usage = playing(play, tmp_path, PATIENT, allowance=Allowance(waiting=3))

    assert sorted(words) == [RateLimitError.__name__] * 5 + ["ran"] * 3
    assert ([word for word, _ in other], count) == (["ran"] * 3, 3)
    assert (usage.refused, usage.held[Resource.WAITING], usage.held[Resource.RUNNING]) == (5, 0, 0)


@pytest.mark.slow
def test_memory_is_its_senders_trouble(tmp_path: Path) -> None:
    """
    A memory bomb among others of its database: it is told, the others run, no worker dies, and it costs what it used.
    """
    limits = Limits(statement_seconds=20.0, queue_seconds=600.0, memory_bytes=24 << 20)
    hungry = f"{ENDLESS} INSERT INTO t SELECT count(*) FROM (SELECT DISTINCT randomblob(900000) FROM c LIMIT 1000)"

    async def play(bench: Bench) -> Any:
        bomb = came_to(bench.ask("acme", hungry, "bomb"))
        mates = [came_to(bench.ask("acme", f"INSERT INTO t VALUES ({number})", f"k{number}")) for number in range(6)]
        others = [came_to(bench.ask("zeta", f"INSERT INTO t VALUES ({number})")) for number in range(6)]
        told, *words = await asyncio.gather(bomb, *mates, *others)
        return told, [word for word, _ in words], [one.started for one in bench.engine._supervisors]

    told, words, started = playing(play, tmp_path, limits)

    assert (told[0], words) == ("tooLarge", ["ran"] * 12)
    assert told[1].cpu_seconds > 0
    assert max(started) == 1


@pytest.mark.fault("sql-growth-without-end")
def test_growth_holds_to_the_page(tmp_path: Path) -> None:
    """
    A statement may add what its caller says, and not a page more, whatever its text is; what fits, fits.
    """
    page = 4_096
    insert = f"{ENDLESS} INSERT INTO t SELECT zeroblob(3000) FROM c LIMIT"

    async def play(bench: Bench) -> Any:
        fits = await came_to(bench.ask("acme", f"{insert} 20", "fits", growth=40 * page))
        size = (tmp_path / "acme" / "shop.db-wal").stat().st_size
        too_much = await came_to(bench.ask("acme", f"{insert} 1000", "more", growth=40 * page))
        grown = (tmp_path / "acme" / "shop.db-wal").stat().st_size - size
        none_left = await came_to(bench.ask("acme", f"{insert} 20", growth=0))
        freed = await came_to(bench.ask("acme", "DELETE FROM t", growth=0))
        reused = await came_to(bench.ask("acme", f"{insert} 20", growth=0))
        unlimited = await came_to(bench.ask("acme", f"{insert} 1000"))
        with pytest.raises(SqlError, match="quota") as error:
            await bench.ask("acme", f"{insert} 1000", growth=10)
        return [fits, too_much, none_left, freed, reused, unlimited], grown, error.value.hint

    found, grown, hint = playing(play, tmp_path, PATIENT, tenants=["acme"])

    assert [word for word, _ in found] == ["ran", "full", "full", "ran", "ran", "ran"]
    assert 20 * page <= found[0][1].grown_bytes <= 40 * page
    assert (found[0][1].grown_bytes % page, found[1][1].grown_bytes, found[2][1].grown_bytes) == (0, 0, 0)
    assert grown <= 45 * page
    assert found[3][1].grown_bytes < 0 < found[4][1].grown_bytes
    assert found[5][1].grown_bytes >= 900 * page
    assert hint is not None


@pytest.mark.fault("sql-a-new-database-is-free")
def test_a_new_database_needs_room(tmp_path: Path) -> None:
    """
    It is refused where the quota has less than an empty one takes, and no file is left.
    """

    async def play(bench: Bench) -> Any:
        with pytest.raises(SqlError, match="quota"):
            await bench.engine.create("acme", "small", growth=20_479)
        names = await bench.engine.databases("acme")
        made = await bench.engine.create("acme", "small", growth=20_480)
        again = await bench.engine.create("acme", "small", growth=0)
        return names, made, again

    names, made, again = playing(play, tmp_path, PATIENT, tenants=[])

    assert (names, made, again) == ([], True, False)


STRAIGHT = "SELECT " + ", ".join(["length(" + "upper(lower(" * 10 + "a" + "))" * 10 + ")"] * 190) + " FROM t"
"""Four thousand long instructions without a loop: no interrupt is seen before the last of them."""


@pytest.mark.slow
@pytest.mark.fault("sql-killed-for-nothing")
def test_what_no_interrupt_reaches_is_killed_in_both_lanes(tmp_path: Path) -> None:
    """
    Once in the quick lane, for which its tenant then makes way; then in the slow one, and is told. It pays for both.
    """

    async def play(bench: Bench) -> Any:
        await bench.engine.query("acme", "shop", "INSERT INTO t SELECT hex(zeroblob(450000))")
        told = await came_to(bench.ask("acme", STRAIGHT))
        heavy = bench.engine._lanes.loads.of(bench.account("acme").owner)
        other = await came_to(bench.ask("zeta", "SELECT count(*) FROM t"))
        return told, bench.used("acme"), heavy, other[0], [one.started for one in bench.quick]

    told, used, heavy, other, started = playing(play, tmp_path, SHORT_WITH_ROOM)

    assert (told[0], other, started) == ("timeout", "ran", [1, 2])
    assert told[1].cpu_seconds >= SHORT.slice_seconds + SHORT.statement_seconds
    assert used == pytest.approx(told[1].cpu_seconds)
    assert heavy > HEAVY
