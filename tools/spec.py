"""
Which of the requirements a passing test proves.

    python tools/spec.py            run the tests that carry a `requirement` mark, and report
    python tools/spec.py --json     the same, for programs
    python tools/spec.py --check    run nothing: is the list complete, and is every mark a known number?

The list is `docs/reference/requirements.md`. A requirement is proved when at least one test marked with its number
passed and none failed; a skipped or expectedly failing test proves nothing. The exit code is 1 when a marked test
failed, a mark names an unknown number, the list has gaps, or pytest could not do its work; otherwise 0, however
much is still to be proved. What pytest prints goes to stderr, the report to stdout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIST = Path("docs") / "reference" / "requirements.md"

# How many things each source document asks for. The list must have them all, once each, in order.
HOW_MANY = {"A": 40, "B": 47, "C": 62, "D": 84, "E": 40}

# Two workers: the tests of races want company, and a laptop should stay usable meanwhile.
WORKERS = 2

# Tests named per requirement: some are proved by a whole suite.
NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Source:
    """One source document: its letter, its title, and number -> promise in the order of the list."""

    letter: str
    title: str
    promises: dict[str, str]


def read_list(path: Path) -> list[Source]:
    """The sources and their requirements, from the headings and list items of the one list."""
    sources: list[Source] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"## ([A-E])\. (.+)", line):
            sources.append(Source(heading[1], heading[2], {}))
        elif (entry := re.fullmatch(r"- ([A-E]\d\d): (.+)", line)) and sources:
            number = entry[1] if entry[1] not in sources[-1].promises else f"{entry[1]} (again)"
            sources[-1].promises[number] = entry[2]
    return sources


def gaps(sources: Iterable[Source]) -> list[str]:
    """What is missing from the list, or should not be in it."""
    expected = [f"{letter}{number:02}" for letter, count in HOW_MANY.items() for number in range(1, count + 1)]
    found = [number for source in sources for number in source.promises]
    problems = [f"the list lacks {number}" for number in expected if number not in found]
    problems += [f"the list should not have {number}" for number in found if number not in expected]
    problems += [
        f"{number} stands under {source.letter}"
        for source in sources
        for number in source.promises
        if number[0] != source.letter
    ]
    if not problems and found != expected:
        problems.append("the list is out of order")
    return problems


@dataclass(eq=False)  # A plug-in must be hashable.
class Results:
    """What became of the marked tests: a pytest plug-in that listens to the reports, from whichever process."""

    marks: dict[str, set[str]] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    not_collected: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    """By number, a file that is marked with it and cannot be imported here: it needs a package of another run."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Without workers, the marks are known as soon as the tests are collected."""
        for item in items:
            self._note(item.nodeid, item.user_properties)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected, an unknown number included."""
        if report.failed:
            self.not_collected[report.nodeid] = report.longreprtext.strip().splitlines()[-1]
        elif report.skipped and report.nodeid.endswith(".py"):
            for marks in re.findall(r"mark\.requirement\(([^)]*)\)", Path(report.nodeid).read_text(encoding="utf-8")):
                self.elsewhere |= dict.fromkeys(re.findall(r'"([A-E]\d\d)"', marks), report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test passes by its call; it fails by any of its phases."""
        self._note(report.nodeid, report.user_properties)
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.passed and report.when == "call" and not hasattr(report, "wasxfail"):
            self.passed.add(report.nodeid)

    def _note(self, test: str, properties: Iterable[tuple[str, object]]) -> None:
        for name, value in properties:
            if name == "requirement":
                self.marks.setdefault(str(value), set()).add(test)

    def proving(self, number: str) -> list[str]:
        """The tests that prove a requirement: none, if any test marked with it failed."""
        return [] if self.failing(number) else sorted(self.marks.get(number, set()) & self.passed)

    def failing(self, number: str) -> list[str]:
        """The failed tests that are marked with a requirement."""
        return sorted(self.marks.get(number, set()) & self.failed)


def run_pytest(root: Path, *options: str) -> tuple[Results, int]:
    """Run the marked tests under `root`; what pytest prints goes to stderr, so that progress is seen."""
    results = Results()
    arguments = ["-m", "requirement", "-q", "--continue-on-collection-errors", *options, str(root / "tests")]
    sys.path.insert(0, str(root))  # As `python -m pytest` does: the same tests must find the same modules.
    with contextlib.chdir(root), contextlib.redirect_stdout(sys.stderr):
        code = pytest.main(arguments, plugins=[results])
    return results, int(code)


def find_problems(sources: Iterable[Source], results: Results, code: int) -> list[str]:
    """Everything that makes the exit code 1, in words."""
    problems = gaps(sources)
    problems += [f"not collected: {test}: {why}" for test, why in sorted(results.not_collected.items())]
    problems += [f"failed: {test}" for test in sorted(results.failed)]
    if not problems and code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        problems.append(f"pytest ended with code {code}")
    return problems


def as_data(sources: Sequence[Source], results: Results, problems: list[str]) -> dict[str, Any]:
    """The report for programs; the report for people is made from it."""
    documents: list[dict[str, Any]] = []
    for source in sources:
        entries = [
            {
                "id": number,
                "promise": promise,
                "proved": bool(results.proving(number)),
                "tests": results.proving(number),
                "failed": results.failing(number),
            }
            for number, promise in source.promises.items()
        ]
        proved = sum(bool(entry["proved"]) for entry in entries)
        summary = {"source": source.letter, "title": source.title, "proved": proved, "of": len(entries)}
        documents.append(summary | {"requirements": entries})
    return {
        "proved": sum(document["proved"] for document in documents),
        "of": sum(document["of"] for document in documents),
        "sources": documents,
        "problems": problems,
    }


def short(tests: Iterable[str]) -> str:
    """The tests' bare names, each once: `tests/a/test_b.py::TestC::test_d[1]` is `test_d`."""
    named = list(dict.fromkeys(test.split("::")[-1].split("[")[0] for test in tests))
    more = f" and {len(named) - NAMES_SHOWN} more" if len(named) > NAMES_SHOWN else ""
    return ", ".join(named[:NAMES_SHOWN]) + more


def as_text(data: dict[str, Any]) -> str:
    """The report for people."""
    lines: list[str] = []
    for document in data["sources"]:
        lines.append(f"{document['source']}. {document['title']}: {document['proved']} of {document['of']} proved")
        proved = [entry for entry in document["requirements"] if entry["proved"]]
        lines += [f"    {entry['id']}  {short(entry['tests'])}" for entry in proved]
        if proved and len(proved) < document["of"]:
            lines.append("  not yet:")
        for entry in document["requirements"]:
            if not entry["proved"]:
                failed = f"  [failed: {short(entry['failed'])}]" if entry["failed"] else ""
                lines.append(f"    {entry['id']}  {entry['promise']}{failed}")
        lines.append("")
    lines.append(f"{data['proved']} of {data['of']} requirements proved")
    lines += [f"problem: {problem}" for problem in data["problems"]]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, report, and say by the exit code whether something is wrong."""
    parser = argparse.ArgumentParser(prog="spec", description="Which of the requirements a passing test proves.")
    parser.add_argument("--json", action="store_true", help="print the report for programs")
    parser.add_argument("--check", action="store_true", help="run nothing: check the list and the marks")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project to look at (default: this one)")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"test processes (default {WORKERS}; 0: none)")
    options = parser.parse_args(arguments)
    root: Path = options.root.resolve()
    sources = read_list(root / LIST)
    if options.check:
        results, code = run_pytest(root, "--collect-only", "-q", "-n", "0")
    else:
        results, code = run_pytest(root, "-n", str(options.workers))
    problems = find_problems(sources, results, code)
    if options.check:
        numbers = [number for source in sources for number in source.promises]
        elsewhere = {
            one: file for one, file in results.elsewhere.items() if one in numbers and one not in results.marks
        }
        marked = sum(number in results.marks for number in numbers) + len(elsewhere)
        report: dict[str, Any] = {"marked": marked, "of": len(numbers), "elsewhere": elsewhere, "problems": problems}
        lines = [f"{marked} of {len(numbers)} requirements have a marked test"]
        lines += [f"{number} only where {file} can be imported" for number, file in elsewhere.items()]
        text = "\n".join([*lines, *(f"problem: {one}" for one in problems)])
    else:
        report = as_data(sources, results, problems)
        text = as_text(report)
    print(json.dumps(report, indent=2) if options.json else text)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
