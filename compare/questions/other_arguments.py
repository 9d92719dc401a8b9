"""The same key comes with other arguments."""

from __future__ import annotations

from compare.questions import Data, Question, effects
from compare.stage import Stage

SMALL, LARGE = ("order-1", {"amount": 5}), ("order-1", {"amount": 500})


def ask(stage: Stage) -> Data:
    """Charge 5 under a key, again 5, then 500 under the same key."""
    first, same, other = stage.answers(SMALL, SMALL, LARGE, compared=True)
    return {"effects": stage.effects()["order-1"], "first": first, "same": same, "other": other}


def say(data: Data) -> str:
    """Refused, replayed, or run."""
    if data["same"] != data["first"]:
        return f"refused, but so was an honest retry, with `{data['same'].get('raised')}`"
    if "raised" in data["other"]:
        return f"refused with `{data['other']['raised']}`"
    if data["effects"] > 1:
        return f"{effects(data['effects'])}: it ran again, as another operation"
    return "the caller who asked for something else got the first one's result"


def cell(data: Data) -> str:
    """In a few words."""
    if data["same"] != data["first"]:
        return "refused, honest retries too"
    if "raised" in data["other"]:
        return "refused"
    return "runs" if data["effects"] > 1 else "first result"


QUESTION = Question(
    name="other-arguments",
    title="The same key is used again, and then with other arguments.",
    how=(
        "An amount of 5, again 5, then 500, one key; with the option to compare requests, where there is one. Right: "
        "the retry is replayed, and the other amount refused, because one of the two callers is mistaken."
    ),
    ask=ask,
    row="Same key, other arguments",
    say=say,
    cell=cell,
    right=lambda data: data["effects"] == 1 and data["same"] == data["first"] and "raised" in data["other"],
    order=13,
)
