"""The page of metrics is the code's own table."""

from __future__ import annotations

import re
from pathlib import Path

from onceward.observe import CATALOGUE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(onceward_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", re.MULTILINE)


def test_the_table_is_the_catalogue() -> None:
    """
    Every metric, with its kind, labels and meaning, in the order of the code; and no other.
    """
    expected = [
        (one.name, one.kind, ", ".join(f"`{label}`" for label in one.labels), one.help.removesuffix("."))
        for one in CATALOGUE
    ]

    assert ROW.findall(PAGE.read_text(encoding="utf-8")) == expected


def test_names_are_as_prometheus_wants_them() -> None:
    """
    `_total` for counters and nothing else, seconds for times; and no two have one name, in OpenTelemetry neither.
    """
    assert [one.name for one in CATALOGUE if one.name.endswith("_total") != (one.kind == "counter")] == []
    assert [one.name for one in CATALOGUE if one.kind == "histogram" and not one.name.endswith("_seconds")] == []
    assert len({one.name for one in CATALOGUE}) == len({one.otel_name for one in CATALOGUE}) == len(CATALOGUE)
