"""`--fix`: only where the result is certain, and a file is replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.lint.fixing import fix_files
from onceward.lint.lint_run import LintReport, lint_files
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.settings import LintSettings

BEFORE = """\
import backoff, tenacity
ä = 1  # onceward: ignore[OW101] was a key once
# onceward: ignore[OW102] was one, too
b = 2


@tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_exponential(max=9))
def f(): return "ä"


@backoff.on_exception(backoff.expo, OSError, max_tries=3, jitter=None)
def g(): return 1
"""
AFTER = """\
import backoff, tenacity
ä = 1
b = 2


@tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_random_exponential(max=9))
def f(): return "ä"


@backoff.on_exception(backoff.expo, OSError, max_tries=3, jitter=backoff.full_jitter)
def g(): return 1
"""


def lint(path: Path) -> LintReport:
    return lint_files([path], LintSettings(), suffixes=(".py",), check=check_python, codes=CODES)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_is_certain_is_put_right(line_end: str, tmp_path: Path) -> None:
    """
    Unused ignores go, jitter comes; line ends and permissions stay; a second run finds nothing.
    """
    file = tmp_path / "a.py"
    file.write_bytes(BEFORE.replace("\n", line_end).encode())
    file.chmod(0o750)
    report = lint(file)

    remaining = fix_files(report.findings, report.sources)

    assert len(report.findings) == 4
    assert remaining == []
    assert file.read_bytes().decode() == AFTER.replace("\n", line_end)
    assert file.stat().st_mode & 0o777 == 0o750
    assert lint(file).findings == ()
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_not_certain_stays(tmp_path: Path) -> None:
    """
    Nobody but the author knows what a key should be made of.
    """
    file = tmp_path / "a.py"
    file.write_text("import time\npay(idempotency_key=time.time())\n")
    report = lint(file)

    assert fix_files(report.findings, report.sources) == list(report.findings)
    assert file.read_text() == "import time\npay(idempotency_key=time.time())\n"


@pytest.mark.fault("lint-fixes-another-text")
def test_a_file_that_was_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """
    The edits were for another text.
    """
    file = tmp_path / "a.py"
    file.write_text(BEFORE, encoding="utf-8")
    report = lint(file)
    file.write_text("# mine\n" + BEFORE, encoding="utf-8")

    with pytest.raises(ConfigurationError, match="not fixed: it has just changed"):
        fix_files(report.findings, report.sources)

    assert file.read_text(encoding="utf-8") == "# mine\n" + BEFORE
    assert list(tmp_path.iterdir()) == [file]
