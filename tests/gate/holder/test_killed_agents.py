"""An agent is killed with kill -9 and started again: real processes, a lease of an hour, and nobody waits for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from holder_support import Desk

pytestmark = pytest.mark.dose(1, of="place")

AGENT = Path(__file__).with_name("agent.py")
SECONDS_MAX = 240
"""Less than an agent's own patience, and far less than its lease."""
RESTARTS = 6


@contextmanager
def agent(desk: Desk, guarantee: str, ending: str) -> Iterator[subprocess.Popen[str]]:
    """An agent at work; killed at the latest when the test ends."""
    command = [sys.executable, str(AGENT), desk.url, desk.scope, desk.colour, guarantee, ending]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def killed(desk: Desk, guarantee: str) -> None:
    """An agent is killed in the middle of its work."""
    with agent(desk, guarantee, "hangs") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "running\n"
        first.kill()
        first.wait()


@pytest.fixture(params=["sqlite-blocking", "sqlite-awaiting", "postgres-blocking", "redis-awaiting"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """Stores that outlive a process, in both colours."""
    kind, _, colour = request.param.partition("-")
    made = Desk(kind, colour, tmp_path)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guarantee", "said"),
    [("keyed", ["running", "done"]), ("repeatable", ["running", "done"]), ("blind", ["InDoubt"])],
)
def test_an_agent_that_was_killed_and_restarted_goes_on_at_once(place: Desk, guarantee: str, said: list[str]) -> None:
    """
    Its claim holds for an hour, and the restart is ready to wait for minutes: going on at all proves that it need not.
    """
    killed(place, guarantee)
    with agent(place, guarantee, "returns") as restarted:
        out, _ = restarted.communicate(timeout=SECONDS_MAX)

    assert said == out.split()


@pytest.mark.slow
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_of_six_agents_restarted_at_once_one_runs(colour: str, tmp_path: Path) -> None:
    """
    All of them find the dead one; one works, and all come back with its answer.
    """
    desk = Desk("sqlite", colour, tmp_path)
    killed(desk, "keyed")
    command = [sys.executable, str(AGENT), desk.url, desk.scope, colour, "keyed", "returns"]
    crowd = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(RESTARTS)]
    try:
        said = [one.communicate(timeout=SECONDS_MAX)[0].split() for one in crowd]
    finally:
        for one in crowd:
            one.kill()
            one.wait()
    desk.close()

    assert sorted(said) == [["done"]] * (RESTARTS - 1) + [["running", "done"]]
