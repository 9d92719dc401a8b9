"""An inbox: on SQLite and on PostgreSQL, blocking and awaiting, from one text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inbox_support import World

from colours import COLOURS
from servers.postgres import kinds


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database."""
    return str(request.param)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> World:
    """An empty database, and its time."""
    return World(kind, tmp_path)


@pytest.fixture(params=COLOURS)
def inbox(request: pytest.FixtureRequest, world: World) -> Iterator[Any]:
    """In both colours."""
    opened = world.open(request.param)
    yield opened
    opened.close()
