"""Emitters on every kind of store, in both colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emitter_support import COLOURS, Post, wanted


@pytest.fixture(params=[f"{kind}-{colour}" for kind in wanted() for colour in COLOURS])
def post(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Post]:
    """On every store, in both colours."""
    made = Post(*request.param.split("-"), tmp_path)
    yield made
    made.close()


@pytest.fixture(params=COLOURS)
def quick(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Post]:
    """In both colours, on the memory store: for what no store can change."""
    made = Post("memory", request.param, tmp_path)
    yield made
    made.close()
