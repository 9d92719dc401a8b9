"""
What follows the commit of an atomic run: listeners are told, the table is tidied; never inside the transaction.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from desks import KINDS, Desk, in_play
from playing import Scenario, play

from onceward import AsyncGate, Gate, InFlight, KeyReused
from onceward._core.flow import Returned
from onceward.gate import commit_watcher
from onceward.gate.call_factory import PurgeSchedule
from onceward.runtime.environment import REAL
from servers import postgres

RAW = ["sqlite3-blocking", "sqlite3-awaiting", "psycopg-blocking", "psycopg-awaiting"]


@pytest.fixture(params=in_play(KINDS), ids=str)
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Plays a scenario with every kind."""
    return lambda scenario: play(request.param, tmp_path, scenario)


async def followed(gate: Any) -> None:
    """Wait until it is known what became of everything."""
    book = gate._commit_watcher
    if isinstance(gate, AsyncGate):
        while book._tasks:
            await asyncio.sleep(0.005)
    elif (thread := book._thread) is not None:
        thread.join()
    if isinstance(gate, AsyncGate):
        await gate._purger.wait()
    else:
        gate._purger.wait()


def told(gate: Any) -> list[str]:
    """What listeners hear from now on."""
    heard: list[str] = []
    gate.listen(lambda event: heard.append(f"{event.type.value} {event.operation}"))
    return heard


@pytest.mark.fault("atomic-runs-tell-nobody")
def test_a_transaction_of_the_gates_own_is_told_of_when_it_is_committed(at: Callable[[Scenario], None]) -> None:
    """
    Claimed and settled; a replay and a refusal at once; nothing of what was undone.
    """

    async def scenario(desk: Desk) -> None:
        heard = told(desk.gate)
        async with desk.caller() as caller:

            async def spoil() -> None:
                await caller.charge()
                raise KeyError("spoiled")

            with pytest.raises(KeyError):
                await caller.atomic("charge:1", spoil, name="charge", request=1)
            undone = list(heard)
            for _ in range(2):
                await caller.atomic("charge:1", name="charge", request=1)
            with pytest.raises(KeyReused):
                await caller.atomic("charge:1", name="charge", request=2)

        assert undone == []
        assert heard == ["claimed charge", "settled charge", "replayed charge", "refused charge"]

    at(scenario)


@pytest.mark.fault("atomic-runs-are-told-before-the-commit")
def test_a_transaction_of_the_callers_own_is_told_of_after_its_commit(at: Callable[[Scenario], None]) -> None:
    """
    While it is open nobody hears of it; committed, everybody does; undone, nobody ever does.
    """

    async def scenario(desk: Desk) -> None:
        heard = told(desk.gate)
        async with desk.caller() as caller:
            with pytest.raises(KeyError):
                async with caller.transaction():
                    await caller.atomic("charge:0", name="undone")
                    raise KeyError("spoiled")
            async with caller.transaction():
                await caller.atomic("charge:1", name="kept")
                while_open = list(heard)
            await followed(desk.gate)

        assert while_open == []
        assert heard == ["claimed kept", "settled kept"]

    at(scenario)


@pytest.mark.fault("atomic-runs-are-not-counted")
def test_atomic_runs_purge_now_and_then_outside_of_the_transaction(at: Callable[[Scenario], None]) -> None:
    """
    In a transaction of the gate's own, in the caller's, in a block and in a plan: each counts, and none is disturbed.
    """

    async def scenario(desk: Desk) -> None:
        gate, purge = desk.gate, desk.gate.store.purge
        purges: list[tuple[int, bool]] = []
        async with desk.caller() as caller:

            def counting(limit: int) -> Any:
                purges.append((limit, caller.in_transaction()))
                return purge(limit)

            gate.store.purge = counting
            for number in range(10):
                await caller.atomic(f"own:{number}")
            await followed(gate)
            own = list(purges)
            for number in range(2 * PurgeSchedule.PURGE_EVERY):  # The first found nothing.
                async with caller.transaction():
                    if number % 2:
                        await caller.step("plan", f"s:{number}", caller.charge)
                    else:
                        async with caller.block(f"block:{number}") as operation:
                            operation.settle(1)
            await followed(gate)

        assert own == [(PurgeSchedule.PURGE_LIMIT, False)]
        assert purges == own * 2

    at(scenario)


def test_a_purge_that_fails_changes_nothing_for_the_caller(
    at: Callable[[Scenario], None], caplog: pytest.LogCaptureFixture
) -> None:
    """
    Whatever it raises: the answer is there, the rows are committed, and the log says what happened.
    """

    async def scenario(desk: Desk) -> None:
        def broken(limit: int) -> Any:
            raise OSError("no purge today")

        desk.gate.store.purge = broken
        heard: list[Any] = []
        async with desk.caller() as caller:
            for number in range(10):
                try:
                    heard.append(await caller.atomic(f"charge:{number}") is not None)
                except OSError as error:
                    heard.append(error)
            await followed(desk.gate)

        assert heard == [True] * 10
        assert desk.place.rows() == 10
        assert "a purge failed" in caplog.text

    at(scenario)


class Raw:
    """A gate of either colour and a caller's connection of a driver, without a library between."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.driver, _, self.colour = kind.partition("-")
        self.url = f"sqlite:///{folder}/gate.db" if self.driver == "sqlite3" else postgres.running().url()
        self.path = folder / "gate.db"

    async def scenario(self, play: Callable[[Any, Any], Any]) -> None:
        """Play it."""
        gate = (AsyncGate if self.colour == "awaiting" else Gate)(self.url, scope=f"raw-{self.path}"[-60:])
        if self.driver == "sqlite3":
            connection: Any = sqlite3.connect(self.path)
        elif self.colour == "awaiting":
            connection = await psycopg.AsyncConnection.connect(self.url)
        else:
            connection = psycopg.connect(self.url)
        try:
            await play(gate, connection)
        finally:
            await did(connection.close())
            await did(gate.close())


async def did(answer: Any) -> Any:
    return await answer if hasattr(answer, "__await__") else answer


@pytest.fixture(params=RAW)
def raw(request: pytest.FixtureRequest, tmp_path: Path) -> Raw:
    if request.param.startswith("psycopg") and not postgres.wanted():
        pytest.skip("STORES leaves this server out")
    return Raw(request.param, tmp_path)


def test_bare_drivers_are_followed_too(raw: Raw) -> None:
    """
    They have no hooks of their own: the record itself says whether it was committed.
    """

    async def play(gate: Any, mine: Any) -> None:
        heard = told(gate)

        async def one() -> int:
            return 1

        work = one if raw.colour == "awaiting" else lambda: 1
        for ending in ("rollback", "commit"):
            await did(mine.execute("BEGIN" if raw.driver == "sqlite3" else "SELECT 1"))
            await did(gate.atomic(mine, ending, work, name=ending))
            await did(getattr(mine, ending)())
        await followed(gate)

        assert heard == ["claimed commit", "settled commit"]

    asyncio.run(raw.scenario(play))


def test_the_table_stays_small(tmp_path: Path) -> None:
    """
    Runs whose retention is over are purged by the runs that follow, whether declared or called.
    """
    from onceward.stores import open_store
    from onceward.testing.clock import StillEnvironment

    clock = StillEnvironment()
    path = tmp_path / "gate.db"
    store = open_store(f"sqlite:///{path}", environment=clock)
    with Gate(store, scope="acme", environment=clock, retain=1, after_expiry="run") as gate:
        mine = sqlite3.connect(path)

        @gate.once(key="o:{order}", guarantee="atomic", connection="connection")
        def declared(connection: Any, order: int) -> int:
            return order

        for order in range(300):
            declared(mine, order)
            gate.atomic(mine, f"k:{order}", lambda: 1)
            gate._purger.wait()
            clock.advance(2)
        left = mine.execute("SELECT count(*) FROM onceward_records").fetchone()[0]
        mine.close()

    assert left <= 2 * PurgeSchedule.PURGE_EVERY


def test_what_is_waited_for_is_told(tmp_path: Path) -> None:
    """
    A key that another holds outside of the transaction: refused, and said so.
    """
    path = tmp_path / "gate.db"
    with Gate(f"sqlite:///{path}", scope="acme", wait=0) as gate:
        mine, heard = sqlite3.connect(path), told(gate)
        held = gate.hold("k", name="first", guarantee="keyed")
        with pytest.raises(InFlight):
            gate.atomic(mine, "k", lambda: 1, name="second")
        mine.close()
        refused = list(heard)
        held.end(Returned("done"))

    assert refused == ["claimed first", "waiting first", "refused first"]


def test_too_many_at_once_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The books are bounded: a caller who never ends its transactions does not fill the memory.
    """
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    with Gate("memory://", scope="acme") as gate:
        book: Any = gate._commit_watcher
        for number in range(commit_watcher.FOLLOWED_MAX + 5):
            book.follow(commit_watcher.AfterCommit(bytes([number % 256]) * 32, b"t", (), False), None, tidies=False)

        assert len(book._followed) == commit_watcher.FOLLOWED_MAX


@pytest.mark.fault("closing-does-not-wait-for-a-look")
def test_a_look_that_is_under_way_ends_before_the_gate_is_closed() -> None:
    """
    The store is closed right after; a look that came later would find it closed, and say so in the log.
    """
    order: list[str] = []

    class Slow:
        def load(self, id: bytes) -> None:
            closer.start()
            closer.join(0.2)  # It must not get past us; that it tries is enough.
            order.append("looked")

    def close() -> None:
        book.close()
        order.append("closed")

    closer = threading.Thread(target=close)
    book: Any = commit_watcher.CommitWatcher(REAL, Slow(), lambda event: None, lambda: None)  # type: ignore[arg-type]
    book.follow(commit_watcher.AfterCommit(bytes(32), b"t", (), False), None, tidies=False)
    thread = book._thread
    thread.join()
    closer.join()

    assert order[:2] == ["looked", "closed"]
