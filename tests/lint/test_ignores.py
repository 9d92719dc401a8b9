"""Comments that say that a finding may stay."""

from __future__ import annotations

import pytest
from linting import codes_in, findings_in

from onceward.lint.findings import Finding
from onceward.lint.ignores import DASHES, apply_ignores, find_ignores
from onceward.lint.settings import LintSettings
from onceward.lint.source_file import SourceFile

KEY = "import time\npay(idempotency_key=time.time())"


@pytest.mark.parametrize(
    "text",
    [
        f"{KEY}  # onceward: ignore[OW101] the time is read from the row\n",
        f"{KEY}  # noqa: X1  # onceward: ignore[OW101] read from the row\n",
        f"{KEY}  #onceward:ignore[OW101] read from the row\n",
        "import time\n# onceward: ignore[OW101] read from the row\npay(idempotency_key=time.time())\n",
        "import time\n# onceward: ignore[OW101] read from the row\n# and more\npay(idempotency_key=time.time())\n",
        "import time, uuid\npay(idempotency_key=f'{time.time()}{uuid.uuid4()}')"
        "  # onceward: ignore[OW101, OW102] read from the row\n",
    ],
)
def test_a_finding_is_ignored_on_its_line(text: str) -> None:
    """
    At the end of the line, or alone on the line above.
    """
    assert codes_in(text) == []


@pytest.mark.parametrize(
    "comment",
    [
        "onceward: ignore",
        "onceward: ignore[]",
        "onceward: ignore[OW101]",
        "onceward: ignore[OW101]   ...",
        "onceward: ignore[OW1] the reason",
        "onceward: ignore[OW999] the reason",
        "onceward: ignore OW101 the reason",
    ],
)
@pytest.mark.fault("lint-ignore-without-reason")
def test_one_without_codes_or_reason_is_not_obeyed(comment: str) -> None:
    """
    It is a finding itself, and the hazard stays one.
    """
    assert codes_in(f"{KEY}  # {comment}\n") == ["OW101", "OW905"]


@pytest.mark.fault("lint-unused-ignore")
def test_one_that_ignores_nothing_is_a_finding() -> None:
    """
    It would hide the next hazard of its line.
    """
    assert codes_in("total = 1  # onceward: ignore[OW101] was a key once\n") == ["OW904"]
    assert codes_in("import time\n# onceward: ignore[OW102] stored\npay(idempotency_key=time.time())\n") == [
        "OW904",
        "OW101",
    ]


def test_one_of_a_code_that_was_not_looked_for_is_left_alone() -> None:
    """
    Neither used nor unused: SQL codes in a Python file, and codes that are not selected.
    """
    only = LintSettings(codes=frozenset({"OW102", "OW904"}))

    assert findings_in(f"{KEY}  # onceward: ignore[OW101] read from the row\n", only) == []


def test_a_text_that_looks_like_one_is_none() -> None:
    """
    In a string it is a string.
    """
    assert codes_in('import time\npay("# onceward: ignore[OW101] no", idempotency_key=time.time())\n') == ["OW101"]


def test_what_is_wrong_with_the_file_cannot_be_ignored_in_it() -> None:
    """
    A syntax error stays one.
    """
    assert codes_in("def f(:  # onceward: ignore[OW901] later\n") == ["OW901"]


def test_sql_has_its_own_comments() -> None:
    """
    Two dashes, on the line or above it.
    """
    source = SourceFile(
        "a.sql", "INSERT INTO t VALUES (1); -- onceward: ignore[OW101] a log\n-- onceward: ignore[OW102] b\nX;\n"
    )
    findings = [Finding("OW101", "a.sql", 1, 1, 2, "m"), Finding("OW102", "a.sql", 3, 1, 2, "m")]

    ignores = find_ignores(source, DASHES)

    assert [(one.about, one.codes) for one in ignores] == [(1, ("OW101",)), (3, ("OW102",))]
    assert apply_ignores(source, findings, ignores, frozenset({"OW101", "OW102"})) == []
