"""A picture as SVG: boxes, arrows and text. It follows the reader's light or dark theme and has words beside it."""

from __future__ import annotations

from html import escape

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1d2127",
    "muted": "#5f666e",
    "line": "#8a919a",
    "faint": "#e3e6ea",
    "blue": "#2f6f99",
    "green": "#2a7d4f",
    "amber": "#9a6412",
    "red": "#ab3a32",
    "grey": "#5f666e",
    "blue-fill": "#e8f1f7",
    "green-fill": "#e7f4ec",
    "amber-fill": "#fbf1de",
    "red-fill": "#fae9e7",
    "grey-fill": "#f1f3f5",
}
DARK = {
    "paper": "#1b1e24",
    "ink": "#e8eaed",
    "muted": "#a3aab4",
    "line": "#7d8590",
    "faint": "#333841",
    "blue": "#7fbce3",
    "green": "#7ccf9f",
    "amber": "#e5b567",
    "red": "#ec8f87",
    "grey": "#a3aab4",
    "blue-fill": "#1e3444",
    "green-fill": "#1d3829",
    "amber-fill": "#3d3119",
    "red-fill": "#43241f",
    "grey-fill": "#2a2e35",
}
TONES = ("blue", "green", "amber", "red", "grey")
SIZE, SMALL, LARGE = 14, 12.5, 17


class Canvas:
    """One picture, drawn piece by piece."""

    def __init__(self, width: int, height: int, title: str, words: str) -> None:
        """`title` is shown; `words` say the same as the picture, for whoever does not see it."""
        self._size = (width, height)
        self._title, self._words = title, words
        self._parts: list[str] = []
        self.text(20, 30, title, "title")

    def text(self, x: float, y: float, words: str, kind: str = "", *, anchor: str = "start") -> None:
        """A line of text; `kind`: title, small, muted, strong, code, a tone, or several of them."""
        self._parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, tone: str, *, round: float = 8) -> None:
        """A filled box of a tone."""
        self._parts.append(
            f'<rect class="box {tone}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round:g}"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A plain line."""
        self._parts.append(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    def arrow(self, path: str, tone: str = "line", *, dashed: bool = False) -> None:
        """An arrow along a path of SVG (`M ... C ...`)."""
        kind = f"arrow {tone}{' dashed' if dashed else ''}"
        self._parts.append(f'<path class="{kind}" d="{path}" marker-end="url(#head-{tone})"/>')

    def polyline(self, points: list[tuple[float, float]], tone: str) -> None:
        """A line through points."""
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline class="curve {tone}" points="{text}"/>')

    def svg(self) -> str:
        """The file."""
        width, height = self._size
        heads = "".join(
            f'<marker id="head-{tone}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path class="head {tone}" d="M0 0.5 8 4 0 7.5z"/></marker>'
            for tone in ("line", *TONES)
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-labelledby="title words">\n<title id="title">{escape(self._title)}</title>\n'
            f'<desc id="words">{escape(self._words)}</desc>\n<style>\n{_style()}</style>\n<defs>{heads}</defs>\n'
            f'<rect class="paper" width="{width}" height="{height}" rx="10"/>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )


def _style() -> str:
    fixed = (
        f"text {{ font: {SIZE}px system-ui, sans-serif }} .small {{ font-size: {SMALL}px }} "
        f".title {{ font-size: {LARGE}px; font-weight: 600 }} .strong {{ font-weight: 600 }}\n"
        f".code {{ font-family: ui-monospace, monospace }} .code.small {{ font-size: {SMALL - 0.5:g}px }}\n"
        "line { stroke-width: 1 } .arrow, .curve { fill: none; stroke-width: 1.75 } .box { stroke-width: 1.25 }\n"
        ".halo { paint-order: stroke; stroke-width: 5px; stroke-linejoin: round }\n"
        ".dashed { stroke-dasharray: 5 4 } .life { stroke-dasharray: 2 4 }\n"
    )
    return fixed + _colours(LIGHT) + "@media (prefers-color-scheme: dark) {\n" + _colours(DARK) + "}\n"


def _colours(palette: dict[str, str]) -> str:
    rules = [
        f".paper {{ fill: {palette['paper']} }} text {{ fill: {palette['ink']} }}",
        f".muted {{ fill: {palette['muted']} }}",
        f".halo {{ stroke: {palette['paper']} }}",
        f"line {{ stroke: {palette['line']} }} line.faint {{ stroke: {palette['faint']} }}",
        f".arrow.line {{ stroke: {palette['line']} }} .head.line {{ fill: {palette['line']} }}",
    ]
    rules += [
        f"text.{tone}, .head.{tone} {{ fill: {palette[tone]} }} .arrow.{tone}, .curve.{tone}, line.{tone} "
        f"{{ stroke: {palette[tone]} }} .box.{tone} {{ fill: {palette[f'{tone}-fill']}; stroke: {palette[tone]} }}"
        for tone in TONES
    ]
    return "\n".join(rules) + "\n"
