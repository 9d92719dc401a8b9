"""A decision log: on SQLite and on PostgreSQL, from one text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_support import World

from onceward.audit import DecisionLog
from servers.postgres import kinds


@pytest.fixture(params=kinds())
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """An empty place."""
    return World(str(request.param), tmp_path)


@pytest.fixture
def log(world: World) -> Iterator[DecisionLog]:
    """An empty log."""
    with world.open() as opened:
        yield opened
