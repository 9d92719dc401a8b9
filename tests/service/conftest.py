"""A real `onceward serve` on a real socket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from service_support import POSTGRES, SQLITE, Served

from servers import ending


@pytest.fixture(scope="session")
def services() -> Iterator[Callable[[str], Served]]:
    """One service of each kind for whoever needs no other. Who pays in advance pays a unit a statement."""
    started: dict[str, Served] = {}

    def find(kind: str) -> Served:
        if kind not in started:
            folder = ending.folder("onceward-serve-")  # Removed when the run ends, however it does.
            start = {SQLITE: Served.started, POSTGRES: Served.on_postgres}[kind]
            started[kind] = start(folder, "--flood-burst", "100000", "--price", "1000000")
        return started[kind]

    try:
        yield find
    finally:
        for service in started.values():
            service.stop()


@pytest.fixture
def served(services: Callable[[str], Served], request: pytest.FixtureRequest) -> Served:
    """On the embedded default, unless a test says otherwise (`ON_BOTH`); SERVED=postgres says so for all."""
    return services(getattr(request, "param", os.environ.get("SERVED", SQLITE)))


@pytest.fixture
def database(served: Served, request: pytest.FixtureRequest) -> str:
    """A database of the test's own, with a table `events`: its path."""
    return served.database()
