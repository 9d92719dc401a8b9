"""Workers of rq, killed with SIGKILL over a message; real processes, a real Redis."""

from __future__ import annotations

from pathlib import Path

import pytest
from queue_kills import CASES, Case, expected, kill

pytest.importorskip("rq", reason="in make test-agents")

from redis import Redis

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_killed_workers_message_has_one_effect(case: Case, tmp_path: Path, redis_broker: str) -> None:
    """
    Killed after the effect or before the acknowledgement, a worker leaves one charge (and doubt, if it is blind).

    Without a gate the same kill makes two charges.
    """
    redis = Redis.from_url(redis_broker)

    def over(folder: Path) -> bool:
        return redis.hget("rq:job:job-1", "status") in (b"finished", b"failed")

    report = kill("rq_worker", case, tmp_path, redis_broker, over=over)

    assert report.counted() == expected(case)
