"""A drill that is interrupted, ended or killed: what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from drill_helpers import nurseries_of, rows_of_file, scopes_at

from onceward.cli import main
from onceward.drill.bench import until

PATIENCE = 60


@pytest.fixture
def drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    """A drill in a process of its own, in the middle of a proof on a store of somebody's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    assert main(["store", "init", "--store", "sqlite:///theirs.db"]) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "onceward", "drill", "kill", "race", "kill", "--store", "sqlite:///theirs.db"],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    began = until(
        PATIENCE, lambda: process.poll() is not None or rows_of_file(Path("theirs.db"))["onceward_records"] > 3
    )

    assert began
    assert process.poll() is None, process.communicate()
    return process


@pytest.mark.slow
@pytest.mark.fault("drill-a-signal-leaves-everything")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_tidies_up_and_says_so_by_its_exit_code(
    sent: signal.Signals, drill: subprocess.Popen[bytes]
) -> None:
    """
    Ctrl-C, or a polite end: records, tables, folders and processes are gone; no traceback.
    """
    nurseries = nurseries_of(drill.pid)
    drill.send_signal(sent)
    _, errors = drill.communicate(timeout=PATIENCE)

    assert (drill.returncode, errors) == (130, b"")
    assert scopes_at("sqlite:///theirs.db") == set()
    assert [name for name in rows_of_file(Path("theirs.db")) if "drill" in name] == []
    assert list(Path("temporary").iterdir()) == []
    assert len(nurseries) == 1
    assert [pid for pid in nurseries if Path(f"/proc/{pid}").exists()] == []


@pytest.mark.slow
def test_killed_its_children_end_with_it(drill: subprocess.Popen[bytes]) -> None:
    """
    kill -9 leaves nobody time to tidy up; but no process goes on, and what is left names itself as a drill's.
    """
    nurseries = nurseries_of(drill.pid)
    drill.kill()
    drill.communicate(timeout=PATIENCE)
    gone = until(PATIENCE, lambda: not any(Path(f"/proc/{pid}").exists() for pid in nurseries))

    assert len(nurseries) == 1
    assert gone
    assert {scope.partition("-")[0] for scope in scopes_at("sqlite:///theirs.db")} <= {"test:drill"}
