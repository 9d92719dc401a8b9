"""A ledger: on SQLite and on PostgreSQL, blocking and awaiting, from one text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_support import World

from colours import COLOURS
from servers.postgres import kinds


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database."""
    return str(request.param)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> World:
    """An empty place."""
    return World(kind, tmp_path)


@pytest.fixture(params=COLOURS)
def ledger(request: pytest.FixtureRequest, world: World) -> Iterator[Any]:
    """A ledger with the usual terms, in both colours."""
    opened = world.open(request.param)
    yield opened
    opened.close()
