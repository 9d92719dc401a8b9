"""Databases to ask: one in this process, and how to see what nobody should."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward.service.sql import LocalDatabase


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the local database's file is."""
    return tmp_path / "tenant.db"


@pytest.fixture
def database(place: Path) -> Iterator[LocalDatabase]:
    """A database in this process: the code that the workers run."""
    with LocalDatabase(place) as opened:
        yield opened


@pytest.fixture
def raw(place: Path) -> Iterator[Callable[..., list[Any]]]:
    """Ask the file itself, past every guard."""

    def ask(sql: str, *values: Any) -> list[Any]:
        connection = sqlite3.connect(place)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    yield ask
