"""Stores as they are on a bad day, and dashboards over them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_scene import build, copy
from dashboard_visitor import Command, Open, Visitor


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the scene: to be copied, not to be changed."""
    mine = tmp_path_factory.getbasetemp()
    # Workers of one run share it; without workers, the folder above has the scenes of earlier runs.
    folder = (mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) / "dashboard-scene"
    folder.mkdir(exist_ok=True)
    build(folder)
    return folder


@pytest.fixture
def store(scene: Path, tmp_path: Path) -> str:
    """A copy of the scene, for one test."""
    return copy(scene, tmp_path)


@pytest.fixture
def opened(store: str, tmp_path: Path) -> Iterator[Open]:
    """Opens dashboards over the test's own copy."""
    started: list[Command] = []

    def start(*flags: str) -> Command:
        started.append(Command(store, *flags, folder=tmp_path))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.stop()


@pytest.fixture(scope="session")
def shared(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One dashboard for everybody who only looks."""
    folder = tmp_path_factory.mktemp("looked-at")
    command = Command(copy(scene, folder), folder=folder)
    try:
        yield command
    finally:
        command.stop()


@pytest.fixture(scope="session")
def looker(shared: Command) -> Visitor:
    """Somebody who has logged in there."""
    return shared.visitor()
