"""How often a package was released."""

from __future__ import annotations

import sys

from compare.peers import ANY
from compare.questions import Data, Question, number
from compare.stage import NoAnswer, Stage

NONE = "No matching distribution"
MORE = 10
"""So many more releases are worth a sentence."""


def ask(stage: Stage) -> Data:
    """Ask pip which versions its index offers."""
    name = stage.peer.name.lower()
    done = stage.run("-m", "pip", "index", "versions", "--retries", "1", "--timeout", "20", name)
    if done.returncode != 0 and NONE not in done.stderr:
        raise NoAnswer(done.stderr.strip()[-200:])
    line = next((line for line in done.stdout.splitlines() if line.startswith("Available versions: ")), "")
    versions = line.removeprefix("Available versions: ").split(", ") if line else []
    return {"releases": len(versions), "python": f"{sys.version_info.major}.{sys.version_info.minor}"}


def better(ours: Data, theirs: Data) -> str | None:
    """It has been released far more often."""
    if theirs["releases"] >= ours["releases"] + MORE:
        return f"({theirs['releases']})"
    return None


QUESTION = Question(
    name="releases",
    title="How often has it been released?",
    how="The versions that pip's index offers for this Python: a package with many has been used and fixed for longer.",
    ask=ask,
    say=lambda data: f"{number(data['releases'])} release{'' if data['releases'] == 1 else 's'}",
    cell=lambda data: number(data["releases"]),
    right=lambda data: True,
    better=better,
    best=lambda ours: f"Have been released more often than Onceward ({ours['releases']} times)",
    kind=ANY,
    order=90,
)
