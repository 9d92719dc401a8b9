"""Workers of arq, killed with SIGKILL over a message; real processes, a real Redis."""

from __future__ import annotations

from pathlib import Path

import pytest
from queue_kills import CASES, Case, expected, kill

pytest.importorskip("arq", reason="in make test-agents")

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
        return redis.zcard("arq:queue") == 0 and bool(redis.exists("arq:result:job-1"))

    def time_is_over() -> None:
        redis.delete("arq:in-progress:job-1")  # As it would be once the job's time-out and ten seconds are over.

    report = kill("arq_worker", case, tmp_path, redis_broker, over=over, killed=time_is_over)

    assert report.counted() == expected(case)
