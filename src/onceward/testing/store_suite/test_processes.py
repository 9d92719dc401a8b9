"""Processes: for stores that several processes can open, the race is between them too."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import Any

from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.rows import row
from onceward.testing.store_suite.store_under_test import StoreUnderTest
from onceward.testing.store_suite.subprocesses import program_arguments, start_program

PROCESSES, KEYS = 4, 50


class TestProcesses:
    """Each opens the store by its URL, or by the function that its kind names."""

    def test_each_key_has_one_winner_among_all_processes(
        self, do: Do, store: Any, scope: str, url: str, place: StoreUnderTest
    ) -> None:
        """
        Four processes claim the same fifty keys at the same time: each key is won once, and all agree by whom.
        """
        told = _raced("claim", url, scope, place)

        assert {f"k{n}": 1 for n in range(KEYS)} == dict(Counter(key for one in told for key in one["won"]))
        assert len({json.dumps(one["seen"], sort_keys=True) for one in told}) == 1
        assert told[0]["seen"] == _stands(do, store, scope)

    def test_of_changes_from_one_version_one_lands_among_all_processes(
        self, do: Do, store: Any, scope: str, url: str, place: StoreUnderTest
    ) -> None:
        """
        Four processes have read the same fifty records, and settle all of them: each is settled once, by whom all say.
        """
        for n in range(KEYS):
            do(store.put(row(scope, f"k{n}"), None))

        told = _raced("change", url, scope, place)

        assert {f"k{n}": 1 for n in range(KEYS)} == dict(Counter(key for one in told for key in one["won"]))
        assert len({json.dumps(one["seen"], sort_keys=True) for one in told}) == 1
        assert told[0]["seen"] == _stands(do, store, scope)


def _raced(what: str, url: str, scope: str, place: StoreUnderTest) -> list[dict[str, Any]]:
    """What each process says, after all have run at the same time."""
    ending = program_arguments(place)
    racing = [
        start_program("racer", url, scope, str(KEYS), f"racer {number}", what, *ending) for number in range(PROCESSES)
    ]
    try:
        _heard(racing, "ready\n")
        for _ in range(KEYS):  # All of them at the same key, each time.
            for one in racing:
                assert one.stdin is not None
                one.stdin.write("go\n")
                one.stdin.flush()
            _heard(racing, "done\n")
        return [json.loads(_line(one)) for one in racing]
    finally:
        for one in racing:
            one.kill()
            one.communicate()


def _heard(racing: list[subprocess.Popen[str]], word: str) -> None:
    for one in racing:
        assert word == _line(one)


def _line(one: subprocess.Popen[str]) -> str:
    """Never `communicate`, which does not know of what was read ahead."""
    assert one.stdout is not None
    return one.stdout.readline()


def _stands(do: Do, store: Any, scope: str) -> dict[str, str]:
    return {f"k{n}": do(store.load(row(scope, f"k{n}").id)).version.hex() for n in range(KEYS)}
