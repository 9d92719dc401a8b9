"""How long a sender waits for its 200 while every handler sleeps: the 99th percentile, against bare applications."""

from __future__ import annotations

import http.client
import itertools
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.inbox import RECEIVED, SECRET, SLEEP_SECONDS, SLEEPERS
from bench.interleave import ROOT
from bench.report import Aim, aims_as_json, print_aims
from bench.settings import Settings
from onceward.messaging.webhooks import PacSpace

LABELS = {"bare": "bare application", "hand": "a durable insert by hand, unverified", "ours": "the inbox"}
DELIVERIES = 200
"""Of one slice, one after the other: the 99th percentile is the third slowest."""
BODY = b'{"type": "delta.verified", "data": {"customer": "c-17", "delta": "12.50"}}'
REFERENCES = ("bare", "hand")
AIM = Aim("p99", "ours", 2, "answer time (p99) of a durable insert by hand's", at_most=True)

_numbers = itertools.count()


class _Server:
    """One application in a process of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "bench.http_server", f"bench.inbox:{name}", str(folder), ""]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._connection = http.client.HTTPConnection(
            f"127.0.0.1:{self._process.stdout.readline().strip()}", timeout=SLEEP_SECONDS * 6
        )

    def slice(self, deliveries: int) -> list[float]:
        """Seconds that each answer took."""
        took = []
        for _ in range(deliveries):
            id = f"evt_{next(_numbers)}"
            body = BODY.replace(b"{", b'{"event": "%s", ' % id.encode(), 1)  # Equal bodies would be one event.
            headers = PacSpace().sign(id, body, [SECRET], now=time.time())
            began = time.perf_counter()
            self._connection.request("POST", "/hooks/pac", body, headers)
            answer = self._connection.getresponse().read()
            took.append(time.perf_counter() - began)
            if answer != RECEIVED:
                raise RuntimeError(f"not an answer: {answer[:200]!r}")
        return sorted(took)

    def close(self) -> None:
        """End it."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print(
        f"\n## inbox: answers while {SLEEPERS} handlers sleep {SLEEP_SECONDS:g} s each; {DELIVERIES} deliveries a slice"
    )
    servers = {name: _Server(name, folder / name) for name in LABELS}
    dice = random.Random(settings.seed)
    rounds: list[dict[str, dict[str, float]]] = []
    try:
        for server in servers.values():
            server.slice(SLEEPERS * 2)  # Warm, and every handler asleep.
        for _ in range(settings.rounds):
            order = dice.sample(list(servers), len(servers))
            slices = {name: servers[name].slice(DELIVERIES) for name in order}
            rounds.append({name: _percentiles(one) for name, one in slices.items()})
    finally:
        for server in servers.values():
            server.close()
    print(f"\n{'':40}{'p50 ms':>9}{'p99 ms':>9}   p99, of the bare / of the insert by hand (median of the rounds)")
    ratios = {
        name: {other: statistics.median(one[name]["p99"] / one[other]["p99"] for one in rounds) for other in REFERENCES}
        for name in LABELS
    }
    times = {
        name: {which: 1000 * statistics.median(one[name][which] for one in rounds) for which in ("p50", "p99")}
        for name in LABELS
    }
    for name, label in LABELS.items():
        shown = f"{times[name]['p50']:9.2f}{times[name]['p99']:9.2f}"
        print(f"{label:40}{shown}   {ratios[name]['bare']:.1f} / {ratios[name]['hand']:.2f}")
    aims = [(AIM, ratios["ours"]["hand"])]
    print_aims(aims)
    kept = {"ratios": ratios, "times_ms": times, "labels": LABELS, "aims": aims_as_json(aims)}
    return {"rounds": rounds, **kept, "broken": {}}


def _percentiles(took: list[float]) -> dict[str, float]:
    """Of sorted times."""
    return {"p50": took[len(took) // 2], "p99": took[-1 - len(took) // 100]}
