"""Crashes: the server killed under load, and clients killed at every boundary with the server."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from typing import Any

import pytest
from redis_support import SCOPE, opened, python

from onceward import Gate, InDoubt, InFlight, StoreUnavailable
from onceward.stores import Selection
from servers.redis import needed, running, started

needed()

SENDERS, ROUNDS, KILLS = 6, 60, 3


class TestTheServerIsKilled:
    """kill -9, with the append-only file synced always."""

    @pytest.mark.slow
    def test_nothing_acknowledged_is_lost_and_nothing_happens_twice(self) -> None:
        """
        Senders that retry with the same key, a server that is killed and started again three times: every answer
        that was given is still there, and no effect took place twice.
        """
        acknowledged: dict[str, str] = {}
        effects: Counter[str] = Counter()
        told: Counter[str] = Counter()
        with started() as server, opened(server.url(timeout=5)) as store:
            gate = Gate(store, scope=SCOPE, lease=2, wait=0)

            def effect(key: str) -> str:
                effects[key] += 1
                return f"done {key}"

            def send(sender: int) -> None:
                for number in range(ROUNDS):
                    key = f"{sender}-{number}"
                    for _ in range(200):
                        try:
                            acknowledged[key] = gate.run(key, lambda key=key: effect(key))
                            told["answered"] += 1
                            break
                        except InDoubt:
                            told["in doubt"] += 1
                            break
                        except (StoreUnavailable, InFlight):
                            told["sent again"] += 1
                            threading.Event().wait(0.02)

            threads = [threading.Thread(target=send, args=(n,)) for n in range(SENDERS)]
            for thread in threads:
                thread.start()
            for kill in range(KILLS):
                while len(acknowledged) < (kill + 1) * SENDERS * ROUNDS // (KILLS + 1) and any(
                    thread.is_alive() for thread in threads
                ):
                    threading.Event().wait(0.001)
                server.kill()
                threading.Event().wait(0.05)
                server.start()
            for thread in threads:
                thread.join(60)
            replayed = {key: gate.run(key, lambda: "a second answer") for key in acknowledged}
            gate.close()
            store.close()

        lost = sum(answer != replayed[key] for key, answer in acknowledged.items())
        doubled = sum(count > 1 for count in effects.values())
        print(f"acknowledged {len(acknowledged)}, lost {lost}, doubled {doubled}, {dict(told)}")
        assert (lost, doubled) == (0, 0)
        assert len(acknowledged) + told["in doubt"] == SENDERS * ROUNDS
        assert len(acknowledged) >= SENDERS * ROUNDS * 9 // 10


CLIENT = """
import sys
from onceward import Gate; from onceward.runtime import failpoints
from onceward.stores import open_store

url, scope, point, skip, path = sys.argv[1:]
store = open_store(url)
failpoints.arm(point, "kill", skip=int(skip))


def effect():
    with open(path, "a") as file:
        file.write("effect\\n")
    return "done"


Gate(store, scope=scope, lease=0.2, wait=0).run("k", effect)
"""


class TestAClientIsKilled:
    """kill -9 between the client and the server."""

    @pytest.mark.parametrize(
        ("point", "skip", "effects", "state"),
        [
            ("redis.put.before", 0, 0, None),
            ("redis.put.after", 0, 0, "in_doubt"),
            ("redis.put.before", 1, 1, "in_doubt"),
            ("redis.put.after", 1, 1, "settled"),
        ],
        ids=["before the claim", "after the claim", "before the settle", "after the settle"],
    )
    def test_a_retry_never_repeats_the_effect(
        self, tmp_path: Any, point: str, skip: int, effects: int, state: str | None
    ) -> None:
        """
        What stands there is what happened, or says that nobody knows; sent again, there is at most one effect.
        """
        url, log = running().url(), tmp_path / "effects"
        log.touch()
        done = python(CLIENT, url, SCOPE, point, skip, log)
        seen = log.read_text().count("effect")
        threading.Event().wait(0.25)

        with opened(url) as store, Gate(store, scope=SCOPE, wait=0) as gate:
            view = gate.records.get("k")
            if state == "in_doubt":
                with pytest.raises(InDoubt):
                    gate.run("k", lambda: "second")
            elif state == "settled":
                assert gate.run("k", lambda: "second") == "done"

        assert (-signal.SIGKILL, effects) == (done.returncode, seen), done.stderr
        assert state == (None if view is None else view.state)


class TestManyProcesses:
    """Each with a store of its own."""

    def test_processes_agree_on_who_was_first(self) -> None:
        """
        Four processes send the same twenty operations at once: each is won by one, and all learn its answer.
        """
        url = running().url()
        script = """
import json, sys
from onceward import Gate
url, scope, name = sys.argv[1:]
with Gate(url, scope=scope, wait=10) as gate:
    print(json.dumps({f"k{n}": gate.run(f"k{n}", lambda: name) for n in range(20)}))
"""
        told: list[dict[str, str]] = []

        def run(name: str) -> None:
            told.append(json.loads(python(script, url, SCOPE, name).stdout))

        threads = [threading.Thread(target=run, args=(f"process {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        with opened(url) as store:
            records = store.scan(b"", 100, Selection())

        assert [told[0]] * 4 == told
        assert [record.attempt for record in records] == [1] * 20
