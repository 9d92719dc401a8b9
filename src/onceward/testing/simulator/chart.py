"""
A plot as SVG: lines, axes, a legend. No library, no script; it can be put into a page or on a slide as it is.
"""

from __future__ import annotations

import math
from html import escape

from onceward.testing.simulator.report import ReportPlot

WIDTH, HEIGHT = 820, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 240, 40, 48
_COLOURS = ("#b8443c", "#d99a2b", "#6b6f76", "#3a7ca5", "#2f8f5b", "#7b4b94")
"""Told apart in grey, too, and by people who do not tell red from green: see `_DASHES`."""
_DASHES = ("", "6 4", "2 3", "", "10 4", "")
_TICKS = 6


STYLE = """
svg text { fill: #1d2127; font: 12px system-ui, sans-serif }
svg text.title { font-size: 15px; font-weight: 600 }
svg text.tick, svg text.axis { fill: #6b7178 }
svg .grid { stroke: #d9dce1 } svg .span { fill: #b8443c1a }
svg .line { fill: none; stroke-width: 2 }
"""
"""For white paper; a page may set other colours after it."""

_DARK = """
svg text { fill: #e8eaed } svg text.tick, svg text.axis { fill: #a3aab4 } svg .paper { fill: #1b1e24 }
svg .grid { stroke: #333841 } svg .span { fill: #ec8f8733 } svg .line { filter: brightness(1.35) }
"""
"""For a file of its own that is looked at in a dark theme."""


def svg(plot: ReportPlot) -> str:
    """The plot, drawn, for a page that has `STYLE`."""
    return _Drawing(plot).drawn()


def picture(plot: ReportPlot) -> str:
    """The plot as a file of its own."""
    head, _, rest = svg(plot).partition(">")
    head = head.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"')
    style = f"{STYLE}svg .paper {{ fill: #fff }}\n@media (prefers-color-scheme: dark) {{{_DARK}}}\n"
    return f'{head}>\n<style>{style}</style>\n<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>{rest}\n'


class _Drawing:
    def __init__(self, plot: ReportPlot) -> None:
        self._plot = plot
        points = [point for _, line in plot.lines for point in line]
        self._x_low, self._x_high = min(x for x, _ in points), max(x for x, _ in points)
        highest = max(y for _, y in points) or 1.0
        self._y_ticks = _decades(min(y for _, y in points), highest) if plot.logarithmic else _rounded(0.0, highest)

    def drawn(self) -> str:
        plot = self._plot
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(plot.title, quote=True)}">',
            _text(_LEFT, 22, plot.title, "title"),
            *self._marked(),
            *self._axes(),
        ]
        for number, (name, line) in enumerate(plot.lines):
            parts += self._line(number, name, line)
        return "\n".join([*parts, "</svg>"])

    def _marked(self) -> list[str]:
        if self._plot.marked is None:
            return []
        left, right = (self._across(x) for x in self._plot.marked)
        height = HEIGHT - _TOP - _BOTTOM
        return [f'<rect class="span" x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{height}"/>']

    def _axes(self) -> list[str]:
        right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
        parts = []
        for tick in self._y_ticks:
            y = self._up(tick)
            parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
            parts.append(_text(_LEFT - 8, y + 4, f"{tick:,.10g}", "tick", "end"))
        parts += [
            _text(self._across(tick), bottom + 18, f"{tick:,.10g}", "tick", "middle")
            for tick in _rounded(self._x_low, self._x_high)
            if self._x_low <= tick <= self._x_high
        ]
        parts.append(_text((_LEFT + right) / 2, HEIGHT - 10, self._plot.x, "axis", "middle"))
        middle = (_TOP + bottom) / 2
        turned = f'transform="rotate(-90 16 {middle})"'
        parts.append(_text(16, middle, self._plot.y, "axis", "middle", turned))
        return parts

    def _line(self, number: int, name: str, line: list[tuple[float, float]]) -> list[str]:
        colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
        style = f'stroke="{colour}" stroke-dasharray="{dash}"'
        points = " ".join(f"{self._across(x):.1f},{self._up(y):.1f}" for x, y in line)
        y = _TOP + 14 + 22 * number
        left = WIDTH - _RIGHT + 14
        return [
            f'<polyline class="line" {style} points="{points}"/>',
            f'<line class="line" {style} x1="{left}" y1="{y - 4}" x2="{left + 24}" y2="{y - 4}"/>',
            _text(left + 32, y, name, "legend"),
        ]

    def _across(self, x: float) -> float:
        share = (x - self._x_low) / ((self._x_high - self._x_low) or 1.0)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def _up(self, y: float) -> float:
        low, high = self._y_ticks[0], self._y_ticks[-1]
        if self._plot.logarithmic:
            low, high, y = math.log10(low), math.log10(high), math.log10(max(y, low))
        return HEIGHT - _BOTTOM - (y - low) / ((high - low) or 1.0) * (HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start", more: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _rounded(low: float, high: float) -> list[float]:
    """Round numbers from just below the lowest to just above the highest."""
    rough = (high - low or 1.0) / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = unit * next(times for times in (1, 2, 5, 10) if times * unit >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten around both."""
    return [10.0**power for power in range(math.floor(math.log10(max(low, 1e-9))), math.ceil(math.log10(high)) + 1)]
