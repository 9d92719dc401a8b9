"""A stage for applications, and a world for each test on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asgi_support import Stage, World


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """One real server for all of them."""
    stage = Stage()
    yield stage
    stage.stop()


@pytest.fixture
def world(stage: Stage) -> Iterator[World]:
    """On the memory store."""
    world = World(stage)
    yield world
    world.close()
