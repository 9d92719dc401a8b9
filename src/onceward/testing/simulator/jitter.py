"""
Brooker's contention model: N clients, one row under optimistic concurrency, and the back-off between their attempts.

A client reads the row's version, writes with it, and starts over if somebody else wrote in between. What is counted is
how many writes all of them needed, and how long it took until the last one was through. The network takes
|Normal(10, 2)| ms each way; the back-off starts at 5 ms (its first ceiling is 10) and is capped at 2 s.
"""

from __future__ import annotations

import heapq
import math

from onceward._core.backoff import Backoff, Jitter
from onceward.runtime.environment import SeededRandom
from onceward.testing.simulator.report import (
    Progress,
    ReportPlot,
    ReportTable,
    SimulationFinding,
    SimulationReport,
    ignore_progress,
)

CLIENTS = (10, 20, 30, 40, 50, 70, 100, 130, 150, 190)
RACERS = 4_000
"""Clients per figure, over all races: small crowds scatter more, and cost less."""

_NAMED: tuple[tuple[str, Jitter | None], ...] = (
    ("no back-off", None),
    ("exponential", "none"),
    ("equal jitter", "equal"),
    ("full jitter", "full"),
    ("decorrelated", "decorrelated"),
)
_BASE, _CAP = 0.005, 2.0
_MEAN, _DEVIATION = 0.010, 0.002
_THERE_AND_BACK = (2 * _MEAN, math.sqrt(2) * _DEVIATION)
"""Two ways in a row, drawn at once."""


def contend(clients: int, jitter: Jitter | None, dice: SeededRandom) -> tuple[float, int]:
    """One race of so many clients: seconds until the last was through, and how many writes were tried."""
    backoff = Backoff(_BASE, _CAP, jitter, reason="the control of the experiment") if jitter is not None else None
    waits, failures = [0.0] * clients, [0] * clients
    version = writes = 0
    ended = 0.0
    gauss, push, pop = dice.gauss, heapq.heappush, heapq.heappop
    # (time, client, version read): -1 is a read arriving at the server, anything else a write.
    events = [(abs(gauss(_MEAN, _DEVIATION)), client, -1) for client in range(clients)]
    heapq.heapify(events)
    while events:
        now, client, read = pop(events)
        if read == -1:
            push(events, (now + abs(gauss(*_THERE_AND_BACK)), client, version))
            continue
        writes += 1
        if read == version:
            version += 1
            ended = max(ended, now + abs(gauss(_MEAN, _DEVIATION)))
            continue
        failures[client] += 1
        if backoff is not None:
            waits[client] = backoff.wait(failures[client], dice.random(), waits[client])
        push(events, (now + abs(gauss(*_THERE_AND_BACK)) + waits[client], client, -1))
    return ended, writes


def simulate_jitter(
    seed: int = 1, *, racers: int = RACERS, clients: tuple[int, ...] = CLIENTS, progress: Progress = ignore_progress
) -> SimulationReport:
    """Every back-off at every number of clients, averaged over as many races as `racers` clients make."""
    dice = SeededRandom(seed)
    average: dict[tuple[int, str], tuple[float, float]] = {}
    for done, count in enumerate(clients):
        progress(done, len(clients))
        runs = max(1, racers // count)
        for name, jitter in _NAMED:
            races = [contend(count, jitter, dice) for _ in range(runs)]
            average[count, name] = (
                1000 * sum(seconds for seconds, _ in races) / runs,
                sum(writes for _, writes in races) / runs,
            )
    return SimulationReport(
        "jitter",
        "races of N clients for one row, after M. Brooker's simulator (2015)",
        seed,
        [_table(clients, average, 0), _table(clients, average, 1)],
        [_plot(clients, average, 1, "writes until all are through"), _plot(clients, average, 0, "milliseconds")],
        _findings(clients[-1], average),
    )


def _table(clients: tuple[int, ...], average: dict[tuple[int, str], tuple[float, float]], which: int) -> ReportTable:
    rows: list[tuple[str | int | float, ...]] = [
        (count, *(round(average[count, name][which]) for name, _ in _NAMED)) for count in clients
    ]
    title = "writes that were tried" if which else "milliseconds until the last client is through"
    return ReportTable(title, ("clients", *(name for name, _ in _NAMED)), rows)


def _plot(
    clients: tuple[int, ...], average: dict[tuple[int, str], tuple[float, float]], which: int, y: str
) -> ReportPlot:
    lines = [(name, [(float(count), average[count, name][which]) for count in clients]) for name, _ in _NAMED]
    title = "Writes" if which else "Time until the last client is through"
    return ReportPlot(title, "clients", y, lines, logarithmic=not which)


def _findings(most: int, average: dict[tuple[int, str], tuple[float, float]]) -> list[SimulationFinding]:
    (_, none), (slowest, _), (quick, full), (slower, _) = (
        average[most, name] for name in ("no back-off", "exponential", "full jitter", "equal jitter")
    )
    return [
        SimulationFinding(
            f"full jitter needs less than half the writes of no back-off at {most} clients", full < none / 2
        ),
        SimulationFinding(
            f"exponential back-off without jitter takes over 5 times as long at {most} clients", slowest > 5 * quick
        ),
        SimulationFinding(f"full jitter takes less time than equal jitter at {most} clients", quick < slower),
    ]
