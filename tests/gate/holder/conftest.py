"""Every store and both colours, for each test that takes a `desk`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from holder_support import COLOURS, Desk, wanted


@pytest.fixture(params=[f"{kind}-{colour}" for kind in wanted() for colour in COLOURS])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A desk of every kind and colour."""
    kind, _, colour = request.param.partition("-")
    made = Desk(kind, colour, tmp_path)
    yield made
    made.close()


@pytest.fixture(
    params=[f"{kind}-{colour}" for kind in wanted() if kind in ("sqlite", "postgres") for colour in COLOURS]
)
def joining_desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A desk of every store whose database can share a transaction."""
    kind, _, colour = request.param.partition("-")
    made = Desk(kind, colour, tmp_path)
    yield made
    made.close()
