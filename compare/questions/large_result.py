"""The result is large, or cannot be stored at all."""

from __future__ import annotations

from compare.questions import Data, Question, effects, got
from compare.stage import Stage


def ask(stage: Stage) -> Data:
    """Two calls with a result of 2 MiB; two with an open file as result."""
    large = stage.answers(*[("large", {})] * 2, then="big")
    odd = stage.answers(*[("odd", {})] * 2, then="unstorable", name="odd")
    counted = stage.effects()
    return {"large": counted["large"], "odd": counted["odd"], "large_got": large[-1], "odd_got": odd[-1]}


def say(data: Data) -> str:
    """Effects of both."""
    return (
        f"2 MiB: {effects(data['large'])}, the second caller got {got(data['large_got'])}; "
        f"an open file: {effects(data['odd'])}, the second caller got {got(data['odd_got'])}"
    )


def better(ours: Data, theirs: Data) -> str | None:
    """It replays what we do not keep."""
    if theirs["large"] == 1 and "returned" in theirs["large_got"] and "raised" in ours["large_got"]:
        return ""
    return None


QUESTION = Question(
    name="large-result",
    title="The result is 2 MiB, or cannot be stored. The caller calls twice.",
    how="One effect each is right; whether the result can be replayed is another matter.",
    ask=ask,
    say=say,
    cell=lambda data: f"{data['large']} and {data['odd']} effects",
    right=lambda data: data["large"] == 1 and data["odd"] == 1,
    better=better,
    best=lambda ours: "Replay a result of 2 MiB with their defaults; we store up to 1 MiB unless told otherwise",
    order=17,
)
