"""What is done about a test that failed in a full run (`tools/second_look.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNSTEADY = """
from pathlib import Path

def test_the_first_time_it_fails():
    runs = Path("runs")
    count = int(runs.read_text()) if runs.exists() else 0
    runs.write_text(str(count + 1))
    assert count not in FAILS
"""
PROOF = """
def test_a_promise(record_property):
    record_property("requirement", "A01")
    assert not __import__("pathlib").Path("runs").exists()
"""
MANY = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_one_of_many(number):
    assert False
"""


def full_run(folder: Path, text: str) -> int:
    """A run of tests that notes what failed, as ours does; its exit code."""
    (folder / "test_them.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "failed_tests", "test_them.py"]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, check=False).returncode


def second_look(folder: Path) -> tuple[int, str]:
    """How the second look ended, and what it said."""
    command = [sys.executable, str(ROOT / "tools" / "second_look.py")]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def environment() -> dict[str, str]:
    """Without the plug-ins that are installed: to import them takes far longer than these runs do."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def test_what_passes_three_times_alone_is_named_and_forgiven(tmp_path: Path) -> None:
    """
    The run passes, and its last line is the name of what to mend.
    """
    first = full_run(tmp_path, f"FAILS = (0,)\n{UNSTEADY}")
    code, said = second_look(tmp_path)

    assert (first, code, (tmp_path / "runs").read_text()) == (1, 0, "4")
    assert said.splitlines()[-2:] == [
        "UNSTEADY, to be mended: failed in the full run, passed 3 times alone:",
        "  test_them.py::test_the_first_time_it_fails",
    ]


@pytest.mark.fault("second-look-once-is-enough")
@pytest.mark.parametrize("again", [1, 2, 3])
def test_what_fails_again_is_red(tmp_path: Path, again: int) -> None:
    """
    At whichever of the three times.
    """
    full_run(tmp_path, f"FAILS = (0, {again})\n{UNSTEADY}")

    assert second_look(tmp_path)[0] == 1


@pytest.mark.fault("second-look-forgives-a-broken-promise")
def test_a_promise_gets_no_second_look(tmp_path: Path) -> None:
    """
    A test that proves a requirement, and would pass alone: the run stays red.
    """
    (tmp_path / "runs").write_text("0")
    full_run(tmp_path, PROOF)
    (tmp_path / "runs").unlink()

    assert second_look(tmp_path) == (1, "no second look: it proves a requirement: test_them.py::test_a_promise\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [(MANY, "4 tests failed, more than 3"), ("def test_fine():\n    pass\n", "the run left no list of failed tests")],
    ids=["many", "none"],
)
def test_a_run_that_is_broken_in_another_way_is_red(tmp_path: Path, text: str, said: str) -> None:
    """
    Many failures are no chance, and an exit code without a failed test is something else.
    """
    full_run(tmp_path, text)

    assert second_look(tmp_path) == (1, f"no second look: {said}\n")
