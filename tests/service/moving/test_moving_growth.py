"""Twice the rows cost twice as much, and no more memory."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
from moving_support import empty_folder, moved, open_shop

ROWS = 4_000


def make_rows(folder: Path, rows: int) -> None:
    """A table of so many rows with a key and a text each."""
    with open_shop(folder) as shop:
        shop.query("CREATE TABLE things (id INTEGER PRIMARY KEY, text TEXT)")
        shop.query(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO things SELECT i, printf('%0200d', i) FROM n",
            [rows],
        )


def cost(tmp_path: Path, rows: int) -> float:
    """Seconds of processor time."""
    place = tmp_path / str(rows)
    make_rows(place / "old", rows)
    empty_folder(place / "new")
    began = time.process_time()
    moved(place / "old", place / "new", place / "there.jsonl")
    return time.process_time() - began


@pytest.mark.slow
def test_cost_grows_with_the_rows(tmp_path: Path) -> None:
    """
    Four times the rows take about four times the processor time: far from the sixteen times of anything quadratic.
    """
    few, many = (min(cost(tmp_path / str(n), rows) for n in range(2)) for rows in (ROWS, 4 * ROWS))

    assert many < 9 * few


@pytest.mark.slow
@pytest.mark.fault("exports-are-held-in-memory")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """
    A file of five megabytes is moved within one.
    """
    make_rows(tmp_path / "old", 5 * ROWS)
    empty_folder(tmp_path / "new")
    file = tmp_path / "there.jsonl"
    tracemalloc.start()
    try:
        moved(tmp_path / "old", tmp_path / "new", file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert file.stat().st_size > 4_000_000
    assert most < 2_500_000
