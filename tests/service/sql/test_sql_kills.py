"""
kill -9 at every boundary: the row and its record are both there or neither, nothing acknowledged is lost, nothing is
done twice.

`SQL_KILLS=600 pytest tests/service/sql/test_sql_kills.py` kills more often.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sql_drill import POINTS

HERE = Path(__file__).parent
KILLS = int(os.environ.get("SQL_KILLS", "36"))


class Found:
    """What a database holds after a drill."""

    def __init__(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            self.keys = [key for (key,) in connection.execute("SELECT key FROM effects")]
            self.settled = connection.execute(
                "SELECT count(*) FROM onceward_records WHERE state = 'settled'"
            ).fetchone()[0]
            self.records = connection.execute("SELECT count(*) FROM onceward_records").fetchone()[0]

    def lost(self, acknowledged: set[str]) -> set[str]:
        return acknowledged - set(self.keys)

    @property
    def doubled(self) -> int:
        return len(self.keys) - len(set(self.keys))


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(HERE / "sql_drill.py"), *map(str, arguments)]


@pytest.mark.requirement("E09")
@pytest.mark.slow
def test_a_writer_killed_anywhere_leaves_both_or_neither(tmp_path: Path) -> None:
    """
    Three times at each boundary of a request and of a commit; then everything is sent again.
    """
    done = subprocess.run(
        command("transactions", tmp_path, KILLS, "keyed"),
        capture_output=True,
        text=True,
        timeout=60 + KILLS,
        check=False,
    )
    ends = [line.split() for line in done.stdout.splitlines()]
    found = Found(tmp_path / "tenant.db")

    assert done.stderr == ""
    assert sum(status == str(-signal.SIGKILL) for status, _ in ends) == KILLS
    assert {point for _, point in ends} == set(POINTS)
    assert found.lost({f"{number}-{n}" for number in range(KILLS) for n in range(6)}) == set()
    assert (0, len(found.keys), len(found.keys)) == (found.doubled, found.settled, found.records)


@pytest.mark.slow
def test_without_keys_the_same_drill_would_double(tmp_path: Path) -> None:
    """
    The negative control: sent again without keys, rows are there twice, and the check sees it.
    """
    subprocess.run(
        command("transactions", tmp_path, len(POINTS), "plain"), stdout=subprocess.DEVNULL, timeout=90, check=True
    )

    assert Found(tmp_path / "tenant.db").doubled > 0


@pytest.mark.slow
def test_workers_killed_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    """
    Twenty clients while one worker after the other dies: all keys are acknowledged, by the same engine.
    """
    orders = tmp_path / "orders"
    orders.mkdir()
    kills = max(6, KILLS // 6)
    points = (
        "sql.request.after",
        "sql.commit.before",
        "sql.commit.after",
        "call.after",
        "settle.after",
        "commit.before",
    )
    for number in range(kills):
        (orders / f"{number:04}-{points[number % len(points)]}@{3 + number % 5}").touch()
    keys = kills * 40
    done = subprocess.run(
        command("engine", tmp_path / "databases", keys, orders),
        capture_output=True,
        text=True,
        timeout=60 + 10 * kills,
        check=False,
    )
    found = Found(tmp_path / "databases" / "acme" / "shop.db")
    acknowledged = set(done.stdout.split())

    assert (done.stderr, "done" in acknowledged) == ("", True)
    assert list(orders.iterdir()) == []
    assert keys == len(acknowledged) - 1
    assert found.lost(acknowledged - {"done"}) == set()
    assert (0, keys, keys) == (found.doubled, found.settled, found.records)


@pytest.mark.slow
def test_an_engine_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """
    The whole service dies, several times, at any moment; whoever was not answered sends again, to the next one.
    """
    folder = tmp_path / "databases"
    acknowledged: set[str] = set()
    keys = 400
    for number in range(max(3, KILLS // 12)):
        running = subprocess.Popen(command("engine", folder, keys), stdout=subprocess.PIPE, text=True)
        assert running.stdout is not None
        for line, _ in zip(running.stdout, range(20 + 70 * (number % 4)), strict=False):
            acknowledged.add(line.strip())
        running.kill()
        acknowledged.update(running.stdout.read().split())
        running.wait()
        running.stdout.close()
    before = len(acknowledged)
    done = subprocess.run(command("engine", folder, keys), capture_output=True, text=True, timeout=120, check=False)
    acknowledged.update(done.stdout.split())
    found = Found(folder / "acme" / "shop.db")

    assert before < keys
    assert (done.stderr, "done" in acknowledged) == ("", True)
    assert found.lost(acknowledged - {"done"}) == set()
    assert (0, keys, keys) == (found.doubled, found.settled, found.records)
