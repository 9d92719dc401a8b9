"""
Planted faults: each can be planted, has a test that is marked for it, and (one of ninety, each run) turns it red.

`make faults` plants all of them.
"""

from __future__ import annotations

import re
import shutil
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
    "the-answer-waits-for-the-handler",
    "workers-go-on-when-their-block-is-thrown-away",
}
"""What these do is to hang, for half a minute and more, until a limit ends it: `make faults` has the time."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some of the faults, chosen by the run's own seed, so that a red run can be repeated."""
    if "planted" in metafunc.fixturenames:
        seed = metafunc.config.getoption("randomly_seed", 0)
        metafunc.parametrize("planted", faults.a_sample(KNOWN.keys() - HANGING, seed if isinstance(seed, int) else 0))


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
    if absent := faults.missing_programs(KNOWN[planted]):
        pytest.skip(f"NOT TESTED HERE: no {' and no '.join(absent)} on this machine")
    verdict = faults.judge(KNOWN[planted], copy)

    assert verdict.caught, verdict.reason


THING = "def half(number):\n    return number / 2\n"
ITS_TESTS = """
import pytest
from thing import half

@planted("it-doubles")
def test_four_is_halved():
    assert half(4) == 2

@planted("it-is-off-by-one", "nobody-asks")
def test_eight_is_halved():
    assert half(8) == 4

@planted("it-is-off-by-one")
@pytest.mark.parametrize("number", [6, 8])
def test_that_is_out_of_date(number):
    assert half(number) == 4
""".replace("@planted", "@pytest.mark.fault")
ITS_FAULTS = {"it-doubles": "number * 2", "it-is-off-by-one": "number / 2 + 1", "nobody-asks": "number / 2 + 0"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Another project with the tool: one function, a test that is red in any case, and three faults."""
    texts = {"src/thing.py": THING, "tests/test_thing.py": ITS_TESTS}
    texts["tests/faults/thing.toml"] = "\n".join(
        f'[{name}]\nids = ["A01"]\nfile = "src/thing.py"\nold = "number / 2"\nnew = "{new}"\n'
        for name, new in ITS_FAULTS.items()
    )
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "tools").mkdir()
    shutil.copyfile(ROOT / "tools" / "faults.py", tmp_path / "tools" / "faults.py")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def tried(project: Path, *names: str) -> tuple[int, dict[str, str]]:
    """The exit code, and what is said of each fault."""
    command = [sys.executable, "tools/faults.py", *names]
    ran = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)
    return ran.returncode, dict(re.findall(r"^\[\d/\d\] \w+  ([\w-]+): (.*)$", ran.stdout, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.fault("a-test-that-fails-anyway-catches-a-fault")
def test_a_test_that_is_red_without_the_fault_catches_nothing(project: Path) -> None:
    """
    It is named, although another test of that fault goes red as it should; the other faults are judged as ever.
    """
    code, said = tried(project)

    assert code == 1
    assert said == {
        "it-doubles": "1 test red",
        "it-is-off-by-one": "without the fault these fail, too: "
        "tests/test_thing.py::test_that_is_out_of_date (passed, red)",
        "nobody-asks": "tests/test_thing.py::test_eight_is_halved did not fail by its own assertion (passed)",
    }
    assert tried(project, "it-doubles") == (0, {"it-doubles": "1 test red"})
