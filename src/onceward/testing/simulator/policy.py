"""
Brooker's retry-policy model: how much a policy gains, and what it costs the server, by how often calls fail.

Clients call at random moments, the server fails each call with the same chance, and nothing queues. So what a policy
does is laid bare: the share of calls that succeed in the end, and the load on the server per call that was wanted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple, Protocol

from onceward._core.circuit import BreakerRefusal, BreakerRule, Circuit
from onceward._core.token_bucket import BudgetRule, TokenBucket
from onceward.runtime.environment import SeededRandom
from onceward.testing.simulator.report import (
    Progress,
    ReportPlot,
    ReportTable,
    SimulationFinding,
    SimulationReport,
    ignore_progress,
)

RATES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.75)
RETRIES = 3
SECONDS = 10.0
_TRIP = 0.010
"""Seconds, on average, to the server and back (each way)."""

ADAPTIVE = BudgetRule(capacity=5, deposit=0.1, floor=1, every_call=True)
"""One token per retry, a tenth per call, at most five; a retry needs more than one."""
BREAKER = BreakerRule(rate=0.1, window=60, calls_min=1, recovery=5)


class SimulatedPolicy(Protocol):
    """Who decides about retries; one per client, or one for all of them."""

    def succeeded(self, now: float, retried: int) -> None:
        """A call ended well, after so many retries."""

    def retries(self, now: float, retried: int) -> bool:
        """An attempt failed, after so many retries: whether there is another."""


class FixedRetries:
    """Up to so many retries, come what may."""

    def __init__(self, most: int) -> None:
        self._most = most

    def succeeded(self, now: float, retried: int) -> None:
        """See `SimulatedPolicy`."""

    def retries(self, now: float, retried: int) -> bool:
        """See `SimulatedPolicy`."""
        return retried < self._most


class BudgetPolicy:
    """As many retries as the bucket pays for."""

    def __init__(self, rule: BudgetRule = ADAPTIVE) -> None:
        self._bucket = TokenBucket(rule)

    def succeeded(self, now: float, retried: int) -> None:
        """See `SimulatedPolicy`."""
        self._bucket.succeeded(now, None if retried == 0 else self._bucket.rule.cost)

    def retries(self, now: float, retried: int) -> bool:
        """See `SimulatedPolicy`."""
        self._bucket.failed(now, first=retried == 0)
        return self._bucket.withdraw(now) is not None


class BreakerPolicy:
    """Up to three retries while the circuit lets them through; first attempts always go out."""

    def __init__(self) -> None:
        self._circuit = Circuit(BREAKER)

    def succeeded(self, now: float, retried: int) -> None:
        """See `SimulatedPolicy`."""
        self._circuit.succeeded(self._circuit.serial, now)

    def retries(self, now: float, retried: int) -> bool:
        """See `SimulatedPolicy`."""
        self._circuit.failed(self._circuit.serial, now)
        return retried < RETRIES and not isinstance(self._circuit.admit(now), BreakerRefusal)


class PolicyResult(NamedTuple):
    """What became of the calls."""

    success: float
    load: float


def simulate_calls(
    rate: float,
    clients: int,
    per_client: float,
    policy: Callable[[], SimulatedPolicy],
    dice: SeededRandom,
    *,
    shared: bool = False,
) -> PolicyResult:
    """Clients that call at random for a while, with a policy each (or one between them all)."""
    one = policy()
    policies = [one if shared else policy() for _ in range(clients)]
    calls = attempts = successes = 0
    serial = 0
    # (time, serial, client, retries so far): -1 is a new call being made.
    events = [(dice.expovariate(1 / _TRIP), client, client, -1) for client in range(clients)]
    heapq.heapify(events)
    serial = clients
    while events:
        now, _, client, retried = heapq.heappop(events)
        serial += 2
        if retried == -1:
            if now > SECONDS:
                continue
            calls += 1
            heapq.heappush(events, (now + dice.expovariate(per_client), serial, client, -1))
            heapq.heappush(events, (now + _there_and_back(dice), serial + 1, client, 0))
            continue
        attempts += 1
        if dice.random() > rate:
            successes += 1
            policies[client].succeeded(now, retried)
        elif policies[client].retries(now, retried):
            heapq.heappush(events, (now + _there_and_back(dice), serial, client, retried + 1))
    return PolicyResult(successes / calls, attempts / calls)


POLICIES: tuple[tuple[str, Callable[[], SimulatedPolicy]], ...] = (
    ("no retry", lambda: FixedRetries(0)),
    ("3 retries", lambda: FixedRetries(RETRIES)),
    ("budget of 10 %", BudgetPolicy),
    ("retry breaker at 10 %", BreakerPolicy),
)
CLIENTS = (10, 100, 1000)
CLIENT_RATES = (0.2, 0.5)


def simulate_policy(seed: int = 1, *, progress: Progress = ignore_progress) -> SimulationReport:
    """Every policy at every failure rate; and what becomes of a budget when there are many clients."""
    dice = SeededRandom(seed)
    parts = len(RATES) + len(CLIENT_RATES)
    found: dict[tuple[float, str], PolicyResult] = {}
    for done, rate in enumerate(RATES):
        progress(done, parts)
        for name, policy in POLICIES:
            found[rate, name] = simulate_calls(rate, 100, 10.0, policy, dice)
    crowd: dict[tuple[float, int, bool], PolicyResult] = {}
    for done, rate in enumerate(CLIENT_RATES):
        progress(len(RATES) + done, parts)
        for clients in CLIENTS:
            for shared in (False, True):
                crowd[rate, clients, shared] = simulate_calls(
                    rate, clients, 100.0 / clients, BudgetPolicy, dice, shared=shared
                )
    return SimulationReport(
        "policy",
        "what retrying gains and what it costs the server, after M. Brooker's simulator (2022)",
        seed,
        [
            _by_rate(found, "success", "share of calls that succeed in the end"),
            _by_rate(found, "load", "load on the server, per call wanted"),
            _by_clients(crowd),
        ],
        [_plot(found, "success"), _plot(found, "load")],
        _findings(found, crowd),
    )


def _there_and_back(dice: SeededRandom) -> float:
    return dice.expovariate(1 / _TRIP) + dice.expovariate(1 / _TRIP)


def _by_rate(found: dict[tuple[float, str], PolicyResult], what: str, title: str) -> ReportTable:
    rows: list[tuple[str | int | float, ...]] = [
        (rate, *(round(float(getattr(found[rate, name], what)), 3) for name, _ in POLICIES)) for rate in RATES
    ]
    return ReportTable(title, ("failure rate", *(name for name, _ in POLICIES)), rows)


def _by_clients(crowd: dict[tuple[float, int, bool], PolicyResult]) -> ReportTable:
    rows: list[tuple[str | int | float, ...]] = [
        (rate, clients, *(round(crowd[rate, clients, shared].load, 2) for shared in (False, True)))
        for rate in CLIENT_RATES
        for clients in CLIENTS
    ]
    headings = ("failure rate", "clients", "load, a budget each", "load, one shared budget")
    return ReportTable(
        "the same budget at 100 calls a second in all: one per client, and one for everybody", headings, rows
    )


def _plot(found: dict[tuple[float, str], PolicyResult], what: str) -> ReportPlot:
    lines = [(name, [(rate, float(getattr(found[rate, name], what))) for rate in RATES]) for name, _ in POLICIES]
    title = "Calls that succeed in the end" if what == "success" else "Load on the server, per call wanted"
    return ReportPlot(title, "share of attempts that fail", what, lines)


def _findings(
    found: dict[tuple[float, str], PolicyResult], crowd: dict[tuple[float, int, bool], PolicyResult]
) -> list[SimulationFinding]:
    half = found[0.5, "3 retries"]
    return [
        SimulationFinding(
            "three retries at 50 % failure: load 1 + p + p² + p³ = 1.875, within 3 %", abs(half.load / 1.875 - 1) < 0.03
        ),
        SimulationFinding(
            "a budget of 10 % never adds more than 15 % of load", found[0.75, "budget of 10 %"].load <= 1.15
        ),
        SimulationFinding(
            "a budget per client fails to limit 1,000 clients, and a shared budget limits them",
            crowd[0.5, 1000, False].load > 1.5 and crowd[0.5, 1000, True].load < 1.15,
        ),
    ]
