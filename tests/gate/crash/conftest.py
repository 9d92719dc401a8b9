"""Senders that may die, in both colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_support import Place
from sender import COLOURS


@pytest.fixture(params=COLOURS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """In both colours."""
    made = Place(tmp_path, request.param)
    yield made
    made.close()
