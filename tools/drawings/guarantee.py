"""
Which guarantee: the questions are those of docs/how-to/choose-a-guarantee.md, in its order; what happens after a crash
is asked of the rules.
"""

from __future__ import annotations

import re
from pathlib import Path

from drawings.canvas import Canvas
from drawings.life_of_a_key import claim_of, lapsed_claim
from onceward._core import record
from onceward._core.record import Guarantee, Refuse, Start

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "choose-a-guarantee.md"
_QUESTION = re.compile(r"^\d\. \*\*(?P<question>[^*]+?)\.?\*\*\s*`(?P<guarantee>\w+)`", re.MULTILINE)


def questions() -> list[tuple[str, str]]:
    """Question and guarantee, in the page's order; every guarantee once."""
    found = [(one["question"], one["guarantee"]) for one in _QUESTION.finditer(PAGE.read_text(encoding="utf-8"))]
    if sorted(name for _, name in found) != sorted(one.value for one in Guarantee):
        raise LookupError(f"{PAGE.name} asks for {[name for _, name in found]}, and the code has {list(Guarantee)}")
    return found


def after_a_crash(guarantee: str) -> tuple[str, str]:
    """What the next caller does about a holder that died, and a tone for it."""
    decision = record.decide(lapsed_claim(guarantee), claim_of(guarantee, probes=guarantee == Guarantee.PROBED))
    if isinstance(decision, Refuse):
        return "stays in doubt until someone decides", "amber"
    if isinstance(decision, Start) and decision.probe:
        return "the probe is asked, then it is settled or runs", "green"
    if isinstance(decision, Start) and decision.doubt:
        return "is sent again, under the same key", "green"
    return "runs again", "green"


_ROW, _TOP = 78, 62


def draw() -> str:
    """The picture."""
    asked = questions()
    rows = [(question, name, *after_a_crash(name)) for question, name in asked]
    words = " ".join(f"{question}: {name}; after a crash it {after}." for question, name, after, _ in rows)
    canvas = Canvas(920, _TOP + _ROW * len(rows) + 14, "Which guarantee do I need?", words)
    canvas.text(610, 48, "after a crash", "small muted strong")
    for number, (question, name, after, tone) in enumerate(rows):
        y = _TOP + _ROW * number
        is_last = number == len(rows) - 1
        canvas.box(20, y, 370, 46, "grey")
        canvas.text(36, y + 28, question if is_last else f"{question}?", "")
        canvas.arrow(f"M390 {y + 23} L462 {y + 23}", "green" if not is_last else "amber")
        canvas.text(426, y + 16, "" if is_last else "yes", "small green", anchor="middle")
        canvas.box(464, y + 5, 122, 36, tone)
        canvas.text(525, y + 28, name, f"code strong {tone}", anchor="middle")
        canvas.text(610, y + 28, after, "")
        if not is_last:
            canvas.arrow(f"M185 {y + 46} L185 {y + _ROW - 2}")
            canvas.text(194, y + 67, "no", "small muted")
    return canvas.svg()
