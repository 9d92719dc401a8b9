"""`kill -9` of receivers and workers, at every place between two effects: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inbox_support import World

from colours import COLOURS

pytestmark = pytest.mark.dose(1, of="colour")

DRILL = Path(__file__).with_name("inbox_drill.py")


def drilled(world: World, case: str, colour: str = "blocking") -> dict[str, Any]:
    """One drill, in a process of its own."""
    command = [sys.executable, str(DRILL), world.url, case, colour]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.requirement("C51", "E03", "E38")
@pytest.mark.parametrize("colour", COLOURS)
def test_a_kill_anywhere_loses_nothing_and_doubles_nothing(world: World, colour: str) -> None:
    """
    Before, inside and after each transaction, and at each step of the gate: every event has its one effect.
    """
    found = drilled(world, "sound", colour)

    assert found["alive"] == []
    assert found["places"] > 12
    assert set(found["receiving"]) == {"inbox.receive.before", "inbox.receive.written", "inbox.receive.after"}
    assert (found["lost"], found["doubled"], found["waiting"], found["told"]) == (0, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_blind_effect_is_never_doubled_and_every_doubt_is_told(world: World) -> None:
    """
    Killed where nobody can know: a dead letter, and not another try.
    """
    found = drilled(world, "blind")

    assert (found["doubled"], found["waiting"]) == (0, 0)
    assert 0 < found["told"] < found["places"]
    assert found["lost"] <= found["told"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(("case", "fault"), [("unguarded", "doubled"), ("unrepeated", "lost")])
def test_the_drill_itself(world: World, case: str, fault: str) -> None:
    """
    Effect and record in two commits, or a sender that never comes back: the same kills show it.
    """
    assert drilled(world, case)[fault] > 0
