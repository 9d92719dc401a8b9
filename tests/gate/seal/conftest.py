"""Sealed gates on every kind of store, in both colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from seal_support import COLOURS, Bench, wanted

from onceward.gate import lease_renewer


@pytest.fixture(autouse=True)
def _nothing_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease runs out here."""
    monkeypatch.setattr(lease_renewer, "_keep_sweeping", lambda *_: None)


@pytest.fixture(params=[f"{kind}-{colour}" for kind in wanted() for colour in COLOURS])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """On every store, in both colours."""
    made = Bench(*request.param.split("-"), tmp_path)
    yield made
    made.close()


@pytest.fixture(params=COLOURS)
def quick(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """In both colours, on a file: for what no store can change."""
    made = Bench("sqlite", request.param, tmp_path)
    yield made
    made.close()
