"""Workers of dramatiq, killed with SIGKILL over a message; real processes, a real Redis."""

from __future__ import annotations

from pathlib import Path

import pytest
from queue_kills import CASES, Case, ended, expected, kill

pytest.importorskip("dramatiq", reason="in make test-agents")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_killed_workers_message_has_one_effect(case: Case, tmp_path: Path, redis_broker: str) -> None:
    """
    Killed after the effect or before the acknowledgement, a worker leaves one charge (and doubt, if it is blind).

    Without a gate the same kill makes two charges.
    """
    report = kill("dramatiq_worker", case, tmp_path, redis_broker, over=ended)

    assert report.counted() == expected(case)
