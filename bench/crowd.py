"""
A thousand connections send the same key at once: one execution, everybody has its answer, and memory stays flat.

The crowd comes several times, each time with another key. The first time makes what is made once (connections,
buffers of the event loop); from then on the server's resident memory is shown before and after.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import uvloop

from bench.http_app import SLOW
from bench.http_load import Answer, Connections, request_of
from bench.http_slices import Server
from bench.interleave import progress
from bench.work import Work

STORES = ("memory", "sqlite", "postgres", "redis")
DUPLICATES = 1_000
TIMES = 6


def run(addresses: dict[str, str], folder: Path) -> dict[str, Any]:
    """Send the crowds to every store, and print."""
    print(f"\n### {DUPLICATES} concurrent duplicates of one key, {TIMES} times\n")
    print("| store | executions per key | answered alike, 201 | resident MB after each crowd |\n|---|---|---|---|")
    found = {}
    for store, address in addresses.items():
        progress(f"{DUPLICATES} duplicates on {store}")
        found[store] = one = _on(address, folder / store)
        memory = ", ".join(f"{kb / 1024:.1f}" for kb in one["resident_kb"])
        print(f"| {store} | {one['effects']} | {one['answered']} | {memory} |")
    return found


def _on(address: str, folder: Path) -> dict[str, Any]:
    server, loop, work = Server(folder, "bench.adapters.http_ours:waiting", address), uvloop.new_event_loop(), Work()
    effects, answered, memory = list[int](), list[int](), list[int]()
    try:
        connections = Connections(loop, server.port, DUPLICATES)
        for number in range(TIMES):
            before = server.state()["effects"]
            left = [request_of(work, SLOW, f"crowd-{number}")] * DUPLICATES
            answers: list[Answer] = []
            connections.run(lambda left=left: left.pop() if left else None, answers.append)  # type: ignore[misc]
            state = server.state()
            effects.append(state["effects"] - before)
            answered.append(sum(one.status == 201 and one.body == answers[0].body for one in answers))
            memory.append(state["resident_kb"])
        connections.close()
    finally:
        server.close()
        loop.close()
    return {"effects": effects, "answered": answered, "resident_kb": memory}
