"""Processes: for stores that several processes can open, the race is between them too."""

# ruff: noqa: SIM300 - `assert expected == actual`, also where the expected value is a constant

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

from onceward.testing.conformance.fixtures import Do
from onceward.testing.conformance.rows import row

PROCESSES, KEYS = 4, 50
SECONDS_MAX = 60


class TestProcesses:
    """Each opens the store by its URL."""

    def test_each_key_has_one_winner_among_all_processes(self, do: Do, store: Any, scope: str, url: str) -> None:
        """
        Four processes claim the same fifty keys at the same time: each key is won once, and all agree by whom.
        """
        racing = [_start(url, scope, number) for number in range(PROCESSES)]
        for one in racing:
            assert one.stdout is not None
            assert "ready\n" == one.stdout.readline()
        for one in racing:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        told = [json.loads(one.communicate(timeout=SECONDS_MAX)[0]) for one in racing]

        won = Counter(key for one in told for key in one["won"])
        assert {f"k{n}": 1 for n in range(KEYS)} == dict(won)
        assert 1 == len({json.dumps(one["seen"], sort_keys=True) for one in told})
        assert told[0]["seen"] == {f"k{n}": do(store.load(row(scope, f"k{n}").id)).operation for n in range(KEYS)}


def _start(url: str, scope: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onceward.testing.racer", url, scope, str(KEYS), f"racer {number}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
