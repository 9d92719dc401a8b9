"""A service whose ledger is configured, killed and started again; and what it says to who calls too often."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from service_support import Served

BASE = "/api/v1/balance"


def send(served: Served, number: int, customer: str = "cus_1") -> tuple[int, str]:
    """A delta with a reference of its own."""
    body = {"customerId": customer, "delta": -1, "reason": "call", "referenceId": f"r-{number}"}
    heard = served.call("POST", f"{BASE}/delta", body)
    return heard.status, str(heard.document.get("status"))


@pytest.mark.slow
@pytest.mark.requirement("C40", "C61")
def test_queued_deltas_are_verified_by_the_services_worker_also_after_a_kill(tmp_path: Path) -> None:
    """
    Answered as queued and counted soon after; what a killed service had queued, the next one verifies. Whoever comes
    without a token too often is told when to come again.
    """
    served = Served.started(tmp_path, "--ledger-verify", "queued", "--ledger-late", "next", "--flood-burst", "3")
    try:
        assert [send(served, number) for number in range(5)] == [(200, "queued")] * 5
        served.process.send_signal(signal.SIGKILL)
        served.stop()
        served = served.again()
        waited = threading.Event()
        for _ in range(600):
            derived = served.call("GET", f"{BASE}/derive/cus_1").document
            if not derived["queued"]:
                break
            waited.wait(0.05)
        assert (derived["balance"], derived["deltas"]) == ("-5", 5)
        assert send(served, 4) == (200, "queued"), "a replay is the first answer, whatever has become of the delta"

        heard = [served.call("GET", f"{BASE}/derive/cus_1", token="") for _ in range(5)]
        assert heard[0].status == 401
        assert (heard[-1].status, heard[-1].code) == (429, "rate_limited")
        assert int(heard[-1].headers["retry-after"]) >= 1
    finally:
        served.stop()
