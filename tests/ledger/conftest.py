"""A ledger: on SQLite and on PostgreSQL, one blocking and one awaiting, from one text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_support import World, kinds


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database."""
    return str(request.param)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> World:
    """An empty place."""
    return World(kind, tmp_path)


@pytest.fixture
def ledger(world: World) -> Iterator[Any]:
    """A ledger with the usual terms; one colour for each kind."""
    opened = world.open("awaiting" if world.kind == "postgres" else "blocking")
    yield opened
    opened.close()
