"""
Clients in atomic mode are killed between any two steps, and while the server commits: both rows or neither.

DRILL_ROUNDS=10 (or `make drill-atomic`) goes through every step ten times; otherwise through half of them once.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from adapters.atomic.drill import Drill, Figures, Nursery, nursery
from adapters.atomic.drill_clients import CLIENTS, CONTROLS
from onceward import Gate
from servers.postgres import running, wanted

ROUNDS = int(os.environ.get("DRILL_ROUNDS", "0"))
SLOW_COMMIT = """
DROP TABLE IF EXISTS effects;
CREATE TABLE effects (name text);
CREATE OR REPLACE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN IF NEW.name LIKE '%slow%' THEN PERFORM pg_sleep(0.1); END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION linger();
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[Nursery]:
    if wanted():
        running()  # Before the nursery, so that its children find the server.
    with nursery() as one:
        yield one


def _drill(warm: Nursery, client: str, folder: Path) -> Drill:
    """A database of its own, and somebody to be killed there."""
    database = {**CLIENTS, **CONTROLS}[client]().database
    if database == "sqlite":
        url = f"sqlite:///{folder}/drill.db"
        Gate(url, scope="test:drill").close()
        connection = sqlite3.connect(folder / "drill.db")
        connection.execute("CREATE TABLE effects (name TEXT)")
        connection.commit()
        connection.close()
        return Drill(warm, client, url)
    if not wanted():
        pytest.skip("STORES leaves postgres out")
    server, name = running(), f"drill_{client.replace('-', '_')}"
    server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    server.execute(f"CREATE DATABASE {name}")
    server.execute(SLOW_COMMIT, name)
    return Drill(warm, client, server.url(name, options="application_name=drill"))


def _killed_everywhere(drill: Drill, rounds: int) -> Figures:
    """At every step, as often as is said; at least at every second one, of which each client has its own half."""
    steps = drill.steps()
    first, stride = (1, 1) if rounds else (1 + crc32(drill.client.encode()) % 2, 2)
    for _ in range(rounds or 1):
        for step in sorted({*range(first, len(steps) + 1, stride), len(steps)}):  # The last is after the commit.
            drill.kill_at(step)
    return drill.figures()


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.dose(5)
def test_killed_anywhere_both_stand_or_neither(warm: Nursery, tmp_path: Path, client: str) -> None:
    """
    kill -9 at every failpoint and between every two statements; then a retry leaves one row and one record.
    """
    figures = _killed_everywhere(_drill(warm, client, tmp_path), ROUNDS)
    print(figures)

    assert (0, figures.kills) == (figures.half, figures.after_retry)
    assert figures.both
    assert figures.neither


@pytest.mark.slow
@pytest.mark.parametrize("client", [name for name, made in CLIENTS.items() if made().database == "postgres"])
@pytest.mark.dose(3)
def test_killed_while_the_server_commits_both_stand_or_neither(warm: Nursery, tmp_path: Path, client: str) -> None:
    """
    The client dies while its COMMIT is being carried out: nobody hears of it, and the retry finds out.
    """
    drill = _drill(warm, client, tmp_path)
    for _ in range(2 * ROUNDS or 1):
        drill.kill_in_commit()
    figures = drill.figures()
    print(figures)

    assert (0, figures.kills) == (figures.half, figures.after_retry)


@pytest.mark.slow
def test_the_drill_itself_goes_red(warm: Nursery, tmp_path: Path) -> None:
    """
    With row and record in separate transactions the same drill finds halves: it can fail.
    """
    figures = _killed_everywhere(_drill(warm, "apart", tmp_path), 1)
    print(figures)

    assert figures.half
