"""Consumers of plain RabbitMQ, killed with SIGKILL over a message; real processes, a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from queue_kills import CASES, Case, ended, expected, kill

pytest.importorskip("pika", reason="in make test-agents")

from servers import rabbitmq

rabbitmq.needed_rabbitmq()

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_killed_consumers_message_has_one_effect(case: Case, tmp_path: Path) -> None:
    """
    Killed after the effect or before the acknowledgement, a consumer leaves one charge (and doubt, if it is blind).

    Without a gate the same kill makes two charges.
    """
    server = rabbitmq.running()
    report = kill("rabbitmq_worker", case, tmp_path, server.url(), over=ended)

    assert report.counted() == expected(case)
    assert server.messages_in(f"orders-{tmp_path.name}") == 0
