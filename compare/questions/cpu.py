"""CPU time of a call. A busy machine disturbs it far less than wall time."""

from __future__ import annotations

from compare.questions import Data, Question
from compare.stage import Stage

TIMES = 200
ROUNDS = 3
LESS = 0.8
"""Only what is clearly less is called less."""


def ask(stage: Stage) -> Data:
    """Two hundred calls that are new and two hundred that replay, three times; the least of each."""
    rounds = [stage.answers(how="cpu", times=TIMES, name=f"round{one}")[0] for one in range(ROUNDS)]
    return {
        "fresh": round(min(one["fresh"] for one in rounds)),
        "replay": round(min(one["replay"] for one in rounds)),
        "store": stage.peer.stores[0],
    }


def better(ours: Data, theirs: Data) -> str | None:
    """It takes less on the same store."""
    if theirs["store"] != ours["store"]:
        return None
    said = [
        f"{theirs[case]} us for a {what}, to our {ours[case]}"
        for case, what in (("fresh", "new call"), ("replay", "replay"))
        if theirs[case] < LESS * ours[case]
    ]
    return f"({' and '.join(said)})" if said else None


QUESTION = Question(
    name="cpu",
    title="How much CPU time does a call take?",
    how=(
        "In the calling process, least of three rounds of two hundred calls; the effect, a line in a file, counts too. "
        "Each as it comes: one that waits less for the disk has less to do. Compare only where the store is the same. "
        "Speed at equal durability is measured by `make bench`."
    ),
    ask=ask,
    say=lambda data: f"{data['fresh']} us for a new call, {data['replay']} us for a replay",
    cell=lambda data: f"{data['fresh']} / {data['replay']} us ({data['store']})",
    right=lambda data: data["fresh"] > 0 and data["replay"] > 0,
    better=better,
    best=lambda ours: "Take less CPU time on the same store, each as it comes",
    order=42,
)
