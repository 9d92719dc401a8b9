"""
The doctor on the project's own examples.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examining import HERE

from onceward.cli import main

ROOT = HERE.parents[1]
CONFIG = HERE / "examples.toml"


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with what an example left in it."""
    file = tmp_path / "expenses.db"
    subprocess.run(
        [sys.executable, str(ROOT / "examples/expenses.py"), str(file)], check=True, capture_output=True, timeout=120
    )
    return f"sqlite:///{file}"


def test_our_own_examples_leave_no_box_empty(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Evidence for what applies; one statement, about what nobody can see; and the rest does not occur in them.
    """
    monkeypatch.chdir(ROOT)

    code = main(["doctor", "--path", "examples", "--config", str(CONFIG), "--store", store])

    out, _ = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("[")][:-1]
    assert [line for line in lines if line.startswith(("[ ]", "[?]"))] == []
    assert code == 0
    assert sum(line.startswith("[x]") for line in lines) >= 18
    assert [line for line in lines if line.startswith("[s]")] == [
        line for line in lines if "Full jitter added" in line and "stated in pyproject.toml" in line
    ]


def test_each_key_of_the_examples_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    That a stranger understands.
    """
    monkeypatch.chdir(ROOT)

    code = main(["doctor", "keys", "--path", "examples"])

    found: Any = capsys.readouterr()
    lines = found.out.splitlines()
    assert code == 0
    assert (
        "charge: one key per order_id, in the scope 'test:shop'; the result is kept 24 hours, and for 30 days after "
        "that a retry is refused; the same key with another amount is refused; after a crash it is sent again under "
        "the same key."
    ) in lines
    assert all(line.endswith(".") and line.count(": ") >= 1 for line in lines)
    assert len(lines) >= 10
