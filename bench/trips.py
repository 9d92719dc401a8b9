"""
What an operation asks of a server: statements by the server's own count, round trips by a proxy's.

A worker of its own talks through a proxy. A piece that the proxy passes on from a client is a round trip, because each
caller here waits for its answer before it sends the next piece; with many callers it is a piece that was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.adapters import Known
from bench.comparing import PLACE, arguments_of, python_of
from bench.interleave import Worker, WorkerFailed, progress
from bench.servers import Proxy

CASES = {
    "fresh_seq": 100,
    "replay_seq": 100,
    "fresh_thr": 200,
    "replay_thr": 200,
    "fresh_task": 500,
    "replay_task": 500,
}
"""Operations per case: many enough that a gate's own purge, once in fifty runs, shows."""


class Server(Protocol):
    """A server that counts."""

    port: int

    def address(self, name: str, port: int | None = None) -> str:
        """An adapter's own part of it."""

    def counted(self, name: str) -> int:
        """What it has carried out for an adapter so far."""


class Asked(NamedTuple):
    """Per operation."""

    statements: float
    trips: float


def count(
    server: Server,
    known: Mapping[str, Known],
    folder: Path,
    what: str,
    cases: Mapping[str, int] = CASES,
    place: str = PLACE,
) -> dict[str, dict[str, Asked]]:
    """Count and print, adapter by adapter."""
    print(f"\n### {what} / round trips per operation\n")
    print(f"| | {' | '.join(cases)} |\n|---|{'---|' * len(cases)}")
    counts: dict[str, dict[str, Asked]] = {}
    for name, one in known.items():
        progress(f"counting what {one.label} asks for")
        try:
            counts[name] = _count_one(server, name, one, folder / f"{name}-counted", cases, place)
        except (WorkerFailed, OSError) as error:
            print(f"| {one.label} | could not be counted: {error} |")
            continue
        asked = [counts[name].get(case) for case in cases]
        print(f"| {one.label} | {' | '.join('-' if a is None else f'{a[0]:.2f} / {a[1]:.2f}' for a in asked)} |")
    return counts


def _count_one(
    server: Server, name: str, one: Known, folder: Path, cases: Mapping[str, int], place: str
) -> dict[str, Asked]:
    part = f"{name}-counted"
    with Proxy(server.port) as proxy:
        where = server.address(part, proxy.port)
        worker = Worker(name, python_of(one), place, folder, *arguments_of(one), where)
        counts = {}
        try:
            for case in (case for case in cases if case in one.cases):
                worker.ask(f"count {case} {cases[case] // 5}")  # Connections, preparing, plans: not part of it.
                before = server.counted(part), proxy.requests
                done = worker.ask(f"count {case} {cases[case]}")["operations"]
                after = server.counted(part), proxy.requests
                counts[case] = Asked((after[0] - before[0]) / done, (after[1] - before[1]) / done)
        finally:
            worker.quit()
    return counts
