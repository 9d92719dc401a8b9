"""`onceward simulate`: a table, a document, or a page."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from onceward.cli import main
from onceward.testing.simulator import collapse
from onceward.testing.simulator.chart import HEIGHT, WIDTH, svg
from onceward.testing.simulator.page import page
from onceward.testing.simulator.report import ReportPlot, ReportTable, SimulationFinding, SimulationReport

PLOT = ReportPlot(
    "Load < 2 & more", "seconds", "requests", [("a", [(0.0, 1.0), (5.0, 3.0)]), ("b", [(0.0, 0.0)])], (1.0, 2.0)
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run in place of the average of five."""
    monkeypatch.setattr(collapse.simulate_collapse, "__kwdefaults__", {"runs": 1, "progress": lambda *_: None})


def run(capsys: pytest.CaptureFixture[str], *typed: str) -> tuple[int, str, str]:
    code = main(["simulate", *typed])
    return (code, *capsys.readouterr())


def test_a_person_gets_tables_and_findings(capsys: pytest.CaptureFixture[str]) -> None:
    """
    What was simulated, the figures, and each finding with whether it holds.
    """
    code, out, _ = run(capsys, "collapse")

    assert code == 0
    assert "a spike: 40 calls a second" in out
    assert "holds  after the spike, blind retries stay below half of the offered load" in out


def test_a_program_gets_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """
    The same figures as JSON, with the seed.
    """
    code, out, _ = run(capsys, "collapse", "--seed", "7", "--json")

    document = json.loads(out)
    assert (code, document["seed"], document["name"], document["holds"]) == (0, 7, "collapse", True)
    assert "3 tries" in [row[0] for row in document["tables"][0]["rows"]]


def test_a_page_is_one_file_that_fetches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    No script, no address, nothing from elsewhere; its drawings are well formed.
    """
    file = tmp_path / "collapse.html"

    code, _, err = run(capsys, "collapse", "--html", str(file))

    text = file.read_text(encoding="utf-8")
    assert code == 0
    assert f"wrote {file}" in err
    assert re.findall(r"<script|https?://|<link|<img|@import|url\(", text) == []
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len([ET.fromstring(drawing) for drawing in drawings]) == 2
    assert "onceward simulate collapse --seed 7" in text


def test_a_finding_that_does_not_hold_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The answer is no, and the finding is named.
    """
    monkeypatch.setattr(collapse.CollapseTally, "settled", lambda self, counts: 0.0)

    code, out, _ = run(capsys, "collapse")

    assert code == 1
    assert "FAILS  after the spike, blind retries stay below half" in out


@pytest.mark.parametrize("seed", ["0", "-1", "x", "1e9", "99999999999"])
def test_a_seed_is_a_whole_number(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Anything else is refused before anything is simulated.
    """
    code, out, err = run(capsys, "storm", "--seed", seed)

    assert (code, out) == (2, "")
    assert "a whole number from 1" in err or "expected one argument" in err


def test_a_page_that_cannot_be_written_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    One line, and no traceback.
    """
    code, _, err = run(capsys, "collapse", "--html", str(tmp_path))

    assert code == 2
    assert err.startswith("onceward: cannot write ")


def test_a_drawing_shows_every_line_and_escapes_its_words() -> None:
    """
    Names are text, never markup; the span is drawn; every line is in the legend.
    """
    drawing = ET.fromstring(svg(PLOT))

    assert drawing.attrib["aria-label"] == "Load < 2 & more"
    assert len(drawing.findall("polyline")) == 2
    assert len(drawing.findall("rect")) == 1
    assert {"a", "b"} <= {text.text for text in drawing.findall("text")}


@pytest.mark.parametrize("points", [[(0.0, 0.0)], [(1.0, 5.0), (1.0, 5.0)], [(0.0, 1e-6), (1e6, 1e9)]])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_drawing_survives_flat_and_huge_figures(points: list[tuple[float, float]], logarithmic: bool) -> None:
    """
    No division by nothing, and every coordinate is a number inside the drawing.
    """
    drawing: Any = ET.fromstring(svg(ReportPlot("t", "x", "y", [("line", points)], logarithmic=logarithmic)))

    for pair in drawing.find("polyline").attrib["points"].split():
        x, y = map(float, pair.split(","))
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT


def test_a_page_escapes_what_it_is_told() -> None:
    """
    A policy called <b> is not bold.
    """
    report = SimulationReport(
        "x", "<i>", 1, [ReportTable("<u>", ("<b>",), [("<s>",)])], [PLOT], [SimulationFinding("<q>", False)]
    )

    text = page(report, "0")

    assert re.findall(r"<(?:i|u|b|s|q)>", text) == []
    assert 'class="fails"' in text
