"""
Functions that settle inside their own transactions are killed between any two steps, and while the server commits.

DRILL_ROUNDS=10 (or `make drill-atomic`) goes through it ten times, with every library; otherwise a few of them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.atomic.drill import Nursery, nursery
from adapters.atomic.test_kill_drill import SLOW_COMMIT, _killed_everywhere
from adapters.settle_inside import inside_drill
from adapters.settle_inside.inside_drill import CLIENTS_AND_CONTROLS, INSIDE, InsideDrill
from onceward import Gate
from servers.postgres import running, wanted

ROUNDS = int(os.environ.get("DRILL_ROUNDS", "0"))
FEW = ("inside-psycopg", "inside-sqlite3")
KILLED = list(INSIDE) if ROUNDS else list(FEW)


@pytest.fixture(scope="module")
def warm() -> Iterator[Nursery]:
    if wanted():
        running()  # Before the nursery, so that its children find the server.
    with nursery(inside_drill.__file__) as one:
        yield one


def _drill(warm: Nursery, client: str, folder: Path) -> InsideDrill:
    """A database of its own, and somebody to be killed there."""
    if CLIENTS_AND_CONTROLS[client]().database == "sqlite":
        url = f"sqlite:///{folder}/drill.db"
        Gate(url, scope="test:drill").close()
        connection = sqlite3.connect(folder / "drill.db")
        connection.execute("CREATE TABLE effects (name TEXT)")
        connection.commit()
        connection.close()
        return InsideDrill(warm, client, url)
    if not wanted():
        pytest.skip("STORES leaves postgres out")
    server, name = running(), f"drill_{client.replace('-', '_')}"
    server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    server.execute(f"CREATE DATABASE {name}")
    server.execute(SLOW_COMMIT, name)
    return InsideDrill(warm, client, server.url(name, options="application_name=drill"))


@pytest.mark.requirement("E09")
@pytest.mark.slow
@pytest.mark.parametrize("client", KILLED)
def test_killed_anywhere_inside_both_stand_or_neither(warm: Nursery, tmp_path: Path, client: str) -> None:
    """
    kill -9 at every failpoint and between every two statements; the next claim leaves one row and one record.
    """
    figures = _killed_everywhere(_drill(warm, client, tmp_path), ROUNDS or 1)
    print(figures)

    assert (0, figures.kills) == (figures.half, figures.after_retry)
    assert figures.both
    assert figures.neither


@pytest.mark.slow
@pytest.mark.parametrize("client", [name for name in KILLED if INSIDE[name]().database == "postgres"])
def test_killed_while_the_server_commits_inside(warm: Nursery, tmp_path: Path, client: str) -> None:
    """
    The client dies while its COMMIT is being carried out: nobody hears of it, and the next claim finds out.
    """
    drill = _drill(warm, client, tmp_path)
    for _ in range(2 * ROUNDS or 1):
        drill.kill_in_commit()
    figures = drill.figures()
    print(figures)

    assert (0, figures.kills) == (figures.half, figures.after_retry)


@pytest.mark.slow
def test_the_drill_goes_red_if_the_settle_is_elsewhere(warm: Nursery, tmp_path: Path) -> None:
    """
    Settled on another connection than the rows, the same drill finds halves: it can fail.
    """
    drill = _drill(warm, "inside-elsewhere", tmp_path)
    for step in range(1, len(drill.steps()) + 1, 1 if ROUNDS else 5):
        drill.kill_at(step)
    figures = drill.figures()
    print(figures)

    assert figures.half
