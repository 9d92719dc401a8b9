"""
kill -9 of relays and of callers, at every failpoint: nothing is lost, no id changes, order holds.

`RELAY_KILLS=300 pytest tests/messaging/outbox/test_relay_kills.py` kills more often.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servers import postgres
from servers.postgres import kinds

pytestmark = pytest.mark.dose(1, of="url")

KILLS = int(os.environ.get("RELAY_KILLS", "15"))
DRILL = Path(__file__).with_name("relay_drill.py")


@pytest.fixture(params=kinds())
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    server = postgres.running()
    server.execute("DROP DATABASE IF EXISTS relay_drill WITH (FORCE)")
    server.execute("CREATE DATABASE relay_drill")
    return server.url("relay_drill")


def drilled(*arguments: object) -> dict[str, Any]:
    """What a drill found."""
    done = subprocess.run(
        [sys.executable, str(DRILL), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120 + 2 * KILLS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.requirement("E37", "E03", "B41")
def test_relays_killed_anywhere_lose_nothing_and_keep_every_id(url: str, tmp_path: Path) -> None:
    """
    Two at a time, each killed at one of the failpoints: every message arrives at least once under its own id, the first
    deliveries of an aggregate are in order, and a receiver that knows ids acts once for each.
    """
    found = drilled("relays", url, tmp_path / "received", KILLS)

    assert {name: count for name, count in found.items() if name not in ("deaths", "repeated")} == {
        "lost": 0,
        "invented": 0,
        "doubled": 0,
        "out_of_order": 0,
    }
    assert found["deaths"] >= KILLS


@pytest.mark.slow
def test_without_a_lease_the_same_drill_loses_messages(tmp_path: Path) -> None:
    """
    The control: whoever writes "delivered" before delivering loses what it had in hand when it died.
    """
    found = drilled("relays", f"sqlite:///{tmp_path}/app.db", tmp_path / "received", KILLS, "no_lease")

    assert found["lost"] > 0


@pytest.mark.slow
@pytest.mark.requirement("E37")
def test_callers_killed_anywhere_leave_row_and_message_or_neither(url: str) -> None:
    """
    Between any two steps of the transaction; every committed row has its message, and every message its row.
    """
    found = drilled("writers", url, 14)

    assert (found["deaths"], found["rows"], found["untold"], found["untrue"]) == (12, 4, 0, 0)


@pytest.mark.slow
def test_a_message_outside_of_the_transaction_tells_of_what_never_was(tmp_path: Path) -> None:
    """
    The control: written and committed by itself, it is there without its row.
    """
    found = drilled("writers", f"sqlite:///{tmp_path}/app.db", 14, "outside")

    assert found["untrue"] > 0
