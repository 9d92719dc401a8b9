"""What the tests of the Redis store share: rows, a client that looks past the store, and processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from onceward._core.record import Record
from onceward.stores.redis import RedisStore
from onceward.testing.store_suite.rows import row, settled
from servers.redis import SECONDS_MAX, RedisServer

SCOPE = "test:redis"


@contextmanager
def opened(url: str, **options: Any) -> Iterator[RedisStore]:
    """A store, closed afterwards."""
    store = RedisStore.from_url(url, **options)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def looking(server: RedisServer) -> Iterator[Any]:
    """A plain client of the same server."""
    client = redis.Redis(host="127.0.0.1", port=server.port)
    try:
        yield client
    finally:
        client.close()


def put_claim(store: Any, key: str = "k", **changes: Any) -> Record:
    """Claim a key; what stands there then."""
    found = store.put(row(SCOPE, key, **changes), None).record
    assert found is not None
    return found


def put_settled(store: Any, key: str = "k", **changes: Any) -> Record:
    """Claim and settle a key; what stands there then."""
    held = put_claim(store, key)
    found = store.put(settled(held, **changes), held.version).record
    assert found is not None
    return found


def key_of(store: Any, found: Record) -> bytes:
    """The name under which the server keeps a record."""
    shard = store._server.rows.shard_of(found.id)
    return f"{{{store._server.prefix}:{shard:x}}}:".encode() + found.id


def indexes(client: Any, store: RedisStore) -> dict[str, int]:
    """How many members the store's indexes have, by name, of all shards together."""
    sizes = dict.fromkeys(("ids", "open", "families", "forget", "replay"), 0)
    for shard in range(store._server.rows.shards):
        tag = f"{{{store._server.prefix}:{shard:x}}}:"
        for name, letter in (("ids", b"i"), ("open", b"o"), ("families", b"f")):
            sizes[name] += client.zlexcount(f"{tag}names", b"[" + letter, b"(" + bytes((letter[0] + 1,)))
        for name in ("forget", "replay"):
            sizes[name] += client.zcard(tag + name)
    return sizes


def python(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX * 3, check=False)
