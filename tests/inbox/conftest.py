"""An inbox: on SQLite blocking, on PostgreSQL awaiting, from one text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inbox_support import World, kinds


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database."""
    return str(request.param)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> World:
    """An empty database, and its time."""
    return World(kind, tmp_path)


@pytest.fixture
def inbox(world: World, kind: str) -> Iterator[Any]:
    """One colour for each kind: shells and drivers know nothing of each other, so two pairs show both of both."""
    opened = world.open("awaiting" if kind == "postgres" else "blocking")
    yield opened
    opened.close()
