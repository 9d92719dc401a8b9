"""Brokers for the queues' tests: each test has an empty one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.redis import started


@pytest.fixture
def redis_broker() -> Iterator[str]:
    """The URL of a Redis server of this test's own."""
    with started("--appendonly", "no") as server:
        yield f"redis://127.0.0.1:{server.port}/0"
