"""Crashes: of clients, of the server, and what is left when they are over."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from onceward import AsyncGate, Gate, InDoubt, StoreUnavailable
from onceward._core.record import Write
from onceward.stores import open_async_store, open_store
from onceward.testing.store_suite.rows import row, settled
from servers.postgres import PostgresServer, needed

needed()

HERE = Path(__file__).parent
SECONDS_MAX = 60


def _client(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "client.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


class TestAClientThatIsKilled:
    """kill -9 on both sides of a put."""

    @pytest.mark.parametrize(
        ("failpoint", "skip", "told", "effects"),
        [
            ("postgres.put.before", 0, "runs", 0),
            ("postgres.put.after", 0, "in doubt", 0),
            ("postgres.put.before", 1, "in doubt", 1),
            ("postgres.put.after", 1, "replays", 1),
        ],
    )
    @pytest.mark.dose(2)
    def test_the_next_caller_runs_replays_or_hears_of_doubt(
        self, url: str, failpoint: str, skip: int, told: str, effects: int
    ) -> None:
        """
        Before its claim nothing stands; between claim and settle nobody can know; after its settle the answer stands.
        """
        died = _client(url, "k", failpoint, str(skip))
        time.sleep(1.1)
        gate = Gate(open_store(url), scope="test:crash")
        try:
            outcome = gate.call("k", lambda: "done")
            heard = "replays" if outcome.replayed else "runs"
        except InDoubt:
            heard = "in doubt"
        gate.close()

        assert (-signal.SIGKILL, effects) == (died.returncode, died.stdout.count("effect"))
        assert told == heard

    def test_a_forked_child_has_connections_of_its_own(self, url: str) -> None:
        """
        Parent and child go on side by side, and the child's end is not the end of the parent's connections.
        """
        done = _client(url, "fork")

        assert json.loads(done.stdout) == [True, [True] * 4, 0], done.stderr


class TestEventLoops:
    """An awaiting store in more than one loop."""

    def test_one_loop_after_another(self, url: str) -> None:
        """
        Connections of a loop that is no more are let go of; the next loop has its own.
        """
        store = open_async_store(url)
        landed = [asyncio.run(_put(store, f"k{n}")) for n in range(3)]
        asyncio.run(_close(store))

        assert landed == [True] * 3

    def test_two_loops_at_once(self, url: str) -> None:
        """
        Two threads, each with a loop, share a store: each has its own connections and queue.
        """
        store, landed = open_async_store(url), list[bool]()

        async def many(name: str) -> None:
            landed.extend(await asyncio.gather(*(_put(store, f"{name}{n}") for n in range(20))))

        threads = [threading.Thread(target=lambda name=name: asyncio.run(many(name))) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(_close(store))

        assert landed == [True] * 40

    def test_a_loop_that_ends_while_a_call_waits_for_a_row_does_end(self, url: str) -> None:
        """
        The call is on a connection of its own, behind somebody's insert: it is cancelled, and does not hang.
        """

        async def never() -> None:
            raise AssertionError

        async def leave() -> None:
            gate = AsyncGate(store, scope="test:loops", wait=0)
            waiting = asyncio.create_task(gate.run("held", never))
            await asyncio.sleep(0.5)  # Past the moment that a batch waits: now it waits by itself.
            assert not waiting.done()

        store = open_async_store(url)
        with Gate(url, scope="test:loops") as gate:
            gate.run("held", lambda: "its row, to be inserted by somebody else")
        with psycopg.connect(url) as other:
            other.execute("CREATE TEMP TABLE saved AS SELECT * FROM onceward_records")
            other.execute("DELETE FROM onceward_records")
            other.commit()
            other.execute("INSERT INTO onceward_records SELECT * FROM saved")
            loop = threading.Thread(target=lambda: asyncio.run(leave()), daemon=True)
            loop.start()
            loop.join(10)
        asyncio.run(_close(store))

        assert not loop.is_alive()


class TestAServerThatIsKilled:
    """kill -9 of the whole server under load, and again."""

    @pytest.mark.slow
    def test_nothing_acknowledged_is_lost_and_nothing_happens_twice(self, tmp_path: Path) -> None:
        """
        Every key has two rivals. What was acknowledged stands afterwards, and no key was won by both.
        """
        server = PostgresServer(tmp_path)
        server.start()
        stores = [open_store(server.url()) for _ in range(2)]
        over, won, ended = threading.Event(), list[tuple[str, bytes]](), list[tuple[Write, bytes]]()
        errors = list[BaseException]()

        def work(lane: int, rival: int) -> None:
            try:
                for n in range(100_000):
                    if over.is_set():
                        return
                    claim = row("test:killed", f"{lane}-{n}")
                    standing = _stubborn(stores[rival], claim, None)
                    if standing.landed or standing.record.version == claim.version:
                        won.append((claim.key, claim.version))
                        ending = settled(standing.record)
                        _stubborn(stores[rival], ending, claim.version)
                        ended.append((ending, ending.version))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n // 2, n % 2)) for n in range(8)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                time.sleep(0.7)
                server.kill()
                server.start()
            time.sleep(0.5)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        found = [stores[0].load(write.id) for write, _ in ended]
        lost = sum(one is None or one.version != version for one, (_, version) in zip(found, ended, strict=True))
        doubled = len(won) - len({key for key, _ in won})
        for store in stores:
            store.close()
        server.stop()
        print(f"server killed 3 times: acknowledged {len(ended)}, lost {lost}, doubled {doubled}")

        assert errors == []
        assert len(ended) > 100
        assert (lost, doubled) == (0, 0)


def _stubborn(store: object, write: Write, expect: bytes | None) -> object:
    """Put, and put the same again for as long as the store is away."""
    give_up = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return store.put(write, expect)  # type: ignore[attr-defined]
        except StoreUnavailable:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


async def _put(store: object, key: str) -> bool:
    return (await store.put(row("test:loops", key), None)).landed  # type: ignore[attr-defined,no-any-return]


async def _close(store: object) -> None:
    await store.close()  # type: ignore[attr-defined]
