"""Workers of Celery, killed with SIGKILL over a message; real processes, on a real RabbitMQ and a real Redis."""

from __future__ import annotations

from pathlib import Path

import pytest
from queue_kills import CASES, Case, ended, expected, kill

celery = pytest.importorskip("celery", reason="in make test-agents")

from servers import rabbitmq  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning:celery")]

VISIBILITY = 3_600
"""Seconds, in Celery, if nothing is said."""

CHILD_KILLED = Case("effect", variant="prefork")


@pytest.mark.parametrize("case", [*CASES, CHILD_KILLED], ids=str)
def test_a_killed_workers_message_has_one_effect_on_redis(case: Case, tmp_path: Path, redis_broker: str) -> None:
    """
    Killed after the effect or before the acknowledgement, a worker leaves one charge (and doubt, if it is blind).

    Redis delivers again after the visibility time-out. Without a gate the same kill makes two charges. With a pool,
    the child that did the work is killed, and its parent delivers again.
    """
    _needs_redis_transport()
    from redis import Redis

    redis = Redis.from_url(redis_broker)

    def over(folder: Path) -> bool:
        return ended(folder) and redis.llen("celery") + redis.hlen("unacked") == 0

    def time_is_over() -> None:
        for tag in redis.zrange("unacked_index", 0, -1):
            redis.zincrby("unacked_index", -VISIBILITY, tag)  # As it would be once the visibility time-out is over.

    report = kill("celery_worker", case, tmp_path, redis_broker, over=over, killed=time_is_over)

    assert report.counted() == expected(case)


@pytest.mark.parametrize("case", [*CASES, CHILD_KILLED], ids=str)
def test_a_killed_workers_message_has_one_effect_on_rabbitmq(case: Case, tmp_path: Path) -> None:
    """The same on RabbitMQ, which delivers again as soon as the connection is gone."""
    rabbitmq.needed_rabbitmq()
    server = rabbitmq.running()

    def over(folder: Path) -> bool:
        return ended(folder) and server.messages_in(f"celery-{folder.name}") == 0

    report = kill("celery_worker", case, tmp_path, server.url(), over=over)

    assert report.counted() == expected(case)


def _needs_redis_transport() -> None:
    """Celery's and arq's newest versions want different versions of Redis's library."""
    import redis

    if redis.VERSION < (6, 1, 0):
        pytest.skip(f"NOT TESTED HERE: Celery needs redis 6.1 or later, and arq keeps {redis.__version__}")
