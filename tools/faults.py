"""
Planted faults: does a mark's test go red when what it promises is broken?

    python tools/faults.py                 every fault
    python tools/faults.py NAME ...        these
    python tools/faults.py --sample SEED   one of ninety, chosen by the seed
    python tools/faults.py --list          run nothing: names, files, and the tests marked for each

A fault is a table in `tests/faults/*.toml`: a file, a text in it that occurs once, what to put in its place, and the
numbers of the requirements or findings that it breaks. It is planted in a scratch copy, never here, and the tests
that carry `@pytest.mark.fault("NAME")` are run there. It is caught when each of them fails by its own assertion in at
least one of its variants. An error before the assertion catches nothing. Nor does a test that fails in any case: all of
them are run once in a copy without a fault before, and must not fail there. Exit code 1: a fault survived.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

import pytest

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
SECONDS = 300
"""One fault's tests may take this long; a fault that makes them hang is not caught by an assertion."""
SHARE = 120
"""One of so many is planted in each run of `make test`: the tests of all of them run there, without a fault."""
UNUSED = ("cacheprovider", "randomly", "xdist", "anyio", "faker", "schemathesis")
"""Plug-ins of pytest that no marked test needs. Importing the last two takes longer than most marked tests."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A small change of behaviour, and what it breaks."""

    name: str
    ids: tuple[str, ...]
    file: str
    old: str
    new: str


class Verdict(NamedTuple):
    """Whether a fault was caught, and what to do if not."""

    caught: bool
    reason: str


def load(root: Path = ROOT) -> dict[str, Fault]:
    """Every fault by its name; what is wrong with one is an error that names it."""
    faults: dict[str, Fault] = {}
    for path in sorted((root / "tests" / "faults").glob("*.toml")):
        for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in faults:
                raise ValueError(f"{path.name}: there are two faults named {name!r}")
            if table.keys() != {"ids", "file", "old", "new"}:
                raise ValueError(f"{path.name}: {name!r} must have ids, file, old and new, and nothing else")
            faults[name] = Fault(name, tuple(table["ids"]), table["file"], table["old"], table["new"])
    return faults


def problems(fault: Fault, root: Path = ROOT) -> list[str]:
    """What keeps a fault from being planted."""
    path = root / fault.file
    if not path.is_file():
        return [f"{fault.file} does not exist"]
    found = []
    if (times := path.read_text(encoding="utf-8").count(fault.old)) != 1:
        found.append(f"its old text occurs {times} times in {fault.file}; it must occur once")
    if fault.old == fault.new:
        found.append("old and new are the same")
    if not fault.ids or not all(re.fullmatch(r"[A-Z]\d{1,2}", number) for number in fault.ids):
        found.append("ids must name requirements (A01) or findings (G1)")
    if not test_files(fault.name, root):
        found.append(f'no test carries @pytest.mark.fault("{fault.name}")')
    return found


def test_files(name: str, root: Path = ROOT) -> list[str]:
    """The test files that name a fault."""
    return marked(root).get(name, [])


_NEEDS = re.compile(r"""^(?:\w+ = )?pytest\.importorskip\(["']([\w.]+)["']""", re.MULTILINE)


def frameworks_of(name: str) -> set[str]:
    """The frameworks without which no test of a fault runs: those of `make test-agents`."""
    needed = [set(_NEEDS.findall((ROOT / file).read_text(encoding="utf-8"))) for file in test_files(name)]
    return set.intersection(*needed) if needed else set()


def missing_frameworks(name: str) -> set[str]:
    """Those of them that are not installed here."""
    return {needed for needed in frameworks_of(name) if not _is_installed(needed)}


def missing_programs(fault: Fault) -> list[str]:
    """What is not on this machine, and the tests of a fault cannot do without: Node.js for TypeScript."""
    needed = ("node", "npm") if fault.file.endswith(".ts") else ()
    return [program for program in needed if shutil.which(program) is None]


def _is_installed(module: str) -> bool:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        return False
    return found is not None


@cache
def marked(root: Path = ROOT) -> dict[str, list[str]]:
    """The names in all marks, and the test files that have them."""
    files: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("*.py")):
        marks = re.findall(r"mark\.fault\(([^)]*)\)", path.read_text(encoding="utf-8"))
        for name in {name for names in marks for name in re.findall(r"""["']([^"']+)["']""", names)}:
            files.setdefault(name, []).append(str(path.relative_to(root)))
    return files


def a_sample(names: Iterable[str], seed: int) -> list[str]:
    """One of so many faults, rounded up; the same for the same seed."""
    ordered = sorted(names)
    return sorted(random.Random(seed).sample(ordered, -(-len(ordered) // SHARE)))


@contextmanager
def scratch_copy(root: Path = ROOT) -> Iterator[Path]:
    """A copy of what git would commit from here, gone afterwards."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    with tempfile.TemporaryDirectory(prefix="onceward-fault-") as folder:
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (source := root / name).is_file():
                target = Path(folder) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        yield Path(folder)


def judge(fault: Fault, copy: Path) -> Verdict:
    """Plant the fault in the copy, run the tests marked for it, take it out again."""
    if wrong := problems(fault, copy):
        return Verdict(False, "; ".join(wrong))
    path = copy / fault.file
    sound = path.read_text(encoding="utf-8")
    _write(path, sound.replace(fault.old, fault.new))
    try:
        ends, printed = _ends([fault.name], copy, SECONDS)
    except subprocess.TimeoutExpired:
        return Verdict(False, f"its tests did not end within {SECONDS} s; give them a time limit of their own")
    finally:
        _write(path, sound)
    return _read(ends.get(fault.name), printed)


def fails_anyway(names: Sequence[str], copy: Path) -> dict[str, str]:
    """Which of these faults have a test that fails without any fault, or did not end; all are run once, together."""
    try:
        ends, printed = _ends(names, copy, SECONDS * max(1, len(names)))
    except subprocess.TimeoutExpired:
        return dict.fromkeys(names, "its tests, run without a fault together with those of others, did not end")
    wrong = {}
    for name in names:
        failed = {test: how for test, how in ends.get(name, {}).items() if not {*how} <= {"passed", "skipped"}}
        if failed:
            told = "; ".join(f"{test} ({', '.join(sorted({*how}))})" for test, how in sorted(failed.items()))
            wrong[name] = f"without the fault these fail, too: {told}"
        elif name not in ends:
            wrong[name] = f"its tests did not run without the fault:\n{printed[-2000:]}"
    return wrong


Ends = dict[str, list[str]]
"""How each variant of a test ended."""


def _ends(names: Sequence[str], copy: Path, seconds: float) -> tuple[dict[str, Ends], str]:
    """Run the tests marked for these faults, in the copy as it is: how they ended, by fault, and what was printed."""
    report = copy / "fault-report.jsonl"
    report.unlink(missing_ok=True)
    files = sorted({file for name in names for file in test_files(name, copy)})
    ran = subprocess.run(
        [sys.executable, "tools/faults.py", "--watch", str(report), ",".join(names), *files],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "", "CASES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    ends: dict[str, Ends] = {}
    # Line by line, because a test that hangs takes its process with it: what ended before is known.
    for line in report.read_text(encoding="utf-8").splitlines() if report.is_file() else []:
        name, test, how = json.loads(line)
        ends.setdefault(name, {}).setdefault(test, []).append(how)
    return ends, ran.stdout


def _write(path: Path, text: str) -> None:
    """
    Write a module, and forget what was compiled from it.

    All others stay compiled from fault to fault: that is most of what judging one costs. Python tells an old compiled
    file by the second and the size of its source, and both may be the same here.
    """
    path.write_text(text, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def judge_all(faults: Sequence[Fault], jobs: int) -> Iterator[tuple[Fault, Verdict]]:
    """
    Judge them side by side, each worker in a copy of its own; verdicts as they come.

    First, without a fault, all of their tests: whoever fails there catches nothing.
    """
    jobs = max(1, min(jobs, len(faults)))
    with ExitStack() as copies, ThreadPoolExecutor(max_workers=jobs) as workers:
        free: SimpleQueue[Path] = SimpleQueue()
        for _ in range(jobs):
            free.put(copies.enter_context(scratch_copy()))

        def in_a_copy(work: Callable[[Path], T]) -> T:
            copy = free.get()
            try:
                return work(copy)
            finally:
                free.put(copy)

        # Faults of one file stay together, so that its tests are imported in one process only.
        names = sorted((one.name for one in faults if not problems(one)), key=test_files)
        size = -(-len(names) // jobs) or 1
        parts = [names[at : at + size] for at in range(0, len(names), size)]
        anyway: dict[str, str] = {}
        for found in workers.map(lambda part: in_a_copy(partial(fails_anyway, part)), parts):
            anyway |= found

        def verdict(fault: Fault) -> tuple[Fault, Verdict]:
            return fault, in_a_copy(partial(judge, fault))

        yield from ((one, Verdict(False, anyway[one.name])) for one in faults if one.name in anyway)
        waiting = [workers.submit(verdict, one) for one in faults if one.name not in anyway]
        yield from (one.result() for one in as_completed(waiting))


def _read(ends: Ends | None, printed: str) -> Verdict:
    if not ends:
        return Verdict(False, f"no marked test ran:\n{printed[-2000:]}")
    for test, how in sorted(ends.items()):
        if "red" not in how:
            return Verdict(False, f"{test} did not fail by its own assertion ({', '.join(sorted(set(how)))})")
    return Verdict(True, f"{len(ends)} test{'' if len(ends) == 1 else 's'} red")


class Watcher:
    """A pytest plug-in, inside the copy: keeps only the marked tests, and writes down how each ends."""

    def __init__(self, report: Path, faults: Iterable[str]) -> None:
        """Where to, and the faults whose tests are run."""
        self._report = report
        self._faults = frozenset(faults)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that are marked for these faults."""
        items[:] = [item for item in items if self._names(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None] | pytest.TestReport:
        """An assertion in the test's own phase is red; whatever else goes wrong is an error."""
        report: pytest.TestReport = yield  # type: ignore[misc, assignment]
        if report.failed:
            own = call.excinfo is not None and call.excinfo.errisinstance((AssertionError, pytest.fail.Exception))
            timed_out = call.excinfo is not None and str(call.excinfo.value).startswith("Timeout")
            self._note(item, "red" if own and not timed_out and call.when == "call" else f"error in {call.when}")
        elif call.when == "call":
            self._note(item, report.outcome)
        return report

    def _names(self, item: pytest.Item) -> set[str]:
        return {name for mark in item.iter_markers("fault") for name in mark.args} & self._faults

    def _note(self, item: pytest.Item, how: str) -> None:
        test = item.nodeid.partition("[")[0]
        with self._report.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps([name, test, how]) + "\n" for name in sorted(self._names(item)))


def watch(report: Path, faults: list[str], files: list[str]) -> int:
    """Inside the copy: run the marked tests of these files, and write down how they ended."""
    options = ["-q", "--tb=short", "--timeout=120", *(f"-pno:{name}" for name in UNUSED)]
    return int(pytest.main([*options, *files], plugins=[Watcher(report, faults)]))


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Plant faults in a scratch copy; their tests must go red.")
    parser.add_argument("names", nargs="*", help="faults (all, if none is named)")
    parser.add_argument("--sample", type=int, metavar="SEED", help=f"only one of {SHARE}, chosen by this seed")
    parser.add_argument("--frameworks", action="store_true", help="only those of tests that need an agent framework")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="copies that are worked in side by side")
    parser.add_argument("--list", action="store_true", help="run nothing, list them")
    parser.add_argument("--watch", type=Path, metavar="REPORT", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.watch:
        return watch(options.watch, options.names[0].split(","), options.names[1:])
    faults = load()
    if unknown := [name for name in options.names if name not in faults]:
        parser.error(f"no such fault: {', '.join(unknown)}")
    chosen = options.names or (a_sample(faults, options.sample) if options.sample is not None else sorted(faults))
    if options.frameworks:
        chosen = [name for name in chosen if frameworks_of(name)]
    for name in chosen:
        if missing := missing_frameworks(name):
            print(f"left out  {name}: it needs {', '.join(sorted(missing))}, as `make test-agents` has it", flush=True)
        if absent := missing_programs(faults[name]):
            print(f"left out  {name}: it needs {', '.join(absent)}, and this machine has none", flush=True)
    chosen = [name for name in chosen if not missing_frameworks(name) and not missing_programs(faults[name])]
    if options.list:
        for name in chosen:
            print(f"{name}  {' '.join(faults[name].ids)}  {faults[name].file}  {' '.join(test_files(name))}")
        return 0
    survived = 0
    judged = judge_all([faults[name] for name in chosen], options.jobs)
    for number, (fault, verdict) in enumerate(judged, 1):
        survived += not verdict.caught
        outcome = "caught" if verdict.caught else "SURVIVED"
        print(f"[{number}/{len(chosen)}] {outcome}  {fault.name}: {verdict.reason}", flush=True)
    print(f"{len(chosen)} faults planted, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
