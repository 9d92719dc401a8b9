"""
A report as one HTML file: no script, nothing to fetch, and it prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from onceward.testing.simulator.chart import STYLE, svg
from onceward.testing.simulator.report import ReportTable, SimulationFinding, SimulationReport

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2127; --faint: #8a9099; --line: #d9dce1; --paper: #fff; --span: #b8443c1a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --faint: #9aa0a8; --line: #3a3f47; --paper: #16191d; --span: #d9645a33 }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p.about { color: var(--faint); margin: .25rem 0 1.5rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: bottom }
th:first-child, td:first-child { text-align: left }
th { font-weight: 600 }
ul { padding: 0; list-style: none } li { margin: .3rem 0 }
.holds::before { content: "\\2713\\00a0\\00a0"; color: #2f8f5b; font-weight: 700 }
.fails::before { content: "\\2717\\00a0\\00a0"; color: #b8443c; font-weight: 700 }
svg { width: 100%; height: auto; margin: 1rem 0 } svg text { fill: var(--ink) }
svg text.tick, svg text.axis { fill: var(--faint) } svg .grid { stroke: var(--line) } svg .span { fill: var(--span) }
footer { color: var(--faint); font-size: .8rem; margin-top: 2rem }
"""


def page(report: SimulationReport, version: str) -> str:
    """The report as a page of its own."""
    command = f"onceward simulate {report.name} --seed {report.seed}"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(report.name)} - Onceward</title>\n<style>{STYLE}{_STYLE}</style>\n</head>\n<body>",
            f'<h1>{escape(report.name.capitalize())}</h1>\n<p class="about">{escape(report.about)}</p>',
            _findings(report.findings),
            *(svg(plot) for plot in report.plots),
            *(_table(table) for table in report.tables),
            f"<footer>onceward {escape(version)} &middot; <code>{escape(command)}</code></footer>\n</body>\n</html>\n",
        ]
    )


def _findings(findings: Sequence[SimulationFinding]) -> str:
    items = "\n".join(
        f'<li class="{"holds" if finding.holds else "fails"}">{escape(finding.sentence)}</li>' for finding in findings
    )
    return f"<ul>\n{items}\n</ul>"


def _table(table: ReportTable) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in table.headings)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(_cell(cell))}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f'<h2>{escape(table.title)}</h2>\n<div class="wide"><table>\n<tr>{head}</tr>\n{rows}\n</table></div>'


def _cell(cell: str | int | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:,}"
