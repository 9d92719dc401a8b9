"""
A process is stopped inside its function, past its lease; another caller takes over; then it wakes up.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from counters import OPTIONS
from desks import Place

from adapters.settle_inside import inside_sleeper
from onceward import Gate, Operation
from servers.postgres import wanted

CASES = [("sqlite", "begun"), ("postgresql", "begun"), ("postgresql", "written")]
"""On SQLite whoever has written keeps everybody else from writing: nobody can take over."""


@pytest.mark.slow
@pytest.mark.parametrize(("database", "where"), [case for case in CASES if case[0] == "sqlite" or wanted()])
def test_a_zombie_leaves_no_rows(tmp_path: Path, database: str, where: str) -> None:
    """
    Stopped past its lease and overtaken, its settle does not land, its transaction fails, and only the winner's row is
    there.
    """
    place = Place(database, tmp_path)
    command = [sys.executable, inside_sleeper.__file__, place.url, where]
    with (
        Gate(place.url, scope="live:acme") as gate,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sleeper,
    ):
        try:
            _wait_until_stopped(sleeper.pid)
            winner = gate.call("order:1", lambda operation: _charge(place, operation), **OPTIONS)
            os.kill(sleeper.pid, signal.SIGCONT)
            said, _ = sleeper.communicate(timeout=30)
        finally:
            sleeper.kill()

    assert (winner.value, winner.replayed, winner.attempt) == ("winner", False, 2)
    assert said == "OwnershipLost\n"
    assert place.ask("SELECT amount FROM charges") == [("winner",)]
    assert place.states() == {"order:1": "settled"}


def _charge(place: Place, operation: Operation) -> None:
    connection: Any = sqlite3.connect(place.path) if place.database == "sqlite" else psycopg.connect(place.url)
    with connection:
        connection.execute("INSERT INTO charges VALUES (1, 'winner')")
        operation.settle_inside(connection, "winner")
    connection.close()


def _wait_until_stopped(pid: int) -> None:
    give_up = time.monotonic() + 30
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < give_up, "it did not stop"
        time.sleep(0.01)
