"""
A failover: answers in the seconds around the death of the primary, and what a judge counted on the new one.

Drawn from docs/images/data/failover.json, which `make failover-data` writes: two services, a primary and a standby, all
real, and a `kill -9` under load.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drawings.canvas import Canvas

DATA = Path(__file__).resolve().parents[2] / "docs" / "images" / "data" / "failover.json"
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 66, 96
_WIDTH, _HEIGHT = 900, 420


def draw() -> str:
    """The picture."""
    runs: dict[str, dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["runs"]
    copied = next(run for story, run in runs.items() if story.startswith("synchronous"))
    control = next(run for story, run in runs.items() if story.startswith("asynchronous"))
    words = (
        f"{copied['clients']} clients send keyed writes to two services; the primary is killed. No answer for a while, "
        f"then all of them. Synchronous standby: {_judged(copied)}. "
        f"Asynchronous standby, as a control: {_judged(control)}."
    )
    canvas = Canvas(_WIDTH, _HEIGHT, "A failover: the primary is killed under load", words)
    canvas.text(20, 50, f"keyed writes answered, for each {copied['bucket_seconds'] * 1000:g} ms", "small muted")
    _curve(canvas, copied)
    y = _HEIGHT - 34
    canvas.text(20, y, "synchronous standby:", "small strong green")
    canvas.text(192, y, _judged(copied), "small")
    canvas.text(20, y + 20, "asynchronous standby:", "small strong amber")
    canvas.text(192, y + 20, _judged(control), "small")
    return canvas.svg()


def _judged(run: dict[str, Any]) -> str:
    wait = f"longest wait {run['longest_seconds']:.2f} s"
    return f"acknowledged {run['acknowledged']:,}, lost {run['lost']:,}, doubled {run['doubled']:,}, {wait}"


def _curve(canvas: Canvas, run: dict[str, Any]) -> None:
    around, bucket = float(run["around_seconds"]), float(run["bucket_seconds"])
    answers: list[int] = run["answers"]
    top = max(answers)
    bottom = _HEIGHT - _BOTTOM

    def across(seconds: float) -> float:
        return _LEFT + (seconds + around) / (2 * around) * (_WIDTH - _LEFT - _RIGHT)

    def up(count: float) -> float:
        return bottom - count / top * (bottom - _TOP - 30)

    for count in range(0, top + 1, max(1, round(top / 4))):
        canvas.line(_LEFT, up(count), _WIDTH - _RIGHT, up(count), "faint")
        canvas.text(_LEFT - 8, up(count) + 4, f"{count}", "small muted", anchor="end")
    for half in range(round(-around * 2), round(around * 2) + 1):
        canvas.text(across(half / 2), bottom + 20, f"{half / 2:g} s", "small muted", anchor="middle")
    canvas.line(across(0), _TOP, across(0), bottom, "red")
    canvas.text(across(0) - 7, _TOP + 12, "kill -9", "small strong red", anchor="end")
    promoted = across(run["promoted_after_seconds"])
    canvas.line(promoted, _TOP, promoted, bottom, "blue")
    canvas.text(promoted + 7, _TOP + 12, "the standby is told to take over", "small strong blue")
    points = [(across(-around + bucket * (number + 0.5)), up(count)) for number, count in enumerate(answers)]
    canvas.polyline(points, "green")
