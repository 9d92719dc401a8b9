"""
The drawing of one call, docs/images/one-call.svg: a charge whose response is lost, and the same call again.

It is drawn from a real run: a gate is called twice, its listener and the function say what happened, and each thing
that happened is an arrow. For light and dark pages.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from onceward import Gate
from onceward.gate import Event

CALLER, GATE, STORE, PROVIDER = range(4)
PLACES = (
    ("your code", "an agent, a job, a handler"),
    ("the gate", ""),
    ("the store", "SQLite, PostgreSQL, Redis"),
    ("the outside", "a payment provider"),
)
WIDTH, TOP, ROW, LEFT, GAP = 860, 66, 40, 110, 215

STYLE = """
svg { color-scheme: light dark }
text { fill: #1d2127; font: 13px system-ui, sans-serif }
.name { font-weight: 600; font-size: 14px } .small { fill: #6b7178; font-size: 12px }
.paper { fill: #ffffff } .life { stroke: #c4c9d0; stroke-dasharray: 3 4 }
.arrow { stroke: #3a5a8c; stroke-width: 1.6 } .head { fill: #3a5a8c }
.effect { stroke: #2f7d50; stroke-width: 2.4 } .effect-head { fill: #2f7d50 }
.lost { stroke: #b8443c; stroke-width: 1.6; stroke-dasharray: 6 4 } .lost-text { fill: #b8443c }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb } .small { fill: #9aa1aa } .paper { fill: #15181c } .life { stroke: #4a515a }
  .arrow { stroke: #86aee8 } .head { fill: #86aee8 } .effect { stroke: #6fcf97 } .effect-head { fill: #6fcf97 }
  .lost { stroke: #f08a80 } .lost-text { fill: #f08a80 }
}
"""
TITLE = (
    "A charge whose response is lost, and the same call again: the gate replays the first result, "
    "and nothing is charged."
)


class Arrow(NamedTuple):
    """A step as it is drawn."""

    start: int
    end: int
    text: str
    kind: str = "arrow"


ARROWS = {
    "called": Arrow(CALLER, GATE, 'charge("o-17", "12.50")'),
    "claimed": Arrow(GATE, STORE, "claim charge:o-17"),
    "ran": Arrow(GATE, PROVIDER, "charge, once", "effect"),
    "settled": Arrow(GATE, STORE, "keep the result"),
    "lost": Arrow(GATE, CALLER, "the response is lost", "lost"),
    "called again": Arrow(CALLER, GATE, "the same call again"),
    "replayed": Arrow(STORE, GATE, "settled: here is the result"),
    "returned": Arrow(GATE, CALLER, "the first result"),
}


def steps() -> list[str]:
    """What happens when a gate is called twice, in order, as it tells."""
    found: list[str] = []

    def listen(event: Event) -> None:
        found.append(event.type.value)

    def provider() -> str:
        found.append("ran")
        return "ch_o-17"

    with Gate("memory://", scope="test:shop", listeners=[listen]) as gate:
        for before, after in (("called", "lost"), ("called again", "returned")):
            found.append(before)
            gate.run("charge:o-17", provider, request={"order": "o-17", "amount": "12.50"})
            found.append(after)
    return found


def drawn(happened: list[str]) -> str:
    """These steps as SVG."""
    height = TOP + ROW * len(happened) + 14
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{TITLE}">',
        f"<title>{TITLE}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
    ]
    for number, (name, more) in enumerate(PLACES):
        x = LEFT + GAP * number
        parts.append(f'<text class="name" x="{x}" y="26" text-anchor="middle">{name}</text>')
        parts.append(f'<text class="small" x="{x}" y="43" text-anchor="middle">{more}</text>')
        parts.append(f'<line class="life" x1="{x}" y1="52" x2="{x}" y2="{height - 10}"/>')
    for number, step in enumerate(happened):
        parts += _arrow(ARROWS[step], TOP + ROW * number + 20)
    return "\n".join([*parts, "</svg>", ""])


def _arrow(arrow: Arrow, y: int) -> list[str]:
    start, end = LEFT + GAP * arrow.start, LEFT + GAP * arrow.end
    way = 1 if end > start else -1
    lost = arrow.kind == "lost"
    tip, words = ((start + end) // 2, "lost-text") if lost else (end, "words")
    # Beside the arrow's beginning, where no lifeline crosses it.
    x, anchor = (start + 8, "start") if way > 0 else (start - 8, "end")
    parts = [
        f'<line class="{arrow.kind}" x1="{start}" y1="{y}" x2="{tip - (0 if lost else 8 * way)}" y2="{y}"/>',
        f'<text class="{words}" x="{x}" y="{y - 6}" text-anchor="{anchor}">{escape(arrow.text)}</text>',
    ]
    if lost:
        cross = f"M{tip - 5} {y - 5}l10 10m0 -10l-10 10"
        return [*parts, f'<path class="lost" style="stroke-dasharray:none" d="{cross}"/>']
    head = "effect-head" if arrow.kind == "effect" else "head"
    return [*parts, f'<path class="{head}" d="M{end} {y}l{-9 * way} -5v10z"/>']


def draw() -> str:
    """The file."""
    return drawn(steps())
