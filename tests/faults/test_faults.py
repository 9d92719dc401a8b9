"""
Planted faults: each can be planted, has a test that is marked for it, and (a tenth of them, each run) turns it red.

`make faults` plants all of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import faults  # noqa: E402 - found by the line above

KNOWN = faults.load()
HANGING = {
    "a-stream-of-django-waits-for-a-reader-that-has-left",
    "doctor-import-outlives-its-time",
    "workers-go-on-when-their-block-is-thrown-away",
}
"""What these do is to hang, for half a minute and more, until a limit ends it: `make faults` has the time."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A tenth of the faults, chosen by the run's own seed, so that a red run can be repeated."""
    if "planted" in metafunc.fixturenames:
        seed = metafunc.config.getoption("randomly_seed", 0)
        metafunc.parametrize("planted", faults.a_tenth(KNOWN.keys() - HANGING, seed if isinstance(seed, int) else 0))


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """One scratch copy for all of them: what is compiled in it for one fault serves the next."""
    with faults.scratch_copy() as folder:
        yield folder


def test_every_fault_can_be_planted_and_has_a_test() -> None:
    wrong = {name: found for name, fault in KNOWN.items() if (found := faults.problems(fault))}

    assert wrong == {}


def test_every_fault_is_code_that_runs(tmp_path: Path) -> None:
    """
    A name that nobody defines any more would fail any test: that is no change of behaviour.
    """
    for name, fault in KNOWN.items():
        if fault.file.endswith(".py"):
            sound = (ROOT / fault.file).read_text(encoding="utf-8")
            (tmp_path / f"{name}.py").write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
    options = ["check", "--isolated", "--no-cache", "--select=F821,F823", "--output-format=concise"]
    looked = subprocess.run(
        [sys.executable, "-m", "ruff", *options, "."], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (looked.stdout, looked.returncode) == ("All checks passed!\n", 0)


def test_every_mark_names_a_fault() -> None:
    assert set(faults.marked()) - set(KNOWN) == set()


@pytest.mark.slow
def test_a_planted_fault_turns_its_tests_red(planted: str, copy: Path) -> None:
    if faults.missing_frameworks(planted):
        pytest.skip("in make test-agents")
    verdict = faults.judge(KNOWN[planted], copy)

    assert verdict.caught, verdict.reason
