"""When the thread behind a queue works, and when it rests."""

from __future__ import annotations

import threading

import pytest

from onceward.runtime.background_queue import BackgroundQueue
from onceward.runtime.environment import Environment

PATIENCE_SECONDS = 60.0
NEVER_SECONDS = 3_600.0


class Paced(Environment):
    """Waits for company until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.rests = threading.Semaphore(0)
        self.goes_on = threading.Semaphore(0)

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Say that it rests, and do so."""
        self.rests.release()
        assert self.goes_on.acquire(timeout=PATIENCE_SECONDS)


class Loaded:
    """A queue into which something comes while each of its first batches is done."""

    def __init__(self, environment: Environment, *, comes: int, batch: int, wait_seconds: float = 0.0) -> None:
        self.batches: list[list[int]] = []
        self._comes = comes
        self.queue = BackgroundQueue(
            self.work, environment, "test-queue", queue_max=100, batch=batch, wait_seconds=wait_seconds
        )

    def work(self, things: list[int]) -> None:
        """A batch."""
        self.batches.append(things)
        if len(self.batches) < 4:
            self.queue.put([len(self.batches)] * self._comes)


@pytest.mark.fault("a-background-queue-never-rests")
def test_what_comes_in_during_a_batch_waits_for_company() -> None:
    """
    Under load something always has come in: otherwise its thread would never rest, and make many small batches.
    """
    environment = Paced()
    loaded = Loaded(environment, comes=1, batch=2)
    loaded.queue.put([0])
    assert environment.rests.acquire(timeout=PATIENCE_SECONDS)
    environment.goes_on.release()
    assert environment.rests.acquire(timeout=PATIENCE_SECONDS)
    found = list(loaded.batches)
    environment.goes_on.release(10)
    loaded.queue.close()

    assert found == [[0]]
    assert loaded.batches[:2] == [[0], [1]]


@pytest.mark.fault("a-background-queue-rests-too-soon")
def test_a_whole_batch_is_done_at_once() -> None:
    """
    No company is needed any more.
    """
    environment = Paced()
    loaded = Loaded(environment, comes=2, batch=2)
    loaded.queue.put([0])
    assert environment.rests.acquire(timeout=PATIENCE_SECONDS)
    environment.goes_on.release()
    assert environment.rests.acquire(timeout=PATIENCE_SECONDS)
    found = list(loaded.batches)
    environment.goes_on.release(10)
    loaded.queue.close()

    assert found == [[0], [1, 1], [2, 2], [3, 3]]


def test_who_waits_for_all_of_it_is_not_kept_waiting() -> None:
    """
    Also for what comes in meanwhile; how long a thing would wait for company does not matter.
    """
    loaded = Loaded(Environment(), comes=1, batch=50, wait_seconds=NEVER_SECONDS)
    loaded.queue.put([0])
    loaded.queue.flush()
    found = list(loaded.batches)
    loaded.queue.close()

    assert found == [[0], [1], [2], [3]]
