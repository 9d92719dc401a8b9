"""A place to keep tokens: on SQLite and on PostgreSQL, blocking and awaiting, from one text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_support import PEPPER, World

from colours import COLOURS
from servers.postgres import kinds


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database."""
    return str(request.param)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    """Whether it blocks or awaits."""
    return str(request.param)


@pytest.fixture
def world(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """An empty place, and its time."""
    monkeypatch.setenv("ONCEWARD_PEPPER", PEPPER)
    return World(kind, tmp_path)


@pytest.fixture
def access(world: World, colour: str) -> Iterator[Any]:
    """What is asked, in one colour."""
    opened = world.open(colour)
    yield opened
    opened.close()


@pytest.fixture
def blocking(world: World) -> Iterator[Any]:
    """What is asked, where the colour does not matter."""
    opened = world.open()
    yield opened
    opened.close()


@pytest.fixture
def acme(access: Any) -> str:
    """A tenant."""
    assert access.create_tenant("acme")
    return "acme"
