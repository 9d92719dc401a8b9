"""What a visitor of the repository meets besides the code: forms for issues, a template, a code of conduct."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from doc_pages import ROOT

GITHUB = ROOT / ".github"
FORMS = sorted(one for one in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if one.name != "config.yml")


def problems(schema: str, *files: Path) -> str:
    """What the schema of GitHub has against these files."""
    command = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", schema, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_forms_for_issues_are_ones_that_github_takes(tmp_path: Path) -> None:
    """
    By its schema, which also sees what is wrong.
    """
    (tmp_path / "wrong.yml").write_text("name: a\ndescription: b\nbody: [{type: imaginary}]\n")

    assert len(FORMS) >= 3
    assert problems("vendor.github-issue-forms", *FORMS) == ""
    assert problems("vendor.github-issue-config", GITHUB / "ISSUE_TEMPLATE" / "config.yml") == ""
    assert problems("vendor.github-issue-forms", tmp_path / "wrong.yml") != ""


@pytest.mark.parametrize("form", FORMS, ids=lambda one: one.stem)
def test_a_form_asks_what_is_needed_and_each_question_has_a_name(form: Path) -> None:
    """
    No two questions have one id, and something is required.
    """
    body = yaml.safe_load(form.read_text(encoding="utf-8"))["body"]
    ids = [one["id"] for one in body if one["type"] != "markdown"]

    assert len(ids) == len(set(ids)) > 0
    assert any(one.get("validations", {}).get("required") for one in body)


def test_a_report_of_a_vulnerability_is_sent_elsewhere() -> None:
    """
    The form for mistakes says so first.
    """
    text = FORMS[0].read_text(encoding="utf-8")

    assert text.index("SECURITY.md") < text.index("textarea")


def test_the_code_of_conduct_says_how_to_report() -> None:
    """
    What is expected, what is not accepted, and whom to tell; the page for contributors leads to it.
    """
    text = (ROOT / "CODE_OF_CONDUCT.md").read_text(encoding="utf-8")

    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## What we do",
        "## What we do not accept",
        "## If it happens",
    ]
    assert "CODE_OF_CONDUCT.md" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
