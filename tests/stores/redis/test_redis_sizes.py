"""What a record costs on the server: bytes by MEMORY USAGE, commands by INFO commandstats."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from redis_support import looking, opened

from onceward import Gate
from servers.redis import needed, started

needed()

KEY = "order:7f9c2ba4-e88f-4ed4-9b1a-0b1f4f3c2d1e"
MANY = 2_000


def spent(client: Any) -> Counter[str]:
    """How often each command was called, also from scripts; but for what a test asks itself."""
    stats = client.info("commandstats")
    ours = {"info", "config|resetstat", "memory|usage", "hello", "client|setinfo", "script|load"}
    return Counter({name[8:]: one["calls"] for name, one in stats.items() if name[8:] not in ours})


class TestBytes:
    """A record, its tombstone, and what the indexes take besides."""

    @pytest.mark.fault("a-tombstone-keeps-its-answer")
    def test_a_record_takes_less_than_a_kilobyte_and_its_tombstone_less_than_300_bytes(self) -> None:
        """
        A key with a UUID in it, an operation with a name, a small result; as the documentation states.
        """
        with started() as server, opened(server.url(prefix="onceward")) as store, looking(server) as client:
            gate = Gate(store, scope="live:acme", retain=1)
            gate.run(KEY, lambda: {"id": "ch_1", "amount": 1200}, name="charge")
            [name] = [key for key in client.scan_iter() if len(key.partition(b"}:")[2]) == 32]
            record = client.memory_usage(name)
            time.sleep(1.1)
            assert store.purge(10).shrunk == 1
            tombstone = client.memory_usage(name)

        print(f"settled {record} bytes, tombstone {tombstone} bytes")
        assert record < 400
        assert tombstone < 300

    def test_with_its_entries_in_the_indexes_a_tombstone_takes_less_than_600(self) -> None:
        """
        All that the server uses more for two thousand of them, divided.
        """
        with started() as server, opened(server.url(prefix="onceward")) as store, looking(server) as client:
            before = client.info("memory")["used_memory"]
            gate = Gate(store, scope="live:acme", retain=1)
            for number in range(MANY):
                gate.run(f"{KEY}{number}", lambda: {"id": "ch_1", "amount": 1200}, name="charge")
            settled = (client.info("memory")["used_memory"] - before) / MANY
            time.sleep(1.1)
            while store.purge(1_000).shrunk:
                pass
            shrunk = (client.info("memory")["used_memory"] - before) / MANY

        print(f"in all: settled {settled:.0f} bytes, tombstone {shrunk:.0f} bytes")
        assert settled < 1_024
        assert shrunk < 640


class TestCommands:
    """Fewer commands in a script are less of the server's time."""

    @pytest.mark.fault("a-settle-notes-the-fence-again")
    def test_an_operation_and_a_replay_cost_so_many(self) -> None:
        """
        A claim five, a settle seven, each in one script; a replay two, and no script.
        """
        with started() as server, opened(server.url()) as store, looking(server) as client:
            gate = Gate(store, scope="live:acme")
            gate.run("warm", lambda: 1)
            client.config_resetstat()
            gate.run("k", lambda: 1)
            fresh = spent(client)
            client.config_resetstat()
            gate.run("k", lambda: 2)
            replay = spent(client)

        assert fresh == {"evalsha": 2, "time": 2, "get": 4, "mset": 1, "set": 1, "zadd": 3, "zrem": 1}
        assert replay == {"get": 1, "time": 1}
