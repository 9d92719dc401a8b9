"""`onceward lint`: hazards found from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onceward.lint.rule_table import all_rules

HAZARD = "import time\npay(idempotency_key=time.time())\n"


@pytest.fixture
def app(folder: Path) -> Path:
    """A folder with one hazard in it."""
    (folder / "app").mkdir()
    (folder / "app/pay.py").write_text(HAZARD)
    return folder


class TestPython:
    """`lint python`."""

    def test_a_finding_is_shown_with_its_line_and_the_code_is_1(self, app: Path, run: Any) -> None:
        """
        As CI wants it.
        """
        ran = run("lint", "python", "app")

        assert ran.code == 1
        assert ran.out.startswith("app/pay.py:2:21: OW101 time.time() differs on every attempt")
        assert "    pay(idempotency_key=time.time())\n                        ^^^^^^^^^^^\n" in ran.out

    def test_a_clean_folder_is_0(self, folder: Path, run: Any) -> None:
        """
        Also one without Python files, with a note about that.
        """
        (folder / "fine.py").write_text("x = 1\n")
        (folder / "empty").mkdir()

        assert run("lint", "python", "fine.py") == (0, "no findings in 1 file\n", "")
        assert run("lint", "python", "empty") == (
            0,
            "no findings in 0 files\n",
            "onceward: there are no Python files there\n",
        )

    @pytest.mark.parametrize(
        "typed",
        [
            ["lint", "python"],
            ["lint", "python", "nowhere"],
            ["lint", "python", ".", "--select", "OW77"],
            ["lint", "python", ".", "--format", "xml"],
            ["lint", "python", ".", "--config", "nowhere.toml"],
            ["lint", "explain", "OW77"],
        ],
    )
    def test_what_cannot_be_meant_is_2(self, typed: list[str], app: Path, run: Any) -> None:
        """
        One line that says what to type.
        """
        ran = run(*typed)

        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("onceward: ")

    @pytest.mark.parametrize(("style", "typed"), [("json", ["--json"]), ("json", ["--format", "json"]), ("sarif", [])])
    def test_programs_get_one_document(self, style: str, typed: list[str], app: Path, run: Any) -> None:
        """
        `--json`, as every command has it; `--format sarif` for code hosts.
        """
        ran = run("lint", "python", "app", *(typed or ["--format", "sarif"]))

        assert ran.code == 1
        if style == "json":
            assert [finding["code"] for finding in ran.document["findings"]] == ["OW101"]
        else:
            assert ran.document["version"] == "2.1.0"

    def test_github_gets_annotations(self, app: Path, run: Any) -> None:
        """
        And nothing else.
        """
        ran = run("lint", "python", "app", "--format", "github")

        assert ran.out.startswith("::error file=app/pay.py,line=2,")
        assert ran.out.count("\n") == 1

    def test_codes_are_selected_by_option_and_by_settings(self, app: Path, run: Any) -> None:
        """
        What is typed goes over what is in pyproject.toml.
        """
        assert run("lint", "python", "app", "--ignore", "OW101").code == 0
        (app / "pyproject.toml").write_text('[tool.onceward.lint]\nignore = ["OW101"]\n')
        assert run("lint", "python", "app").code == 0
        assert run("lint", "python", "app", "--select", "OW10").code == 1

    def test_fix_says_how_much_it_did(self, app: Path, run: Any) -> None:
        """
        What remains is shown, and decides the exit code.
        """
        (app / "app/more.py").write_text("a = 1  # onceward: ignore[OW101] was a key\n")

        ran = run("lint", "python", "app", "--fix")

        assert (ran.code, ran.err) == (1, "onceward: 1 fixed\n")
        assert (app / "app/more.py").read_text() == "a = 1\n"
        assert "OW904" not in ran.out

    def test_tests_are_looked_at_if_asked(self, folder: Path, run: Any) -> None:
        """
        They make keys afresh on purpose.
        """
        (folder / "test_pay.py").write_text(HAZARD)

        assert run("lint", "python", ".").code == 0
        assert run("lint", "python", ".", "--tests").code == 1


class TestRules:
    """`lint rules` and `lint explain`."""

    def test_the_rules_are_listed(self, run: Any) -> None:
        """
        Each with what it finds.
        """
        ran = run("lint", "rules")

        assert [line.split()[0] for line in ran.out.splitlines()[1:]] == list(all_rules())
        assert [rule["code"] for rule in run("lint", "rules", "--json").document] == list(all_rules())

    def test_a_rule_is_explained_with_both_sides(self, run: Any) -> None:
        """
        Why it is one, what is wrong, what is right; the code in any case.
        """
        ran = run("lint", "explain", "ow101")

        assert ran.code == 0
        assert "bad:\n    import time" in ran.out
        assert "good:\n    import payments" in ran.out
        assert json.loads(run("lint", "explain", "OW101", "--json").out)["code"] == "OW101"

    def test_a_mistyped_code_is_asked_about(self, run: Any) -> None:
        """
        With the nearest one.
        """
        assert "Did you mean OW101?" in run("lint", "explain", "OW-101").err


def test_a_folder_without_a_language_is_told_what_there_is(run: Any) -> None:
    """
    `onceward lint src` is what people type first.
    """
    ran = run("lint", "src")

    assert ran.code == 2
    assert "there is no command 'src'. There are: python, sql, migration" in ran.err
