"""
From the outbox over the wire into a receiver's table, with kill -9 of relay and receiver.

`WEBHOOK_KILLS=100 pytest tests/messaging/delivery/test_webhook_kills.py` kills more often.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KILLS = int(os.environ.get("WEBHOOK_KILLS", "6"))
DRILL = Path(__file__).with_name("webhook_drill.py")


def drilled(*arguments: object) -> dict[str, Any]:
    """What a drill found."""
    done = subprocess.run(
        [sys.executable, str(DRILL), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=200 + 5 * KILLS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_relays_and_receivers_killed_anywhere_make_one_effect_of_every_message(tmp_path: Path) -> None:
    """
    Deliveries are repeated, under the same ids and with right signatures; a receiver that writes the id with the effect
    has every message once, in order within its aggregate.
    """
    found = drilled(tmp_path, KILLS)

    assert {name: found[name] for name in ("lost", "invented", "doubled", "out_of_order")} == {
        "lost": 0,
        "invented": 0,
        "doubled": 0,
        "out_of_order": 0,
    }
    assert found["relay_deaths"] >= KILLS
    assert found["receiver_deaths"] >= KILLS
    assert found["repeated"] > 0


@pytest.mark.slow
def test_a_receiver_that_does_not_look_at_ids_acts_twice(tmp_path: Path) -> None:
    """
    The control: the same drill without the unique id. At-least-once delivery alone is not one effect.
    """
    found = drilled(tmp_path, KILLS, "no_ids")

    assert found["lost"] == 0
    assert found["doubled"] > 0
