"""
Checks of two tenants with the same key: each has its own operation, and learns nothing of the other's.
"""

from __future__ import annotations

from statistics import median

from onceward.testing.http_suite.check_support import (
    check,
    must_run_apart,
    require,
    require_admitted,
    require_other_tenant,
)
from onceward.testing.http_suite.execution_detector import ExecutionDetector
from onceward.testing.http_suite.raw_http import TargetResponse

ROUNDS = 5
"""Requests of each kind: their median is not moved by one that was slow."""

TIMES_MAX, SECONDS_MAX = 3.0, 0.1
"""A key that another tenant has used is too slow if it is slower than a fresh one by both: coarse on purpose, since a
network adds noise of its own."""

TRIES_MAX = 3
"""A busy machine is slow by chance: only what is slower every time is believed to be."""

ALWAYS_OTHER = frozenset({"date", "content-length", "age"})


@check(
    "tenant-apart",
    sends="a request, and then the same request under the same key by another tenant",
    must="both run, and each gets its own response",
)
def tenant_apart(detector: ExecutionDetector) -> None:
    require_other_tenant(detector)
    client = detector.client
    request = client.new_request()
    tally = detector.tally()
    first = client.first(request)
    other = require_admitted(detector, client.send(request, other=True))
    must_run_apart(detector, tally, [first, other], "another tenant")


@check(
    "tenant-silent",
    sends="another tenant's requests under fresh keys, and under keys that the first tenant has used for another body",
    must="the same status and header names, and no longer wait: nobody can find out that a key is taken",
)
def tenant_silent(detector: ExecutionDetector) -> None:
    require_other_tenant(detector)
    for tries_left in reversed(range(TRIES_MAX)):
        fresh, taken = _compared(detector)
        require(
            fresh[0] == taken[0], f"a fresh key is answered {fresh[0]}, one that another tenant has used {taken[0]}"
        )
        differing = sorted(fresh[1] ^ taken[1])
        require(not differing, f"the headers tell that another tenant has used a key: {', '.join(differing)}")
        is_slower = taken[2] > fresh[2] * TIMES_MAX and taken[2] > fresh[2] + SECONDS_MAX
        if not is_slower:
            return
        what = f"a fresh key takes {fresh[2]:.2f} s, one that another tenant has used {taken[2]:.2f} s"
        require(tries_left > 0, what)


def _compared(detector: ExecutionDetector) -> list[tuple[str, frozenset[str], float]]:
    """How fresh keys look to another tenant, and how taken ones do."""
    client, clock = detector.client, detector.client.environment.monotonic
    seen: dict[bool, list[tuple[TargetResponse, float]]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for is_taken, rounds in seen.items():
            request = client.new_request()
            if is_taken:
                client.first(client.changed(request))
            began = clock()
            rounds.append((require_admitted(detector, client.send(request, other=True)), began))
    return [_looks(rounds) for rounds in (seen[False], seen[True])]


def _looks(rounds: list[tuple[TargetResponse, float]]) -> tuple[str, frozenset[str], float]:
    """Statuses, header names and the usual time of some responses."""
    statuses = sorted({str(response) for response, _ in rounds})
    names = frozenset(name.lower() for response, _ in rounds for name, _ in response.headers) - ALWAYS_OTHER
    return ", ".join(statuses), names, median(response.at - began for response, began in rounds)


CHECKS = (tenant_apart, tenant_silent)
