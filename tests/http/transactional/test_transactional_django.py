"""Django's views that settle inside their own transaction, plain and async."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("django_orders.py")


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_key_and_rows_commit_together_or_not_at_all(colour: str, tmp_path: Path) -> None:
    """
    Settled and committed: that is the answer, and its replay. Raised or undone: no row, and the key may be used again.
    """
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(tmp_path), colour]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    answers = told["answers"]

    assert answers["well"] == [[201, '{"order":"well"}', None], [201, '{"order":"well"}', "true"]]
    assert [status for status, _, _ in answers["raise"]] == [500, 500]
    assert answers["undo"] == [[409, '{"said": "by the view"}', None]] * 2
    assert told["rows"] == 1
