"""`python -m onceward.testing`, as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.testing import __main__ as command

COMMANDS = ("explore", "failpoints", "conformance")


def typed(*arguments: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "onceward.testing", *arguments],
        cwd=folder,
        # The suite needs none of the plugins that are installed for our own tests, and importing them takes seconds.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "onceward.testing.plugin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


class TestHelp:
    """Whoever types --help learns enough to type the next thing."""

    def test_every_command_is_listed(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        With a line on each.
        """
        with pytest.raises(SystemExit) as left:
            command.main(["--help"])

        assert left.value.code == 0
        shown = capsys.readouterr().out
        assert [name for name in COMMANDS if name not in shown] == []

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_shows_an_example(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        """
        One that can be typed as it stands.
        """
        with pytest.raises(SystemExit) as left:
            command.main([name, "--help"])

        assert left.value.code == 0
        shown = capsys.readouterr().out
        assert "example" in shown
        assert f"python -m onceward.testing {name}" in shown

    @pytest.mark.parametrize("wrong", [[], ["unheard-of"], ["failpoints", "--unheard-of"]])
    def test_a_mistyped_command_is_refused(self, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """
        With the usage, and the exit code that means so.
        """
        with pytest.raises(SystemExit) as left:
            command.main(wrong)

        assert left.value.code == 2
        assert "usage:" in capsys.readouterr().err


class TestFailpoints:
    """The catalogue."""

    def test_every_failpoint_is_listed_with_its_meaning(self, tmp_path: Path) -> None:
        """
        Those of the flows and those of every store, though nothing has been opened; one line each.
        """
        code, table = typed("failpoints", folder=tmp_path)
        told, listed = typed("failpoints", "--json", folder=tmp_path)

        catalogue = json.loads(listed)
        assert (code, told) == (0, 0)
        assert {"claim.before", "claim.after", "settle.before", "sqlite.commit.before"} <= catalogue.keys()
        assert [(name, meaning) for name, meaning in catalogue.items()] == [
            (name, meaning.strip()) for name, _, meaning in (line.partition(" ") for line in table.splitlines())
        ]
        assert [name for name, meaning in catalogue.items() if not meaning] == []

    def test_a_backend_that_cannot_be_imported_is_named(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """
        A driver that is not installed hides its failpoints, and the reader is told.
        """
        monkeypatch.setitem(sys.modules, "onceward.stores.sqlite", None)

        assert command.main(["failpoints", "--json"]) == 0
        shown = capsys.readouterr()
        assert "onceward.stores.sqlite" in shown.err
        assert "claim.before" in json.loads(shown.out)


class TestConformance:
    """A shorter way to run the suite."""

    def test_it_runs_the_suite_on_the_store(self, tmp_path: Path) -> None:
        """
        What follows is handed to pytest; exit 0 means that the store passed.
        """
        code, shown = typed("conformance", "--store", "memory://", "-q", "-k", "TestScan", folder=tmp_path)

        assert code == 0, shown
        assert " passed" in shown

    def test_without_a_store_it_says_what_to_give(self, tmp_path: Path) -> None:
        """
        Nothing is judged by accident.
        """
        code, shown = typed("conformance", "-k", "TestScan", folder=tmp_path)

        assert code != 0
        assert "say which store to judge: --store" in shown


class TestExplore:
    """Handed on to the explorer, with its own options."""

    def test_arguments_and_exit_code_are_the_explorers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Nothing of them is read here.
        """
        given: list[list[str]] = []
        explorer = pytest.importorskip("onceward.testing.explorer")
        monkeypatch.setattr(explorer, "main", lambda argv: given.append(argv) or 7)

        assert command.main(["explore", "--limits", "--json"]) == 7
        assert given == [["--limits", "--json"]]
