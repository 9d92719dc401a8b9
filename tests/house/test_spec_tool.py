"""The tool behind `make spec` tells the truth about a small project planted for it."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """
[tool.pytest.ini_options]
addopts = ["--strict-markers"]
markers = ["requirement(*ids): what a test proves"]
"""
TESTS = """
import pytest

@pytest.mark.requirement("A01", "A02")
def test_passes():
    pass

@pytest.mark.requirement("A02")
def test_fails():
    assert False

@pytest.mark.requirement("A03")
@pytest.mark.skip(reason="not today")
def test_is_skipped():
    pass

@pytest.mark.requirement("A04")
@pytest.mark.xfail(strict=False)
def test_is_expected_to_fail():
    assert False

@pytest.mark.requirement("A05")
@pytest.mark.xfail(strict=False)
def test_passes_although_expected_to_fail():
    pass

@pytest.fixture
def broken_ending():
    yield
    raise RuntimeError

@pytest.mark.requirement("A06")
def test_fails_while_cleaning_up(broken_ending):
    pass

@pytest.mark.requirement("B01")
@pytest.mark.parametrize("case", [1, 2])
def test_passes_twice(case):
    pass

@pytest.mark.requirement("C01")
class TestClass:
    @pytest.mark.requirement("E40")
    def test_inside_a_class(self):
        pass

def test_without_a_mark_is_not_run():
    assert False
"""
GREEN = """
import pytest

@pytest.mark.requirement("A01")
def test_passes():
    pass
"""
UNKNOWN = """
import pytest

@pytest.mark.requirement("A01", "A41")
def test_with_an_unknown_number():
    pass
"""

Spec = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the real list and the real hooks, and no tests yet."""
    hooks = (
        "tests/conftest.py",
        "tests/dose.py",
        "tests/failed_tests.py",
        "tests/timing.py",
        "tests/servers/__init__.py",
        "tests/servers/ending.py",
    )
    for name in ("docs/reference/requirements.md", *hooks):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    return tmp_path


@pytest.fixture
def spec(project: Path) -> Spec:
    """Run the tool on that project."""

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        # The planted project needs none of the plugins that are installed for ours, and importing them takes seconds.
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
        command = [sys.executable, str(ROOT / "tools" / "spec.py"), "--root", str(project), *options]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)

    return run


def plant(project: Path, tests: str) -> None:
    (project / "tests" / "test_planted.py").write_text(tests)


def entries(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for document in report["sources"] for entry in document["requirements"]}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_only_passing_tests_without_a_failing_companion_prove(project: Path, spec: Spec, workers: str) -> None:
    """
    A requirement is proved by a passing test, unless another test of it fails; in one process and in several.
    """
    plant(project, TESTS)

    done = spec("--json", "--workers", workers)

    report = json.loads(done.stdout)
    assert [number for number, entry in entries(report).items() if entry["proved"]] == ["A01", "B01", "C01", "E40"]
    assert report["proved"] == 4
    assert report["of"] == 273
    assert [document["proved"] for document in report["sources"]] == [1, 1, 1, 0, 1]
    assert entries(report)["A02"]["failed"] == ["tests/test_planted.py::test_fails"]
    assert report["problems"] == [
        "failed: tests/test_planted.py::test_fails",
        "failed: tests/test_planted.py::test_fails_while_cleaning_up",
    ]
    assert done.returncode == 1


def test_people_see_tests_beside_what_is_proved_and_promises_beside_what_is_not(project: Path, spec: Spec) -> None:
    """
    The printed report names the proving tests, once each, and quotes the lines still to be proved.
    """
    plant(project, TESTS)

    lines = spec("--workers", "0").stdout.splitlines()

    assert "A. SQL over HTTP with keys and plans: 1 of 40 proved" in lines
    assert "    B01  test_passes_twice" in lines
    assert "    E40  test_inside_a_class" in lines
    assert any(line.startswith("    A02  One call takes") and line.endswith("[failed: test_fails]") for line in lines)
    assert any(line.startswith("    A03  ") and "test_is_skipped" not in line for line in lines)
    assert "4 of 273 requirements proved" in lines


def test_what_is_unproved_alone_is_no_failure(project: Path, spec: Spec) -> None:
    """
    The exit code is 0 when every marked test passed, however much is left; progress goes to stderr only.
    """
    plant(project, GREEN)

    done = spec("--json", "--workers", "0")

    assert done.returncode == 0
    assert json.loads(done.stdout)["problems"] == []
    assert "1 passed" in done.stderr


@pytest.mark.parametrize("options", [("--workers", "2"), ("--check",)])
def test_an_unknown_number_is_named_and_fails(project: Path, spec: Spec, options: tuple[str, ...]) -> None:
    """
    A mark that names no requirement of the list stops the collection of its file, and the tool says which.
    """
    plant(project, UNKNOWN)

    done = spec("--json", *options)

    assert done.returncode == 1
    assert [problem[problem.index("no such") :] for problem in json.loads(done.stdout)["problems"]] == [
        "no such requirement: A41"
    ]


def test_checking_runs_no_test(project: Path, spec: Spec) -> None:
    """
    `--check` looks at the list and the marks only: tests that would fail do not matter to it; a gap in the list does.
    """
    plant(project, TESTS)

    whole = spec("--check")
    the_list = project / "docs" / "reference" / "requirements.md"
    the_list.write_text(the_list.read_text().replace("- B13: ", "- "))
    damaged = spec("--check")

    assert (whole.returncode, whole.stdout) == (0, "9 of 273 requirements have a marked test\n")
    assert (damaged.returncode, damaged.stdout.splitlines()[-1]) == (1, "problem: the list lacks B13")


def test_a_mark_in_a_file_of_another_run_is_counted_and_named(project: Path, spec: Spec) -> None:
    """
    A file whose package is not here is skipped as a whole, and its marks count all the same: where, is said.
    """
    needs = 'import pytest\npytest.importorskip("no_such_package")\n'
    plant(project, f'{needs}@pytest.mark.requirement("D74", "D75")\ndef test_it():\n    pass\n')

    done = spec("--check")

    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "2 of 273 requirements have a marked test"
    assert done.stdout.splitlines()[1].startswith("D74 only where tests/")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("- B13: ", "- something else: ", "the list lacks B13"),
        ("- B13: ", "- B12: ", "the list lacks B13; the list should not have B12 (again)"),
        ("- A40: ", "- A41: ", "the list lacks A40; the list should not have A41"),
        ("## B. ", "### B. ", "B01 stands under A"),
        ("", "", ""),
    ],
)
def test_a_list_with_gaps_is_not_accepted(project: Path, old: str, new: str, complaint: str) -> None:
    """
    The list must hold every number once, under its own source; the project's own list does.
    """
    the_list = project / "docs" / "reference" / "requirements.md"
    the_list.write_text(the_list.read_text().replace(old, new))
    tool = runpy.run_path(str(ROOT / "tools" / "spec.py"))

    problems = "; ".join(tool["gaps"](tool["read_list"](the_list)))

    assert complaint == problems[: len(complaint)]
    assert bool(complaint) == bool(problems)
