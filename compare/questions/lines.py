"""How much a user adds to a program."""

from __future__ import annotations

from compare.peers import ROOT
from compare.questions import Data, Question
from compare.stage import Stage

BEGIN, END = "# what a user adds", "# until here"


def counted(source: str) -> int:
    """The lines between the two comments, without empty ones; of the first such pair."""
    inside, found = False, 0
    for line in source.splitlines():
        word = line.strip()
        if word == BEGIN:
            inside = True
        elif word == END:
            return found
        elif inside and word:
            found += 1
    raise ValueError("no lines are marked")


def ask(stage: Stage) -> Data:
    """Count them in the adapter's file."""
    return {"lines": counted((ROOT / "compare" / "adapters" / f"{stage.peer.adapter}.py").read_text())}


def better(ours: Data, theirs: Data) -> str | None:
    """Fewer lines."""
    if theirs["lines"] < ours["lines"]:
        return f"({theirs['lines']})"
    return None


QUESTION = Question(
    name="lines",
    title="How many lines does one protected function take?",
    how="Counted in the adapter of each: the store, the declaration and the function, without imports.",
    ask=ask,
    say=lambda data: f"{data['lines']} lines",
    cell=lambda data: str(data["lines"]),
    right=lambda data: data["lines"] > 0,
    better=better,
    best=lambda ours: f"Need fewer lines than our {ours['lines']}",
    order=40,
)
