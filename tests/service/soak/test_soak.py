"""The soak in a small dose, and that it goes red when it should. `make soak` is the whole of it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from soak.memory import JUDGED_SECONDS, Sample, grown
from soak.processes import Memory
from soak.running import Outcome
from soak.subject import judge

ROOT = Path(__file__).resolve().parents[3]


def soaked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A soak in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "soak", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.slow
def test_clients_lose_and_double_nothing_while_everything_is_killed() -> None:
    """
    Whatever was acknowledged is there once, read from the files themselves: right after a `kill -9` under load, and
    after everything that was unknown then was asked for again. Rows, deltas, and messages through relay and receiver.
    """
    run = soaked("--seconds", "3", "--every", "1", "--clients", "12")

    assert run.returncode == 0, run.stdout + run.stderr
    assert "lost=0 doubled=0 changed=0 strange=0\nheld\n" in run.stdout


@pytest.mark.slow
def test_a_new_key_for_every_attempt_is_found_out() -> None:
    """The control: clients that make a new key when they retry double what they do, and the soak says so."""
    run = soaked("--seconds", "1", "--every", "0.4", "--clients", "8", "--keys", "new", "--only", "sql")

    assert run.returncode == 1, run.stdout + run.stderr
    assert "lost=0 doubled=0" not in run.stdout
    assert "sql at the end: doubled" in run.stdout


def test_effects_are_judged_against_what_clients_were_told() -> None:
    """Acknowledged is there once; sent may be there once; anything else is wrong, each in its own way."""
    effects = Counter({"told": 1, "unheard": 1, "twice": 2, "nobody": 1})

    verdict = judge(effects, {"told", "twice", "gone"}, {"told", "twice", "gone", "unheard", "waiting"})

    assert (verdict.lost, verdict.doubled, verdict.strange) == (["gone"], ["twice"], ["nobody"])
    assert not verdict.holds
    assert judge(Counter({"told": 1}), {"told"}, {"told", "waiting"}).holds


@pytest.mark.parametrize(
    ("parent", "workers", "flat"), [(0.0, 0.0, True), (0.5, 0.0, False), (0.0, 1.0, False), (0.02, 0.02, True)]
)
def test_memory_that_grows_is_told_from_memory_that_is_flat(*, parent: float, workers: float, flat: bool) -> None:
    """Megabytes a second, of the service or of its workers, over a minute."""
    samples = [Sample(at, Memory(60 + parent * at, 120 + workers * at)) for at in map(float, range(60))]

    found = grown(samples)

    assert found is not None
    assert found.flat is flat
    assert Outcome(acknowledged=1, kills=Counter(service=1), memory=found).holds is flat


def test_a_time_too_short_says_nothing_about_memory() -> None:
    """What a process holds in its first seconds grows, and is no leak."""
    samples = [Sample(at / 2, Memory(60 + at, 120)) for at in range(int(JUDGED_SECONDS))]

    assert grown(samples) is None


def test_a_soak_in_which_nothing_happened_does_not_hold() -> None:
    """No answer, or no kill: nothing was shown."""
    assert not Outcome(kills=Counter(service=3)).holds
    assert not Outcome(acknowledged=3).holds
    assert Outcome(acknowledged=3, kills=Counter(service=3)).holds
