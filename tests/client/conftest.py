"""One service for all tests of the client, and clients of it in both colours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_client_support import Maker

from servers import ending
from service.service_support import Served

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """A real `onceward serve` in a process of its own."""
    folder = ending.folder("onceward-client-")  # Removed when the run ends, however it does.
    service = Served.started(folder, "--flood-burst", "100000")
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(params=["blocking", "awaiting"])
def client_of(request: pytest.FixtureRequest) -> Iterator[Maker]:
    """Makes clients, of each colour in turn."""
    maker = Maker(request.param)
    yield maker
    maker.close()


@pytest.fixture
def name() -> str:
    """A database's name that no other test has."""
    return f"c{next(_numbers)}"


@pytest.fixture(params=["service", "file"])
def db(request: pytest.FixtureRequest, client_of: Maker, name: str, tmp_path: Path) -> Any:
    """A new database: of a service, and in a local file. What holds for one holds for the other."""
    if request.param == "file":
        client = client_of(f"sqlite:///{tmp_path}/shop.db")
    else:
        served: Served = request.getfixturevalue("served")
        client = client_of(served.address, token=served.token)
    found = client.db("demo", name)
    found.create()
    return found
