"""A journal on SQLite and on PostgreSQL, blocking and awaiting, from one text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from journal_support import opened, url_of

from colours import COLOURS
from servers.postgres import kinds


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database."""
    return str(request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path) -> str:
    """An empty place."""
    return url_of(kind, tmp_path)


@pytest.fixture(params=COLOURS)
def journal(request: pytest.FixtureRequest, url: str) -> Iterator[Any]:
    """A journal, in both colours."""
    made = opened(request.param, url)
    yield made
    made.close()
