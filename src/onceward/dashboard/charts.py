"""
Small pictures, drawn on the server as SVG: bars over time, steps of a plan, the calls of a run.

Each has a text that says the same, for whoever cannot see it. Colours are classes: the style has them for both themes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from onceward.dashboard.html import Content, Markup, element

WIDTH = 720
HEIGHT = 120


class Series(NamedTuple):
    """One colour of a chart."""

    name: str
    tone: str
    values: Sequence[int]


def bars(series: Sequence[Series], *, label: str, first: str, last: str) -> Markup:
    """Stacked bars over time, the latest at the right."""
    count = len(series[0].values)
    totals = [sum(one.values[place] for one in series) for place in range(count)]
    top, step = max([1, *totals]), WIDTH / count
    drawn: list[Content] = []
    for place in range(count):
        base = float(HEIGHT)
        for one in series:
            height = one.values[place] / top * (HEIGHT - 6)
            if height:
                base -= height
                drawn.append(
                    element(
                        "rect", x=f"{place * step + 1:.1f}", y=f"{base:.1f}", width=f"{step - 2:.1f}",
                        height=f"{height:.1f}", class_=f"fill-{one.tone}",
                    )
                )  # fmt: skip
    drawn.append(element("line", x1=0, y1=HEIGHT, x2=WIDTH, y2=HEIGHT, class_="axis"))
    picture = element(
        "svg",
        element("title", label),
        drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT + 1}",
        role="img",
        aria_label=label,
        preserveAspectRatio="none",
        class_="chart",
    )
    legend = [
        element(
            "li", element("span", class_=f"dot fill-{one.tone}"), f"{one.name} ", element("b", f"{sum(one.values):,}")
        )
        for one in series
    ]
    axis = element("div", element("span", first), element("span", f"at most {top:,} at once"), element("span", last))
    return element(
        "figure",
        picture,
        element("div", axis, class_="axis-labels"),
        element("ul", legend, class_="legend"),
        class_="plot",
    )


class Point(NamedTuple):
    """A value from an instant on."""

    at: int
    value: float


def steps(points: Sequence[Point], *, label: str, first: Content, last: Content) -> Markup:
    """What stays as it is until it changes, over time: each value holds until the next one's instant."""
    low, high = min([0.0, *(one.value for one in points)]), max([1e-9, *(one.value for one in points)])
    begin, whole = points[0].at, max(points[-1].at - points[0].at, 1)

    def place(at: int, value: float) -> str:
        return f"{(at - begin) / whole * WIDTH:.1f},{HEIGHT - 4 - (value - low) / (high - low) * (HEIGHT - 8):.1f}"

    corners = [place(points[0].at, points[0].value)]
    for before, after in pairwise(points):
        corners += [place(after.at, before.value), place(after.at, after.value)]
    zero = HEIGHT - 4 - (0 - low) / (high - low) * (HEIGHT - 8)
    picture = element(
        "svg",
        element("title", label),
        element("line", x1=0, y1=f"{zero:.1f}", x2=WIDTH, y2=f"{zero:.1f}", class_="axis"),
        element("polyline", points=" ".join(corners), class_="stroke"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=label,
        preserveAspectRatio="none",
        class_="chart",
    )
    axis = element("div", element("span", first), element("span", last), class_="line-labels")
    return element("figure", picture, axis, class_="plot")


def span_bar(begin: float, end: float, tone: str, *, label: str) -> Markup:
    """A bar from one place to another on a line of length one: a call in a waterfall."""
    x = max(0.0, min(begin, 1.0)) * 100
    width = max(0.8, (max(begin, min(end, 1.0)) - begin) * 100)
    return element(
        "svg",
        element("title", label),
        element("rect", x=0, y=4, width=100, height=1, class_="fill-line"),
        element("rect", x=f"{min(x, 99.2):.2f}", y=1, width=f"{width:.2f}", height=7, rx=1, class_=f"fill-{tone}"),
        viewBox="0 0 100 9",
        role="img",
        aria_label=label,
        preserveAspectRatio="none",
        class_="span",
    )


def meter(used: int, limit: int, *, label: str) -> Markup:
    """How much of something is used."""
    share = min(1.0, used / limit) if limit else 1.0
    tone = "bad" if share >= 1 else "warn" if share >= 0.8 else "busy"
    return span_bar(0.0, share, tone, label=label)
