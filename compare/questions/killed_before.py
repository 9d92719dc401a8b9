"""A process is killed after it claimed the key, before the effect."""

from __future__ import annotations

from functools import partial

from compare.questions import Data, Question, effects, got
from compare.questions.killed_after import killed


def better(ours: Data, theirs: Data) -> str | None:
    """It was done without anybody's help."""
    if theirs["effects"] == 1 and "returned" in theirs["second"] and "raised" in ours["second"]:
        return ""
    return None


QUESTION = Question(
    name="killed-before",
    title="A process is killed before the effect. Another calls again.",
    how=(
        "The same, a moment earlier. One effect and a result is best; no effect and an error asks a person to look "
        "first. From outside the two cases look alike: a package that runs it again here runs it twice there."
    ),
    ask=partial(killed, then="before"),
    say=lambda data: f"{effects(data['effects'])}; the second caller got {got(data['second'])}",
    cell=lambda data: f"{effects(data['effects'])}, {got(data['second'])}",
    right=lambda data: data["effects"] <= 1,
    better=better,
    best=lambda ours: "Finish automatically what was killed before its effect; Onceward asks first",
    order=11,
)
