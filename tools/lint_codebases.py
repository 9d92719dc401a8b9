"""
Run the Python rules over real code bases from PyPI, and list the alarms, to be read by hand.

    python tools/lint_codebases.py FOLDER [NAME==VERSION ...]

FOLDER is scratch: wheels are downloaded and unpacked there, and nothing of them is run. Without names, the code bases
of docs/reference/lint.md are taken, in the versions that were read. Each alarm is one line, `CODE path:line message`,
with the source line below it; the end counts them for each rule. `--rows` prints them as docs/reference/lint-alarms.md
has them: an alarm that was read before keeps its verdict there, a new one has none.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from onceward.lint.lint_run import LintReport, lint_files
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.settings import Settings

CODE_BASES = ()
"""Those whose alarms were read: clients of payments, messages and clouds, schedulers, pipelines, shops."""


def download(name: str, folder: Path) -> Path:
    """The unpacked source distribution of a package, downloaded if it is not there yet."""
    wanted = name.partition("==")[0]
    target = folder / name
    if target.is_dir():
        return target
    scratch = folder / "downloads" / name
    scratch.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        wanted,
        "-d",
        str(scratch),
    ]
    subprocess.run([*command, name], check=True)
    (archive,) = scratch.iterdir()
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(target)
    else:
        with tarfile.open(archive) as opened:
            opened.extractall(target, filter="data")
    return target


def lint(name: str, folder: Path) -> LintReport:
    """What the Python rules say about a code base, without its tests."""
    return lint_files([folder / name], Settings(), suffixes=(".py",), check=check_python, codes=CODES, tests=False)


def listed(report: LintReport, root: Path) -> Iterator[str]:
    """The alarms of a report, each with its source line."""
    for finding in report.findings:
        path = Path(finding.path).relative_to(root)
        yield f"{finding.code} {path}:{finding.line} {finding.message}"
        source = report.sources.get(finding.path)
        if source is not None:
            yield f"    {source.line(finding.line).strip()[:160]}"


def main() -> int:
    """Download, lint, list, count."""
    parser = argparse.ArgumentParser(description=__doc__.strip().partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="a scratch folder")
    parser.add_argument("names", nargs="*", default=list(CODE_BASES), help="packages on PyPI")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    files = lines = 0
    for name in args.names:
        try:
            folder = download(name, args.folder)
        except subprocess.CalledProcessError:
            print(f"## {name}: cannot be downloaded")
            continue
        report = lint(folder.name, args.folder)
        size = sum(file.read_bytes().count(b"\n") for file in folder.rglob("*.py") if file.is_file())
        print(f"## {name}: {report.files} files, {size} lines, {len(report.findings)} alarms")
        for line in listed(report, args.folder):
            print(line)
        counts.update(finding.code for finding in report.findings)
        files, lines = files + report.files, lines + size
    print(f"## {files} files, {lines} lines")
    for code, count in sorted(counts.items()):
        print(f"{code} {count}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
