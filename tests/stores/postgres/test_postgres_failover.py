"""Failover: a primary with a streaming standby, killed under load; the standby takes over and the store finds it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from postgres_support import COLOURS, handle

from onceward import AsyncGate, Gate, InDoubt, InFlight, OwnershipLost, StoreUnavailable
from onceward.stores import open_async_store, open_store
from onceward.testing.store_suite.rows import row
from servers.postgres import PostgresServer, needed
from servers.postgres_pair import SECONDS_MAX, Pair, at, pair, primary, until
from servers.proxy import Proxy

needed()

__all__ = ["pair", "primary"]

SENDERS, ROUNDS = 4, 40
"""Of each colour."""


class Load:
    """Senders of both colours that retry with the same key until they have an answer, or hear of doubt."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.acknowledged: dict[str, str] = {}
        self.effects: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._block, args=(n,)) for n in range(SENDERS)]
        self._threads.append(threading.Thread(target=lambda: asyncio.run(self._await())))
        self._gate = Gate(open_store(url), scope="test:failover", lease=2, wait=0)

    def start(self) -> None:
        """Send."""
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Until everybody is done."""
        for thread in self._threads:
            thread.join(SECONDS_MAX)

    def judge(self, story: str) -> tuple[int, int]:
        """How many answers were lost, and how many effects doubled; asked where the writer is now."""
        replayed = {}
        for key in self.acknowledged:
            try:
                replayed[key] = self._gate.run(key, lambda: "a second answer")
            except InDoubt:
                replayed[key] = "in doubt"
        self._gate.close()
        lost = sum(answer != replayed[key] for key, answer in self.acknowledged.items())
        doubled = sum(count > 1 for count in self.effects.values())
        print(f"{story}: acknowledged {len(self.acknowledged)}, lost {lost}, doubled {doubled}, {dict(self.told)}")
        return lost, doubled

    def _effect(self, key: str) -> str:
        self.effects[key] += 1
        return f"done {key}"

    def _block(self, sender: int) -> None:
        for number in range(ROUNDS):
            key = f"blocking-{sender}-{number}"
            while True:
                try:
                    self.acknowledged[key] = self._gate.run(key, lambda key=key: self._effect(key))
                    break
                except (InDoubt, OwnershipLost) as error:
                    self.told[error.code] += 1
                    break
                except (StoreUnavailable, InFlight):
                    self.told["sent again"] += 1
                    time.sleep(0.02)

    async def _await(self) -> None:
        gate = AsyncGate(open_async_store(self.url), scope="test:failover", lease=2, wait=0)
        await asyncio.gather(*(self._await_one(gate, n) for n in range(SENDERS)))
        await gate.close()

    async def _await_one(self, gate: AsyncGate, sender: int) -> None:
        for number in range(ROUNDS):
            key = f"awaiting-{sender}-{number}"

            async def effect(key: str = key) -> str:
                return self._effect(key)

            while True:
                try:
                    self.acknowledged[key] = await gate.run(key, effect)
                    break
                except (InDoubt, OwnershipLost) as error:
                    self.told[error.code] += 1
                    break
                except (StoreUnavailable, InFlight):
                    self.told["sent again"] += 1
                    await asyncio.sleep(0.02)


class TestAPrimaryThatIsKilled:
    """kill -9 under load, and the standby is promoted."""

    @pytest.mark.slow
    def test_with_a_synchronous_standby_nothing_acknowledged_is_lost_and_nothing_happens_twice(
        self, pair: Pair
    ) -> None:
        """
        Threads and tasks go on by themselves on the new writer, with the same URL; what they were told before is
        still so there.
        """
        load = Load(pair.url("connect_timeout=2"))
        load.start()
        until(lambda: len(load.acknowledged) >= SENDERS * ROUNDS // 2)
        before = len(load.acknowledged)
        pair.fail_over()
        load.wait()
        lost, doubled = load.judge("failover, synchronous standby")

        assert (lost, doubled) == (0, 0)
        assert len(load.acknowledged) + load.told[InDoubt.code] == 2 * SENDERS * ROUNDS
        assert len(load.acknowledged) >= 2 * SENDERS * ROUNDS * 9 // 10
        assert before < len(load.acknowledged), "nothing was sent after the failover"

    @pytest.mark.slow
    def test_with_a_standby_that_lags_answers_are_lost(self, primary: PostgresServer, tmp_path: Path) -> None:
        """
        The count can fail: without `synchronous_standby_names`, what the standby had not been sent is gone.
        """
        with Proxy(primary.port) as proxy:
            standby = at(tmp_path / "standby", standby_of=proxy.port)
            standby.start()
            pair = Pair(primary, standby)
            with handle(pair.url(), "blocking") as store:
                store.put(row("test:failover", "warm"))
            until(pair.is_caught_up)
            proxy.hold()
            load = Load(pair.url("connect_timeout=2"))
            load.start()
            until(lambda: len(load.acknowledged) >= SENDERS)
            pair.fail_over()
            load.wait()
            lost, _ = load.judge("failover, standby that lags")
            standby.stop()

        assert lost > 0

    def test_an_old_primary_that_comes_back_acknowledges_nothing(self, pair: Pair) -> None:
        """
        Two servers take writes now. The old one waits for its standby, which follows it no more: a claim there is
        not answered in time, so nothing is started.
        """
        with handle(pair.url(), "blocking") as store:
            store.put(row("test:brain", "before"))
        pair.fail_over()
        pair.primary.start()
        told = pytest.raises(StoreUnavailable, match=r"synchronous standby|another transaction held this record")
        options = "onceward_answer_timeout=0.5&onceward_lock_timeout=0.5"
        with handle(pair.primary.url(options=options), "blocking") as old, told:
            old.put(row("test:brain", "after"))
        with handle(pair.standby.url(), "blocking") as new:
            assert True is new.put(row("test:brain", "after")).landed


@pytest.mark.parametrize("colour", COLOURS)
def test_a_standby_is_refused_and_beside_its_primary_left_alone(pair: Pair, colour: str) -> None:
    """
    Alone it is a typed error that says where to go, at connecting and at writing; of two hosts the writer is found,
    whichever comes first.
    """
    backwards = f"postgresql://postgres@127.0.0.1:{pair.standby.port},127.0.0.1:{pair.primary.port}/postgres"
    with handle(backwards, colour) as store:
        held = store.put(row("test:standby")).record
    for options in ("", "target_session_attrs=any"):
        with handle(pair.standby.url(options=options), colour) as store:
            with pytest.raises(StoreUnavailable, match="read-only, like a standby; connect to the primary") as told:
                store.put(row("test:standby", "new"))

            assert told.value.retry_after_seconds == 1.0
    with handle(pair.primary.url(), colour) as store:
        assert held.version == store.call("load", held.id).version
        assert None is store.call("load", row("test:standby", "new").id)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_writer_that_becomes_read_only_is_left_for_the_new_one(pair: Pair, colour: str) -> None:
    """
    A managed failover may turn the old writer into a reader without cutting its connections.
    """
    with handle(pair.url("target_session_attrs=read-write"), colour) as store:
        store.put(row("test:switch", "warm"))
        pair.primary.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        pair.primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        pair.primary.execute("SELECT pg_reload_conf()")
        pair.standby.promote()
        until(lambda: pair.primary.execute("SHOW default_transaction_read_only") == [("on",)])
        landed = store.put(row("test:switch")).landed

    assert True is landed
    assert pair.standby.execute("SELECT count(*) FROM onceward_records WHERE scope = 'test:switch' AND key = 'k'") == [
        (1,)
    ]
