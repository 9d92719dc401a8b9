"""
Lines: fair by tenant first, then by database; who has nothing left waits alone, and is told for how long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from onceward import RateLimitError
from onceward.service.access import Account, Accounts, Allowance, Resource
from onceward.service.sql import Limits, SqlError
from onceward.service.sql.job_queue import JobQueue, WorkerJob, WorkerTurn
from onceward.service.sql.lanes import Lanes
from onceward.service.sql.requests import build_request
from onceward.service.sql.tenant_loads import HALF_LIFE_SECONDS, HEAVY, LIGHT_SECONDS, OVERRUN, TenantLoads
from onceward.testing.clock import StillEnvironment

LIMITS = Limits()


def job(
    tenant: str,
    database: str = "shop",
    *,
    sql: str = "INSERT INTO t VALUES (1)",
    account: Account | None = None,
    mode: str = "write",
    at: float = 0.0,
) -> WorkerJob:
    request = build_request([sql], LIMITS)
    future = asyncio.get_running_loop().create_future()
    return WorkerJob(
        f"/{tenant}/{database}", "group", future, at, request, "{}", tenant=tenant, account=account, mode=mode
    )


def shown(turn: WorkerTurn | None) -> str | None:
    """A turn's database, and how many jobs it has."""
    return None if turn is None else f"{turn.jobs[0].path} {len(turn.jobs)}"


def run(play: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(play())


@pytest.mark.fault("sql-a-line-for-each-database")
def test_a_tenant_with_many_databases_has_one_turn_like_everybody() -> None:
    """
    Eight databases of one tenant, one of another: turn and turn about, and its databases in turn.
    """

    async def play() -> list[str | None]:
        queue = JobQueue(LIMITS, StillEnvironment())
        for number in range(8):
            queue.put(job("greedy", f"d{number}"))
            queue.put(job("greedy", f"d{number}"))
        queue.put(job("modest"))
        queue.put(job("modest", "blog"))
        turns = []
        for _ in range(5):
            turn = queue._next(64)
            assert turn is not None
            turns.append(shown(turn))
            queue.finished(turn, 0.001)
        return turns

    assert run(play) == ["/greedy/d0 2", "/modest/shop 1", "/greedy/d1 2", "/modest/blog 1", "/greedy/d2 2"]


@pytest.mark.fault("sql-the-heavy-go-first")
def test_the_one_with_the_lowest_load_is_first() -> None:
    """
    Whoever has used much lately stands behind those who have not, also if it came first.
    """

    async def play() -> list[str | None]:
        environment = StillEnvironment()
        loads = TenantLoads(environment.monotonic)
        loads.add("heavy", 40.0)
        loads.add("less", 2.0)
        queue = JobQueue(LIMITS, environment, loads=loads)
        for tenant in ("heavy", "less", "light"):
            queue.put(job(tenant))
        return [shown(queue._next(64)) for _ in range(3)]

    assert run(play) == ["/light/shop 1", "/less/shop 1", "/heavy/shop 1"]


@pytest.mark.fault("sql-processor-time-for-nothing")
def test_who_has_no_processor_time_left_waits_and_the_others_do_not() -> None:
    """
    Its request keeps its place, runs when there is enough again, and what was reserved for it is given back.
    """

    async def play() -> Any:
        environment = StillEnvironment()
        accounts = Accounts(environment.monotonic, Allowance(cpu_burst=5.0, cpu_per_second=0.5))
        spent, other = accounts.of_tenant("spent"), accounts.of_tenant("other")
        spent.spend_cpu(6.0)
        queue = JobQueue(LIMITS, environment, seconds=5.0)
        queue.put(job("spent", account=spent))
        queue.put(job("other", account=other))
        first, second = queue._next(64), queue._next(64)
        environment.advance(12.0)
        third = queue._next(64)
        assert third is not None
        held = spent.usage().held[Resource.RUNNING], spent.cpu_left()
        queue.finished(third, 1.0)
        after = spent.usage()
        return [shown(one) for one in (first, second, third)], held, after.cpu_seconds, round(after.cpu_seconds_left, 6)

    turns, held, used, left = run(play)

    assert turns == ["/other/shop 1", None, "/spent/shop 1"]
    assert (held, used, left) == ((1, 0.0), 7.0, 4.0)


def test_who_would_wait_for_too_long_is_told_for_how_long() -> None:
    """
    At once, if it can be seen; otherwise when its time in the line is over. Nothing was run.
    """

    async def play() -> Any:
        environment = StillEnvironment()
        accounts = Accounts(environment.monotonic, Allowance(cpu_burst=5.0, cpu_per_second=0.1))
        account = accounts.of_tenant("acme")
        account.spend_cpu(2.9)
        queue = JobQueue(LIMITS, environment, seconds=5.0)
        waits = job("acme", account=account, at=environment.monotonic())
        queue.put(waits)
        account.spend_cpu(5.0)
        with pytest.raises(RateLimitError) as at_once:
            queue.put(job("acme", account=account))
        environment.advance(31.0)
        nothing = queue._next(64)
        later = waits.future.exception()
        assert isinstance(later, RateLimitError)
        return at_once.value.retry_after_seconds, nothing, later.retry_after_seconds, account.usage().refused

    at_once, nothing, later, refused = run(play)

    assert (round(at_once), nothing, round(later), refused) == (79, None, 48, 2)


def test_a_database_that_is_busy_for_too_long_is_locked_as_ever() -> None:
    """
    Not the tenant's doing: the database's own line.
    """

    async def play() -> Any:
        environment = StillEnvironment()
        queue = JobQueue(LIMITS, environment)
        late = job("acme", at=environment.monotonic())
        queue.put(late)
        environment.advance(31.0)
        return queue._next(64), late.future.exception()

    nothing, error = run(play)

    assert nothing is None
    assert isinstance(error, SqlError)
    assert (error.kind.value, error.retry_after_seconds) == ("locked", 1.0)


def test_a_tenant_runs_as_many_statements_as_it_may() -> None:
    """
    The third waits until one of the two has ended; another tenant's does not wait.
    """

    async def play() -> list[str | None]:
        environment = StillEnvironment()
        accounts = Accounts(environment.monotonic, Allowance(running=2))
        queue = JobQueue(LIMITS, environment)
        for number in range(3):
            queue.put(job("acme", f"d{number}", account=accounts.of_tenant("acme")))
        turns = [queue._next(64), queue._next(64), queue._next(64)]
        queue.put(job("zeta", account=accounts.of_tenant("zeta")))
        turns.append(queue._next(64))
        assert turns[0] is not None
        queue.finished(turns[0], 0.0)
        turns.append(queue._next(64))
        return [shown(turn) for turn in turns]

    assert run(play) == ["/acme/d0 1", "/acme/d1 1", None, "/zeta/shop 1", "/acme/d2 1"]


def test_in_the_slow_lane_a_tenant_has_one_turn_at_a_time() -> None:
    """
    However many databases it has.
    """

    async def play() -> list[str | None]:
        queue = JobQueue(LIMITS, StillEnvironment(), serial=True)
        for tenant, database in (("acme", "d1"), ("acme", "d2"), ("zeta", "d1")):
            queue.put(job(tenant, database))
        return [shown(queue._next(64)) for _ in range(3)]

    assert run(play) == ["/acme/d1 1", "/zeta/d1 1", None]


@pytest.mark.fault("sql-two-writers-of-one-database")
def test_a_database_has_one_writer_at_a_time() -> None:
    """
    While one lane writes it the other does not; reading goes on.
    """

    async def play() -> list[str | None]:
        environment = StillEnvironment()
        writing: set[str] = set()
        quick, slow = (JobQueue(LIMITS, environment, writing=writing) for _ in range(2))
        quick.put(job("acme"))
        slow.put(job("acme"))
        slow.put(job("acme", mode="read"))
        first = quick._next(64)
        assert first is not None
        turns = [first, slow._next(64), slow._next(64)]
        quick.finished(first, 0.0)
        return [None if turn is None else turn.jobs[0].mode for turn in [*turns, slow._next(64)]]

    assert run(play) == ["write", "read", None, "write"]


@pytest.mark.fault("sql-writes-do-not-follow")
def test_the_writes_of_a_database_follow_the_slow_one() -> None:
    """
    In order: the slow one, the rest of its group, what was waiting, what comes; afterwards they are quick again.
    """

    async def play() -> Any:
        lanes = Lanes(LIMITS, StillEnvironment(), 1)
        bomb, rest, waiting, later = (job("acme", sql=f"INSERT INTO t VALUES ({number})") for number in range(4))
        read = job("acme", mode="read")
        lanes.put(waiting)
        lanes.requeue(lanes.writes[0], [bomb, rest], slow=True)
        lanes.put(later)
        lanes.put(read)
        order = list(lanes.slow.clear())
        counts = len(lanes.writes[0]), len(lanes.reads)
        for one in order:
            one.future.set_result(None)
        await asyncio.sleep(0)
        again, known = job("acme", sql="INSERT INTO t VALUES (5)"), job("acme", sql="INSERT INTO t VALUES (0)")
        lanes.put(again)
        quick = len(lanes.writes[0])
        lanes.put(known)
        return order == [bomb, rest, waiting, later], counts, quick, lanes.slow.clear() == [again, known]

    assert run(play) == (True, (0, 1), 1, True)


@pytest.mark.fault("sql-reads-follow-the-slow-one")
def test_reads_do_not_follow_a_slow_one() -> None:
    """
    They share a turn, and nothing else: the slow one goes, the others are first in their line again.
    """

    async def play() -> Any:
        lanes = Lanes(LIMITS, StillEnvironment(), 1)
        bomb, second, third, later = (job("acme", sql=f"SELECT {number}", mode="read") for number in range(4))
        lanes.put(later)
        lanes.requeue(lanes.reads, [bomb, second, third], slow=True)
        return lanes.slow.clear() == [bomb], lanes.reads.clear() == [second, third, later]

    assert run(play) == (True, True)


@pytest.mark.fault("sql-one-reader-takes-all")
def test_a_turn_of_reads_leaves_half_of_them_to_the_others() -> None:
    """
    Several readers serve one database, so a crowd is shared; two are read at the same time, and one is read at once.
    """

    async def play() -> list[str | None]:
        lanes = Lanes(LIMITS, StillEnvironment(), 1)
        for _ in range(12):
            lanes.put(job("acme", mode="read"))
            lanes.put(job("acme"))
        turns = [lanes.reads._next(16) for _ in range(4)]
        return [*map(shown, turns), shown(lanes.writes[0]._next(64))]

    assert run(play) == ["/acme/shop 6", "/acme/shop 3", "/acme/shop 2", "/acme/shop 1", "/acme/shop 12"]


@pytest.mark.fault("sql-the-others-of-its-stay")
def test_whoever_was_in_the_way_takes_along_what_still_waits() -> None:
    """
    Beside a modest tenant: reads and writes of all its databases, and nothing of the modest one's.
    """

    async def play() -> Any:
        environment = StillEnvironment()
        accounts = Accounts(environment.monotonic)
        greedy, modest = accounts.of_tenant("greedy"), accounts.of_tenant("modest")
        lanes = Lanes(LIMITS, environment, 1)
        lanes.put(job("modest", account=modest))
        lanes.put(job("greedy", "d1", account=greedy))
        lanes.put(job("greedy", "d2", account=greedy, mode="read"))
        lanes.requeue(lanes.reads, [job("greedy", account=greedy, mode="read")], slow=True)
        return len(lanes.slow), [shown(lanes.writes[0]._next(64)), shown(lanes.reads._next(64))]

    assert run(play) == (3, ["/modest/shop 1", None])


def test_a_statement_that_got_quicker_is_quick_again() -> None:
    """
    What used up its slice is known by its text, until it takes less.
    """

    async def play() -> Any:
        lanes = Lanes(LIMITS, StillEnvironment(), 1)
        lanes.requeue(lanes.reads, [job("acme", mode="read")], slow=True)
        turn = lanes.slow._next(1)
        assert turn is not None
        lanes.finished(lanes.slow, turn, 1.0)
        lanes.put(job("acme", mode="read"))
        slow = lanes.slow._next(1)
        assert slow is not None
        lanes.finished(lanes.slow, slow, 0.001)
        lanes.put(job("acme", mode="read"))
        return len(lanes.slow), len(lanes.reads)

    assert run(play) == (0, 1)


@pytest.mark.fault("sql-the-heavy-stay")
def test_the_heavy_make_way_while_somebody_else_is_there() -> None:
    """
    Alone it stays where it is quickest; beside a modest tenant it does not; and a load passes.
    """
    environment = StillEnvironment()
    loads = TenantLoads(environment.monotonic)
    loads.add("heavy", 2 * HEAVY)
    told = [loads.makes_way("heavy"), loads.makes_way("modest"), loads.makes_way("heavy")]
    environment.advance(LIGHT_SECONDS)
    told.append(loads.makes_way("heavy"))
    loads.makes_way("modest")
    environment.advance(HALF_LIFE_SECONDS / 2)
    told.append(loads.makes_way("heavy"))

    assert told == [False, False, True, False, False]
    assert OVERRUN >= HEAVY


def test_a_long_turn_weighs_more_than_many_short_ones() -> None:
    """
    Between two short ones somebody else can have a turn.
    """
    loads = TenantLoads(StillEnvironment().monotonic)
    for _ in range(50):
        loads.note_turn("short", 0.001)
    loads.note_turn("long", 0.05)

    assert loads.of("long") > 4 * loads.of("short")


@pytest.mark.fault("what-is-written-weighs-nothing", "who-has-become-heavy-keeps-its-place", "new-files-weigh-nothing")
def test_who_writes_much_makes_way_at_once() -> None:
    """
    A megabyte keeps the disk busy, and takes no processor time: what else that tenant has waiting goes to the slow
    lane. So do two new files. A thousand small rows weigh nothing.
    """

    async def play() -> Any:
        environment = StillEnvironment()
        accounts = Accounts(environment.monotonic)
        lanes = Lanes(LIMITS, environment, 1)
        left = []
        for name, times, grown in (("small", 1_000, 8_192), ("large", 1, 1_000_000)):
            account = accounts.of_tenant(name)
            lanes.put(job("modest", account=accounts.of_tenant("modest")))
            lanes.writes[0].clear()
            for _ in range(times):
                lanes.put(job(name, "d1", account=account))
                turn = lanes.writes[0]._next(1)
                assert turn is not None
                lanes.put(job(name, "d2", account=account))
                lanes.finished(lanes.writes[0], turn, 0.0, grown)
                left.append((len(lanes.slow.clear()), len(lanes.writes[0].clear())))
        account = accounts.of_tenant("files")
        for number in range(2):
            made = job("files", f"d{number}", account=account)
            made.what = "create"
            lanes.put(made)
            turn = lanes.writes[0]._next(1)
            assert turn is not None
            lanes.put(job("files", "d9", account=account))
            lanes.finished(lanes.writes[0], turn, 0.0)
            left.append((len(lanes.slow.clear()), len(lanes.writes[0].clear())))
        return set(left[:-3]), left[-3:]

    assert run(play) == ({(0, 1)}, [(1, 0), (0, 1), (1, 0)])


def test_a_modest_tenants_turn_costs_no_look_at_the_whole_line() -> None:
    """
    Growth: whose turn it is is found with as many looks for a thousand tenants as for ten.
    """

    class Counting(TenantLoads):
        looks = 0

        def level(self, tenant: str) -> int:
            self.looks += 1
            return super().level(tenant)

    async def play(tenants: int) -> int:
        environment = StillEnvironment()
        loads = Counting(environment.monotonic)
        queue = JobQueue(LIMITS, environment, loads=loads)
        for number in range(tenants):
            queue.put(job(f"t{number}"))
        for _ in range(10):
            turn = queue._next(64)
            assert turn is not None
            queue.finished(turn, 0.001)
        return loads.looks

    assert asyncio.run(play(1_000)) == asyncio.run(play(20))


def _short_reads() -> JobQueue:
    """A line for readers, of which it is known that a request takes a moment."""
    queue = JobQueue(LIMITS, StillEnvironment(), seconds=0.02, shared=True)
    for _ in range(64):
        queue.put(job("acme", mode="read"))
        turn = queue._next(16)
        assert turn is not None
        queue.finished(turn, 0.00001)
    return queue


def test_short_reads_go_together() -> None:
    """
    The way to another worker takes longer than all of them. Long ones are shared, as soon as some were long.
    """

    async def play() -> list[str | None]:
        queue, turns = _short_reads(), []
        for seconds in (0.0001, 1.0, 0.0001):
            for _ in range(10):
                queue.put(job("acme", mode="read"))
            turn = queue._next(16)
            assert turn is not None
            turns.append(shown(turn))
            queue.finished(turn, seconds)
            queue.clear()
        return turns

    assert run(play) == ["/acme/shop 10", "/acme/shop 10", "/acme/shop 5"]


@pytest.mark.fault("sql-a-short-read-waits-for-its-neighbours")
def test_a_short_read_does_not_wait_for_a_worker_that_takes_long() -> None:
    """
    It is left to the worker that reads for its tenant already, for a moment; then another one takes it. A read of
    another tenant is taken at once.
    """

    async def play() -> tuple[str | None, ...]:
        queue = _short_reads()
        queue.put(job("acme", mode="read"))
        assert queue._next(16) is not None  # It never comes back.
        taken: list[str | None] = []
        for tenant in ("zeta", "acme"):
            idle = asyncio.create_task(queue.take(16))
            await asyncio.sleep(0)  # It waits now.
            queue.put(job(tenant, mode="read"))
            await asyncio.wait({idle}, timeout=5)
            taken.append(shown(idle.result()) if idle.done() else None)
            idle.cancel()
        return tuple(taken)

    assert run(play) == ("/zeta/shop 1", "/acme/shop 1")
