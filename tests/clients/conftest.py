"""One service for all tests of the clients in other languages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers import ending
from service.service_support import Served


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """A real `onceward serve` in a process of its own."""
    folder = ending.folder("onceward-clients-")  # Removed when the run ends, however it does.
    service = Served.started(folder, "--flood-burst", "100000")
    try:
        yield service
    finally:
        service.stop()
