"""An outbox on SQLite and on PostgreSQL, from one text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox_support import World

from servers.postgres import kinds


@pytest.fixture(params=kinds())
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """An empty outbox, and its time."""
    made = World(str(request.param), tmp_path)
    yield made
    made.close()
