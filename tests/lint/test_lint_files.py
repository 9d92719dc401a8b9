"""Which files are read, and what becomes of those that cannot be."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.lint import source_file
from onceward.lint.file_search import find_files
from onceward.lint.lint_run import LintReport, lint_files
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.settings import LintSettings

HAZARD = "import time\npay(idempotency_key=time.time())\n"


def lint(*paths: Path) -> LintReport:
    return lint_files(paths, LintSettings(), suffixes=(".py",), check=check_python, codes=CODES, tests=False)


def codes(report: LintReport) -> list[str]:
    return [finding.code for finding in report.findings]


class TestFinding:
    """Files below a folder."""

    def test_folders_of_others_and_tests_are_left_out(self, tmp_path: Path) -> None:
        """
        Environments, builds, hidden folders, templates and tests; each is looked at if it is named.
        """
        for name in ("app", ".git", "venv", "site-packages", "tests", "{{cookiecutter.name}}"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "pay.py").write_text(HAZARD)
        (tmp_path / "test_pay.py").write_text(HAZARD)

        assert [finding.path for finding in lint(tmp_path).findings] == [(tmp_path / "app/pay.py").as_posix()]
        assert codes(lint(tmp_path / "venv", tmp_path / "test_pay.py")) == ["OW101", "OW101"]

    @pytest.mark.fault("lint-links-are-followed")
    def test_a_loop_of_links_ends(self, tmp_path: Path) -> None:
        """
        Links to folders are not followed; a file under two names is read once; a broken link is a finding.
        """
        (tmp_path / "app").mkdir()
        (tmp_path / "app/pay.py").write_text(HAZARD)
        (tmp_path / "app/again").symlink_to(tmp_path / "app", target_is_directory=True)
        (tmp_path / "app/same.py").symlink_to(tmp_path / "app/pay.py")
        (tmp_path / "others").mkdir()
        (tmp_path / "others/theirs.py").write_text(HAZARD)
        (tmp_path / "app/others").symlink_to(tmp_path / "others", target_is_directory=True)
        (tmp_path / "app/self.py").symlink_to(tmp_path / "app/self.py")

        report = lint(tmp_path / "app")

        assert codes(report) == ["OW101", "OW902"]
        assert report.files == 2

    @pytest.mark.fault("lint-closed-folder-is-clean")
    def test_a_folder_without_permission_is_a_finding(self) -> None:
        """
        What may not be looked into is not clean. Nothing is forbidden to root, so a process looks that is not.
        """
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            (Path(folder) / "closed").mkdir()
            (Path(folder) / "closed/pay.py").write_text(HAZARD)
            (Path(folder) / "closed").chmod(0)
            script = (
                "import os, sys\nfrom pathlib import Path\nfrom test_lint_files import codes, lint\n"
                "os.setuid(65534) if os.geteuid() == 0 else None\nprint(codes(lint(Path(sys.argv[1]))))\n"
            )
            ran = subprocess.run(
                [sys.executable, "-c", script, folder],
                cwd=Path(__file__).parent,
                capture_output=True,
                text=True,
                check=False,
            )
            (Path(folder) / "closed").chmod(0o755)

        assert ran.stdout == "['OW902']\n", ran.stderr

    @pytest.mark.fault("lint-pipes-are-files")
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Nobody writes into it, so whoever opened it would wait for ever.
        """
        os.mkfifo(tmp_path / "pipe.py")
        with monkeypatch.context() as patched:  # Whoever reports on this test opens files, too.
            patched.setattr(Path, "open", lambda path, mode: pytest.fail(f"{path} was opened"))
            found = codes(lint(tmp_path))

        assert found == ["OW902"]

    def test_a_folder_without_python_files_is_clean(self, tmp_path: Path) -> None:
        """
        Nothing was looked at, and the report says so.
        """
        (tmp_path / "notes.txt").write_text(HAZARD)

        assert lint(tmp_path) == LintReport((), 0, {})

    def test_a_path_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        """
        A typing mistake must not look like a clean result.
        """
        with pytest.raises(ConfigurationError, match="there is no file or folder"):
            list(find_files([tmp_path / "scr"], (".py",)))


class TestReading:
    """Files that cannot be read, parsed or taken in."""

    @pytest.mark.parametrize(
        ("content", "code"),
        [
            (b"def f(:\n", "OW901"),
            (b"x = '\xff'\n", "OW902"),
            (b"# -*- coding: nonsense -*-\n", "OW902"),
            (b"# -*- coding: rot13 -*-\n", "OW902"),
            (b"# -*- coding: hex -*-\n", "OW902"),
            (b"x = 1\0\n", "OW902"),
            (b"x = " + b"(" * 300 + b")" * 300, "OW903"),
        ],
    )
    def test_one_that_cannot_be_checked_is_a_finding(self, content: bytes, code: str, tmp_path: Path) -> None:
        """
        One finding, and the other files are checked all the same.
        """
        (tmp_path / "a.py").write_bytes(content)
        (tmp_path / "b.py").write_text(HAZARD)

        assert codes(lint(tmp_path)) == [code, "OW101"]

    @pytest.mark.parametrize(
        "content",
        [
            b"\xef\xbb\xbf" + HAZARD.encode(),
            b"# coding: latin-1\nname = '\xfc'\n" + HAZARD.encode(),
            HAZARD.replace("\n", "\r\n").encode(),
            HAZARD.replace("\n", "\r").encode(),
            b"\x0c" + HAZARD.encode(),
        ],
    )
    def test_other_codings_and_line_ends_are_read(self, content: bytes, tmp_path: Path) -> None:
        """
        A mark of UTF-8, a declared coding, the line ends of other systems, a form feed.
        """
        (tmp_path / "a.py").write_bytes(content)

        assert codes(lint(tmp_path)) == ["OW101"]

    @pytest.mark.fault("lint-no-cap")
    def test_a_million_lines_are_one_finding(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Said before anything is parsed: by the bytes, and by the lines of what is short enough.
        """
        (tmp_path / "long.py").write_text("x=1\n" * 1_000_000)
        (tmp_path / "many.py").write_text("\n" * 60_000)
        parsed: list[str] = []

        def parse(text: str) -> ast.Module:
            parsed.append(text)
            return ast.Module([], [])

        with monkeypatch.context() as patched:  # Not longer: pytest parses, too, to report a failure.
            patched.setattr(ast, "parse", parse)
            found = codes(lint(tmp_path))

        assert found == ["OW903", "OW903"]
        assert parsed == []
        assert (tmp_path / "long.py").stat().st_size > source_file.BYTES_MAX
