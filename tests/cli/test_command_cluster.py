"""`onceward` on a Redis Cluster: every node is looked over, and records are found wherever they live."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from onceward import Gate
from servers.redis import DURABLE, SECONDS_MAX, RedisServer, needed, started

needed()

CLUSTERED = (*DURABLE, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-config-file", "n.conf")
HALF = 8_192


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RedisServer]]:
    """Two nodes with half of the slots each."""
    with ExitStack() as stack:
        made = [stack.enter_context(started(*CLUSTERED)) for _ in range(2)]
        for number, node in enumerate(made):
            slots = range(HALF * number, HALF * (number + 1))
            assert node.ask("CLUSTER", "ADDSLOTS", *map(str, slots)).startswith(b"+OK")
        assert made[0].ask("CLUSTER", "MEET", "127.0.0.1", str(made[1].port)).startswith(b"+OK")
        deadline = time.monotonic() + SECONDS_MAX
        while not all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in made):
            assert time.monotonic() < deadline, "the nodes do not find each other"
            time.sleep(0.05)
        yield made


@pytest.mark.slow
def test_every_command_works_on_a_cluster(nodes: list[RedisServer], folder: Path, run: Any) -> None:
    """
    Each node has findings of its own; records of all nodes are counted and listed.
    """
    url = nodes[0].url(cluster=1)
    made = run("store", "init", "--store", url)
    with Gate(url, scope="live:acme") as gate:
        for number in range(8):
            gate.run(f"job:{number}", lambda: 1)

    checked = run("store", "check", "--json", "--store", url)
    listed = run("records", "list", "--json", "--store", url)
    codes = [run(*command.split(), "--store", url).code for command in ("store migrate", "records purge --all")]

    assert (made.code, checked.code, codes) == (0, 0, [0, 0])
    names = {one["name"] for one in checked.document["checks"]}
    assert {f"eviction at 127.0.0.1:{node.port}" for node in nodes} <= names
    assert checked.document["records"] == {"settled": 8}
    assert len(listed.document["records"]) == 8


@pytest.mark.slow
def test_one_node_that_forgets_is_named(nodes: list[RedisServer], folder: Path, run: Any) -> None:
    """
    A Cluster is as safe as its least safe node.
    """
    url = nodes[0].url(cluster=1)
    nodes[1].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        checked = run("store", "check", "--json", "--store", url)
    finally:
        nodes[1].ask("CONFIG", "SET", "maxmemory-policy", "noeviction")

    wrong = [one["name"] for one in checked.document["checks"] if not one["ok"]]
    assert (checked.code, wrong) == (1, [f"eviction at 127.0.0.1:{nodes[1].port}"])


@pytest.mark.slow
def test_a_cluster_that_is_not_called_one_is_refused(nodes: list[RedisServer], folder: Path, run: Any) -> None:
    """
    The error says what to add to the URL.
    """
    ran = run("store", "check", "--store", nodes[1].url())

    assert ran.code == 2
    assert "cluster=1" in ran.err
