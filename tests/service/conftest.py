"""A real `onceward serve` on a real socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from service_support import Served

from servers import ending


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """One service for whoever needs no other, on the embedded default. Who pays in advance pays a unit a statement."""
    folder = ending.folder("onceward-serve-")  # Removed when the run ends, however it does.
    service = Served.started(folder, "--flood-burst", "100000", "--price", "1000000")
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture
def database(served: Served, request: pytest.FixtureRequest) -> str:
    """A database of the test's own, with a table `events`: its path."""
    return served.database()
