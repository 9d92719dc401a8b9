"""What findings look like to people, programs, GitHub and code hosts."""

from __future__ import annotations

from onceward.lint.findings import Finding
from onceward.lint.lint_run import LintReport
from onceward.lint.output import as_document, as_github, as_sarif, as_text
from onceward.lint.source_file import SourceFile

LINE = '\tkey = f"日本{time.time()}"'
FINDING = Finding("OW101", "my app/pay.py", 2, 13, 24, "reads the clock: 100 %")
REPORT = LintReport((FINDING,), 3, {"my app/pay.py": SourceFile("my app/pay.py", f"import time\n{LINE}\n")})


def test_the_text_has_the_line_and_a_caret_below_the_finding() -> None:
    """
    Below the very characters, whatever stands before them: tabs, wide characters.
    """
    head, line, caret, _, count = as_text(REPORT).split("\n")

    assert head == "my app/pay.py:2:13: OW101 reads the clock: 100 %"
    assert line == '        key = f"日本{time.time()}"'
    assert caret == " " * 21 + "^" * 11
    assert count == "1 finding in 3 files. `onceward lint explain CODE` says why"


def test_a_line_with_terminal_commands_is_shown_and_not_obeyed() -> None:
    """
    Paths, messages and lines are strangers' texts.
    """
    source = SourceFile("a\x1b[2J.py", "x = '\x1b[31m\u202e'\n")
    report = LintReport((Finding("OW101", source.path, 1, 1, 2, "m\x07\n"),), 1, {source.path: source})

    shown = as_text(report)

    assert shown.replace("\n", "").isprintable()
    assert "\\x1b[31m\\u202e" in shown


def test_a_line_of_a_megabyte_is_shown_around_the_finding() -> None:
    """
    Minified files have one line; a screen has not.
    """
    source = SourceFile("a.py", "x" * 500_000 + "HERE" + "x" * 500_000)
    report = LintReport((Finding("OW101", "a.py", 1, 500_001, 500_005, "m"),), 1, {"a.py": source})

    _, line, caret, *_ = as_text(report).split("\n")

    assert line[caret.index("^") : caret.index("^") + 4] == "HERE"
    assert len(line) < 200


def test_github_shows_it_beside_the_line() -> None:
    """
    What has a meaning in a workflow command is escaped.
    """
    report = LintReport((Finding("OW115", "a,b:c.py", 1, 1, 2, "100 %\nno jitter"),), 1, {})

    assert as_github(report) == (
        "::warning file=a%2Cb%3Ac.py,line=1,col=1,endColumn=2,title=OW115::100 %25%0Ano jitter"
    )


def test_the_document_has_everything() -> None:
    """
    For programs, in camelCase.
    """
    assert as_document(REPORT)["findings"] == [
        {
            "code": "OW101",
            "name": "key-from-clock",
            "severity": "error",
            "path": "my app/pay.py",
            "line": 2,
            "column": 13,
            "endColumn": 24,
            "message": "reads the clock: 100 %",
            "fixable": False,
        }
    ]


def test_sarif_names_the_rule_and_the_place() -> None:
    """
    Version 2.1.0: results point to rules by id and index, paths are URIs, columns count characters.
    """
    (run,) = as_sarif(REPORT)["runs"]
    (result,) = run["results"]

    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "OW101"
    assert run["columnKind"] == "unicodeCodePoints"
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20app/pay.py"},
        "region": {"startLine": 2, "startColumn": 13, "endColumn": 24},
    }


def test_no_findings_are_said_in_words_and_are_nothing_to_github() -> None:
    """
    An empty result is a result.
    """
    report = LintReport((), 1, {})

    assert as_text(report) == "no findings in 1 file"
    assert as_github(report) == ""
    assert as_sarif(report)["runs"][0]["results"] == []
