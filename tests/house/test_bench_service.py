"""The service's benchmark looks at every answer and counts the rows itself. No times are judged here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ours", "hand"])
def test_the_service_does_what_is_timed(name: str, tmp_path: Path) -> None:
    """
    One row per key however often it is sent, and the same answer; every slice's rows add up, counted in the file.

    Otherwise the worker would say that it is broken, and this would raise.
    """
    from bench.interleave import Worker
    from bench.service_slices import CASES

    worker = Worker(name, sys.executable, "bench.service_slices:ServiceSlices", tmp_path, name)
    try:
        done = [worker.ask(f"slice {case} 0.05")["operations"] for case in CASES]
    finally:
        worker.quit()

    assert all(operations > 0 for operations in done)


@pytest.mark.slow
def test_a_service_that_replays_nothing_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the bare application, asked as if it kept keys, is broken."""
    from bench import service_slices
    from bench.worker import Broken

    slices = service_slices.ServiceSlices(tmp_path, "bare")
    try:
        slices.check()
        monkeypatch.setattr(slices, "_empty", True)  # Now no row may be written.

        with pytest.raises(Broken, match="rows in"):
            slices.slice("write", 0.05)
    finally:
        slices.close()


def test_the_group_itself_starts_the_service(tmp_path: Path) -> None:
    """
    As `make bench` does, in a folder that it makes: a service takes none that others can look into.
    """
    from bench.interleave import Worker

    worker = Worker("ours", sys.executable, "bench.service_slices:ServiceSlices", tmp_path / "group" / "ours", "ours")
    try:
        done = worker.ask("slice write 0.01")["operations"]
    finally:
        worker.quit()

    assert done >= 1
