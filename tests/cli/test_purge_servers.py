"""A purge on a server touches one batch at a time and lets claims in: counted, not timed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest
import server_stores as stores

from onceward.cli import records
from onceward.gate.call_factory import PurgeSchedule
from onceward.runtime.environment import REAL
from onceward.stores import _postgres_rows as rows
from onceward.stores import _redis_steps as steps
from onceward.stores import open_store
from onceward.stores._redis_packed_rows import FORGET, PUT, SHRINK
from onceward.stores._redis_pipeline import CommandRequest
from onceward.testing.store_suite.rows import row
from servers import postgres, redis

SCOPE = "live:acme"
LONG_AGO = 40 * 86_400
BATCH = 10


@pytest.fixture(params=[kind for kind in stores.wanted() if kind in stores.ON_SERVERS])
def kind(request: pytest.FixtureRequest) -> str:
    """On every server."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _nobody_else_purges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates tidy up by themselves, a little at a time; here it is counted who does what."""
    monkeypatch.setattr(PurgeSchedule, "is_due", lambda _: False)


def leave_behind(gate_at: Any, count: int, seconds_ago: float = LONG_AGO) -> None:
    """Records whose time to be forgotten has come."""
    long_ago = gate_at(seconds_ago)
    for number in range(count):
        long_ago.run(f"old:{number}:{seconds_ago}", lambda: "answer")


def test_claims_proceed_between_the_batches(
    gate_at: Any, store: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    35 records in batches of 10: in each of the three pauses a claim lands at once.
    """
    leave_behind(gate_at, 35)
    other = open_store(store)
    landed: list[bool] = []

    class Pausing:
        @staticmethod
        def sleep(seconds: float) -> None:
            landed.append(other.put(row(SCOPE, f"new:{len(landed)}"), None).landed)

    monkeypatch.setattr(records, "REAL", Pausing)

    ran = run("records", "purge", "--all", "--limit", str(BATCH), "--json")

    other.close()
    assert landed == [True] * 3
    assert tuple(ran.document[name] for name in ("forgotten", "batches", "done")) == (35, 4, True)


@pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")
class TestPostgres:
    """A batch is one statement; it locks its own rows, and those only."""

    @pytest.fixture
    def kind(self) -> str:
        return "postgres"

    @pytest.mark.parametrize(("column", "seconds_ago"), [(0, LONG_AGO), (1, 2 * 86_400)], ids=["forget", "shrink"])
    def test_a_batch_that_hangs_locks_its_rows_and_holds_nobody_up(
        self, column: int, seconds_ago: float, gate_at: Any, store: str
    ) -> None:
        """
        With its transaction held open, as many rows are locked as the batch has; new keys are claimed, the rows that it
        left are free, and another purge takes the next ones without waiting.
        """
        leave_behind(gate_at, 35, seconds_ago)
        bounds = {"lock_timeout": "1s", "relaxed": False, "limit": BATCH, "shrink": BATCH, "version": REAL.random(16)}
        other = open_store(f"{store}?onceward_lock_timeout=0.2")
        with psycopg.connect(store) as hanging:
            [counts] = hanging.execute(rows.PURGE, bounds).fetchall()
            free = stores.admin().execute("SELECT id FROM onceward_records FOR UPDATE SKIP LOCKED").fetchall()
            landed = [other.put(row(SCOPE, f"new:{number}"), None).landed for number in range(3)]
            purged = other.purge(BATCH) if column else None
            hanging.rollback()
            hanging.execute(rows.PURGE, {**bounds, "limit": 1_000, "shrink": 1_000})
            all_locked = (
                stores.admin()
                .execute(
                    "SELECT id FROM onceward_records WHERE first_at < %s FOR UPDATE SKIP LOCKED",
                    (REAL.wall_us() - 3_600_000_000,),
                )
                .fetchall()
            )
            hanging.rollback()
        other.close()

        assert (counts[column], len(free)) == (BATCH, 35 - BATCH)
        assert landed == [True] * 3
        assert purged is None or purged.shrunk == BATCH
        # A batch without a bound would have locked them all: the count can tell.
        assert (BATCH if purged else 0) == len(all_locked)

    def test_a_batch_changes_no_more_rows_than_it_may(self, gate_at: Any, store: str) -> None:
        """
        One batch is deleted and one is changed; every other row is the very version that it was.
        """
        leave_behind(gate_at, 35)
        leave_behind(gate_at, 35, 2 * 86_400)
        before = _row_versions()
        with_store = open_store(store)

        purged = with_store.purge(BATCH)

        with_store.close()
        after = _row_versions()
        changed = [id for id, version in after.items() if before[id] != version]
        assert purged == (BATCH, BATCH)
        assert (len(after), len(changed)) == (70 - BATCH, BATCH)


@pytest.mark.skipif(not redis.wanted(), reason="STORES leaves redis out")
class TestRedis:
    """A batch is many short scripts of one record each; between two round trips others have their turn."""

    @pytest.fixture
    def kind(self) -> str:
        return "redis"

    def test_each_script_touches_one_record_and_claims_come_in_between(
        self, gate_at: Any, store: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        No round trip has more commands than a page, no more records are touched than the limit says, and after every
        round trip a claim of somebody else lands.
        """
        monkeypatch.setattr(steps, "PAGE", 4)
        leave_behind(gate_at, 15)
        leave_behind(gate_at, 15, 2 * 86_400)
        purging, other = open_store(store), open_store(store)
        walk = steps.purge(purging._server.rows, BATCH, REAL.random(16))
        touched: Counter[str] = Counter()
        widest, landed = 0, []
        answers: Any = None
        while True:
            try:
                commands = walk.send(answers)
            except StopIteration as stop:
                purged = stop.value
                break
            ours = [one.args for one in commands if type(one.args) is tuple and one.args[1] in (FORGET.sha, SHRINK.sha)]
            touched.update(args[1] for args in ours)
            widest = max(widest, len(ours))
            assert {1, *(_records_in(args) for args in ours)} == {1}
            answers = purging._server.pipeline.run(CommandRequest(commands))
            landed.append(other.put(row(SCOPE, f"new:{len(landed)}"), None).landed)
        purging.close()
        other.close()

        assert purged == (BATCH, BATCH)
        assert {FORGET.sha: BATCH, SHRINK.sha: BATCH} == touched
        assert widest == 4
        assert len(landed) > 4
        assert all(landed)
        assert PUT.sha not in touched


def _row_versions() -> dict[bytes, str]:
    """Which transaction wrote each row last."""
    return dict(stores.admin().execute("SELECT id, xmin::text FROM onceward_records").fetchall())


def _records_in(args: tuple[Any, ...]) -> int:
    """How many records a script is given: keys that end in an id."""
    keys = args[3 : 3 + args[2]]
    return sum(len(key.partition(b"}:")[2]) == 32 for key in keys)
