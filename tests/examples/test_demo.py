"""The demo keeps the promise with the gate, and shows what happens without it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
SECONDS_MAX = 150


def run(gate: str, folder: Path) -> tuple[int, str]:
    """Run the demo with its temporary files in a folder; its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(DEMO), "--gate", gate],
        cwd=folder,
        env={"PATH": "", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def charges(printed: str) -> int:
    """How many charges the bank counted."""
    found = re.search(r"(\d+) sends  ->  \d+ requests to the bank  ->  (\d+) charges?", printed)
    assert found is not None, printed
    assert int(found[1]) == 31
    return int(found[2])


@pytest.mark.slow
@pytest.mark.requirement("D02")
def test_with_the_gate_there_is_one_charge_although_a_sender_is_killed(tmp_path: Path) -> None:
    """
    Thirty-one sends by seven processes, one killed between its effect and its record: one charge, equal answers.
    """
    code, printed = run("on", tmp_path)

    assert charges(printed) == 1, printed
    assert "equal answers" in printed
    assert "ONE EXPENSE AND ONE MAIL A LINE" in printed
    assert "ONE CHARGE, ONE MAIL, ONE ROW" in printed
    assert code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_without_the_gate_there_are_duplicates_and_the_demo_fails_loudly(tmp_path: Path) -> None:
    """
    The negative control: the same senders without the gate charge many times, and the exit code says so.
    """
    code, printed = run("off", tmp_path)

    assert charges(printed) > 1
    assert "CHARGES FOR ONE ORDER" in printed
    assert "15 EXPENSES AND 15 MAILS FOR 6 LINES" in printed
    assert code == 1
    assert list(tmp_path.iterdir()) == []
