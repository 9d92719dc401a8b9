"""Dead letters on every kind of store, in both colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dead_support import COLOURS, Desk, wanted

from onceward.gate import lease_renewer


@pytest.fixture(autouse=True)
def _nothing_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease runs out here."""
    monkeypatch.setattr(lease_renewer, "_keep_sweeping", lambda *_: None)


@pytest.fixture(params=[f"{kind}-{colour}" for kind in wanted() for colour in COLOURS])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """On every store, in both colours."""
    made = Desk(*request.param.split("-"), tmp_path)
    yield made
    made.close()


@pytest.fixture(params=COLOURS)
def quick(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """In both colours, on the memory store: for what no store can change."""
    made = Desk("memory", request.param, tmp_path)
    yield made
    made.close()
